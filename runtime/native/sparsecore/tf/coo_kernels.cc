// Ops that convert the ids of a feature to COO tensors.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/text.h"
#include "base/tf/register.h"
#include "base/tf/status.h"
#include "embedding/batch.h"
#include "sparsecore/coo.h"
#include "sparsecore/tf/kernel.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::sparsecore {
namespace {

using embedding::Combiner;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Tensor;

class FeatureKernel : public Kernel {
 public:
  explicit FeatureKernel(OpKernelConstruction* context)
      : Kernel(context), sample_count_(IntAttr(context, "sample_count")) {
    std::string name;
    OP_REQUIRES_OK(context, context->GetAttr("combiner", &name));
    OP_REQUIRES(context, name == "sum" || name == "mean" || name == "sqrtn",
                Invalid("combiner", "must be sum, mean or sqrtn, is \"" + name + "\""));
    combiner_ = name == "sum"    ? Combiner::kSum
                : name == "mean" ? Combiner::kMean
                                 : Combiner::kSqrtN;
    OP_REQUIRES(context, sample_count_ >= 1 && sample_count_ <= kMaxInt32,
                Invalid("sample_count", StrCat("must be at least 1 and at most ", kMaxInt32,
                                               ", is ", sample_count_)));
  }

 protected:
  absl::Status ReadTriples(OpKernelContext* context, Triples* triples) const {
    const Tensor& indices = context->input(0);
    const Tensor& values = context->input(1);
    const Tensor& weights = context->input(2);
    TF_RETURN_IF_ERROR(CheckRank("values", values, 1));
    CooFeature feature;
    feature.id_count = values.dim_size(0);
    feature.sample_count = sample_count_;
    feature.one_weight = weights.dims() == 0;
    if (weights.dims() > 1 ||
        (weights.dims() == 1 && weights.dim_size(0) != feature.id_count)) {
      return Invalid("weights", StrCat("must be a scalar or have one weight for each of the ",
                                       feature.id_count, " ids, has the shape ",
                                       weights.shape().DebugString()));
    }
    const std::string has = ", has the shape " + indices.shape().DebugString();
    if (indices.dims() == 2) {
      feature.form = CooFeature::kSparse;
      if (indices.dim_size(0) != feature.id_count || indices.dim_size(1) != 2) {
        return Invalid("indices_or_row_splits",
                       StrCat("indices must have the shape [", feature.id_count,
                              ",2], two for each of values", has));
      }
    } else if (indices.dims() == 1 && indices.dim_size(0) > 0) {
      feature.form = CooFeature::kRagged;
      if (indices.dim_size(0) != sample_count_ + 1) {
        return Invalid("indices_or_row_splits",
                       StrCat("row splits must have the shape [", sample_count_ + 1,
                              "], sample_count + 1", has));
      }
    } else if (indices.dims() == 1) {
      feature.form = CooFeature::kDense;
      if (feature.id_count != 0 && feature.id_count != sample_count_) {
        return Invalid("values",
                       StrCat("a dense feature must have ", sample_count_,
                              " ids, as sample_count says, or none, has ", feature.id_count));
      }
    } else {
      return Invalid("indices_or_row_splits", "must be of rank 1 or 2" + has);
    }
    feature.indices = Ints(indices);
    feature.ids = Ints(values);
    feature.weights = Floats(weights);
    return ToAbsl(FeatureToTriples(feature, combiner_, triples));
  }

  int64_t sample_count() const { return sample_count_; }

 private:
  const int64_t sample_count_;
  Combiner combiner_ = Combiner::kSum;
};

class CooOp : public FeatureKernel {
 public:
  using FeatureKernel::FeatureKernel;

 protected:
  absl::Status Run(OpKernelContext* context) override {
    Triples triples;
    TF_RETURN_IF_ERROR(ReadTriples(context, &triples));
    Tensor* outputs[3];
    for (int i = 0; i < 3; ++i) {
      TF_RETURN_IF_ERROR(NewVector(context, i, triples.size(), &outputs[i]));
    }
    std::copy_n(triples.samples.data(), triples.size(), Ints(outputs[0]));
    std::copy_n(triples.rows.data(), triples.size(), Ints(outputs[1]));
    std::copy_n(triples.gains.data(), triples.size(), Floats(outputs[2]));
    return absl::OkStatus();
  }
};

class ListOfCooOp : public FeatureKernel {
 public:
  explicit ListOfCooOp(OpKernelConstruction* context) : FeatureKernel(context) {
    stacking_.sample_count = sample_count();
    stacking_.sc_per_chip = IntAttr(context, "num_sc_per_chip");
    stacking_.row_offset = IntAttr(context, "row_offset");
    stacking_.col_offset = IntAttr(context, "col_offset");
    stacking_.col_shift = IntAttr(context, "col_shift");
    stacking_.shards = IntAttr(context, "num_sc_shards");
    stacking_.stacked_samples = IntAttr(context, "stacked_table_sample_count");
    if (!context->status().ok()) return;
    OP_REQUIRES_OK(context, ToAbsl(CheckStacking(stacking_)));
  }

 protected:
  absl::Status Run(OpKernelContext* context) override {
    Triples triples;
    TF_RETURN_IF_ERROR(ReadTriples(context, &triples));
    std::vector<int64_t> begins;
    TF_RETURN_IF_ERROR(ToAbsl(StackTriples(stacking_, &triples, &begins)));
    OpOutputList samples, rows, gains;
    TF_RETURN_IF_ERROR(context->output_list("row_ids_list", &samples));
    TF_RETURN_IF_ERROR(context->output_list("col_ids_list", &rows));
    TF_RETURN_IF_ERROR(context->output_list("gains_list", &gains));
    for (int i = 0; i < stacking_.sc_per_chip; ++i) {
      const int64_t begin = At(begins, i), size = At(begins, i + 1) - begin;
      Tensor* tensor;
      TF_RETURN_IF_ERROR(NewVector(&samples, i, size, &tensor));
      std::copy_n(triples.samples.data() + begin, size, Ints(tensor));
      TF_RETURN_IF_ERROR(NewVector(&rows, i, size, &tensor));
      std::copy_n(triples.rows.data() + begin, size, Ints(tensor));
      TF_RETURN_IF_ERROR(NewVector(&gains, i, size, &tensor));
      std::copy_n(triples.gains.data() + begin, size, Floats(tensor));
    }
    return absl::OkStatus();
  }

 private:
  CooStacking stacking_{};
};

OPWRIGHT_REGISTER_CPU("ConvertToCooTensor", CooOp);
OPWRIGHT_REGISTER_CPU("ConvertToListOfSparseCoreCooTensors", ListOfCooOp);

}  // namespace
}  // namespace opwright::sparsecore
