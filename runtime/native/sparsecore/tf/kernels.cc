// The SparseCore ops on the CPU: preprocessing, lookups, updates. Arguments are checked and
// core is called.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/tf/device_context.h"
#include "base/tf/register.h"
#include "base/tf/status.h"
#include "embedding/cpu/rows.h"
#include "sparsecore/formats.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/logging.h"

namespace opwright::sparsecore {
namespace {

using embedding::Combiner;
using embedding::Hyper;
using embedding::kMaxHyper;
using embedding::Number;
using embedding::Optimizer;
using embedding::Quantization;
using embedding::Range;
using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// What a device has where nothing says otherwise: TPUEmbeddingV2 takes the same number when
// the hardware does not tell.
constexpr int64_t kSparseCoresPerDevice = 4;
// Samples, rows and positions are counted in int32.
constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

absl::Status CheckRank(const char* name, const Tensor& tensor, int rank) {
  if (tensor.dims() == rank) return absl::OkStatus();
  return Invalid(name, "must be of rank " + std::to_string(rank) + ", has the shape " +
                           tensor.shape().DebugString());
}

absl::Status CheckShape(const std::string& name, const Tensor& tensor, const TensorShape& shape,
                        const char* like) {
  if (tensor.shape() == shape) return absl::OkStatus();
  return Invalid(name, "must have the shape " + shape.DebugString() + ", as " + like +
                           ", has " + tensor.shape().DebugString());
}

// An op that returns what is wrong.
class Kernel : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override { OP_REQUIRES_OK(context, Run(context)); }

 protected:
  virtual absl::Status Run(OpKernelContext* context) = 0;
};

int64_t IntAttr(OpKernelConstruction* context, const char* name) {
  int64_t value = 0;
  context->SetStatus(context->GetAttr(name, &value));
  return value;
}

// Of a context or a list of outputs, with one size.
template <class Outputs>
absl::Status NewVector(Outputs* outputs, int i, int64_t size, Tensor** tensor) {
  TensorShape shape;
  TF_RETURN_IF_ERROR(TensorShape::BuildTensorShape({size}, &shape));
  if constexpr (std::is_same_v<Outputs, OpOutputList>) {
    return outputs->allocate(i, shape, tensor);
  } else {
    return outputs->allocate_output(i, shape, tensor);
  }
}

int32_t* Ints(Tensor* tensor) { return tensor->flat<int32_t>().data(); }
const int32_t* Ints(const Tensor& tensor) { return tensor.flat<int32_t>().data(); }
float* Floats(Tensor* tensor) { return tensor->flat<float>().data(); }
const float* Floats(const Tensor& tensor) { return tensor.flat<float>().data(); }

absl::Status SetScalar(OpKernelContext* context, const char* name, int64_t value) {
  Tensor* tensor;
  TF_RETURN_IF_ERROR(context->allocate_output(name, TensorShape({}), &tensor));
  tensor->flat<int32_t>()(0) = static_cast<int32_t>(value);
  return absl::OkStatus();
}

// ---- Preprocessing.

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
    OP_REQUIRES(
        context, sample_count_ >= 1 && sample_count_ <= kMaxInt,
        Invalid("sample_count", "must be at least 1 and at most " + std::to_string(kMaxInt) +
                                    ", is " + std::to_string(sample_count_)));
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
      return Invalid("weights", "must be a scalar or have one weight for each of the " +
                                    std::to_string(feature.id_count) + " ids, has the shape " +
                                    weights.shape().DebugString());
    }
    const std::string has = ", has the shape " + indices.shape().DebugString();
    if (indices.dims() == 2) {
      feature.form = CooFeature::kSparse;
      if (indices.dim_size(0) != feature.id_count || indices.dim_size(1) != 2) {
        return Invalid("indices_or_row_splits", "indices must have the shape [" +
                                                    std::to_string(feature.id_count) +
                                                    ",2], two for each of values" + has);
      }
    } else if (indices.dims() == 1 && indices.dim_size(0) > 0) {
      feature.form = CooFeature::kRagged;
      if (indices.dim_size(0) != sample_count_ + 1) {
        return Invalid("indices_or_row_splits", "row splits must have the shape [" +
                                                    std::to_string(sample_count_ + 1) +
                                                    "], sample_count + 1" + has);
      }
    } else if (indices.dims() == 1) {
      feature.form = CooFeature::kDense;
      if (feature.id_count != 0 && feature.id_count != sample_count_) {
        return Invalid("values", "a dense feature must have " + std::to_string(sample_count_) +
                                     " ids, as sample_count says, or none, has " +
                                     std::to_string(feature.id_count));
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
      const int64_t begin = ItemOf(begins, i), size = ItemOf(begins, i + 1) - begin;
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

absl::Status ReadTripleLists(const OpInputList& samples, const OpInputList& rows,
                             const OpInputList& gains, const char* const (&names)[3],
                             std::vector<TriplesView>* views) {
  for (int i = 0; i < samples.size(); ++i) {
    const Tensor* const tensors[] = {&samples[i], &rows[i], &gains[i]};
    for (int k = 0; k < 3; ++k) {
      const std::string name = std::string(names[k]) + "[" + std::to_string(i) + "]";
      TF_RETURN_IF_ERROR(CheckRank(name.c_str(), *tensors[k], 1));
      TF_RETURN_IF_ERROR(CheckShape(name, *tensors[k], samples[i].shape(), names[0]));
    }
    views->push_back(
        {Ints(samples[i]), Ints(rows[i]), Floats(gains[i]), samples[i].dim_size(0)});
  }
  return absl::OkStatus();
}

// The features of a SparseCore that look up the same stacked table.
class StackedFeaturesKernel : public Kernel {
 public:
  explicit StackedFeaturesKernel(OpKernelConstruction* context)
      : Kernel(context), vocabulary_(IntAttr(context, "table_vocab_size")) {
    std::vector<int32_t> counts;
    OP_REQUIRES_OK(context, context->GetAttr("sample_count_list", &counts));
    OP_REQUIRES_OK(context, context->GetAttr("col_offset_list", &col_offsets_));
    const int64_t features = IntAttr(context, "N");
    for (const auto& [name, size] : {std::pair("sample_count_list", counts.size()),
                                     std::pair("col_offset_list", col_offsets_.size())}) {
      OP_REQUIRES(
          context, static_cast<int64_t>(size) == features,
          Invalid(name, "must have one element for each of the " + std::to_string(features) +
                            " features, has " + std::to_string(size)));
    }
    Checked samples = 0;
    for (const int32_t count : counts) {
      OP_REQUIRES(context, count >= 0,
                  Invalid("sample_count_list",
                          "must not have negative elements, has " + std::to_string(count)));
      samples += count;
    }
    OP_REQUIRES(
        context, samples.AtMost(kMaxInt),
        Invalid("sample_count_list", "must sum up to at most " + std::to_string(kMaxInt) +
                                         ", makes " + std::to_string(samples.value())));
    samples_ = samples.value();
    OP_REQUIRES(context, samples_ > 0,
                Invalid("sample_count_list", "must sum up to at least 1, is all 0"));
    const int64_t replicas = IntAttr(context, "num_replica");
    const int64_t cores = IntAttr(context, "num_sc_per_chip");
    if (!context->status().ok()) return;
    const Checked shards = Checked(replicas) * cores;
    OP_REQUIRES(context, replicas >= 1 && cores >= 1 && shards.AtMost(kMaxShards),
                Invalid("num_replica", "times num_sc_per_chip must be at least 1 and at most " +
                                           std::to_string(kMaxShards) + ", is " +
                                           std::to_string(replicas) + " times " +
                                           std::to_string(cores)));
    shards_ = shards.value();
    OP_REQUIRES(context, (shards_ & (shards_ - 1)) == 0,
                absl::FailedPreconditionError(
                    "num_replica: times num_sc_per_chip must be a power of two, is " +
                    std::to_string(shards_)));
  }

 protected:
  absl::Status Merge(OpKernelContext* context, ShardedTriples* merged) const {
    OpInputList samples, rows, gains;
    TF_RETURN_IF_ERROR(context->input_list("row_ids_list", &samples));
    TF_RETURN_IF_ERROR(context->input_list("col_ids_list", &rows));
    TF_RETURN_IF_ERROR(context->input_list("gains_list", &gains));
    std::vector<TriplesView> features;
    TF_RETURN_IF_ERROR(ReadTripleLists(
        samples, rows, gains, {"row_ids_list", "col_ids_list", "gains_list"}, &features));
    return ToAbsl(MergeFeatures(features, col_offsets_, shards_, vocabulary_, merged));
  }

  int64_t samples() const { return samples_; }

 private:
  // Far beyond any pod; it bounds what is counted for each shard.
  static constexpr int64_t kMaxShards = 1 << 20;

  const int64_t vocabulary_;
  std::vector<int32_t> col_offsets_;
  int64_t samples_ = 0, shards_ = 1;
};

class SortOp : public StackedFeaturesKernel {
 public:
  explicit SortOp(OpKernelConstruction* context)
      : StackedFeaturesKernel(context),
        max_ids_(IntAttr(context, "max_ids_per_sparse_core")),
        max_distinct_(IntAttr(context, "max_unique_ids_per_sparse_core")) {
    OP_REQUIRES_OK(context, context->GetAttr("table_name", &table_));
  }

 protected:
  absl::Status Run(OpKernelContext* context) override {
    ShardedTriples merged;
    TF_RETURN_IF_ERROR(Merge(context, &merged));
    TF_RETURN_IF_ERROR(CheckLimit("max_ids_per_sparse_core", max_ids_, merged.ids));
    TF_RETURN_IF_ERROR(
        CheckLimit("max_unique_ids_per_sparse_core", max_distinct_, merged.distinct_rows));
    const int64_t size = merged.triples.size();
    Tensor *sorted_samples, *sorted_rows, *sorted_gains, *id_counts;
    TF_RETURN_IF_ERROR(NewVector(context, 0, size, &sorted_samples));
    TF_RETURN_IF_ERROR(NewVector(context, 1, size, &sorted_rows));
    TF_RETURN_IF_ERROR(NewVector(context, 2, size, &sorted_gains));
    TF_RETURN_IF_ERROR(
        NewVector(context, 3, static_cast<int64_t>(merged.ids.size()) + 1, &id_counts));
    DealToShards(merged, samples(), Ints(id_counts), Ints(sorted_samples), Ints(sorted_rows),
                 Floats(sorted_gains));
    return absl::OkStatus();
  }

 private:
  absl::Status CheckLimit(const char* name, int64_t limit,
                          const std::vector<int32_t>& counts) const {
    const auto most = std::max_element(counts.begin(), counts.end());
    if (*most <= limit) return absl::OkStatus();
    return Invalid(name, "is " + std::to_string(limit) + " for the table " + table_ +
                             ", shard " + std::to_string(most - counts.begin()) +
                             " is asked for " + std::to_string(*most));
  }

  const int64_t max_ids_, max_distinct_;
  std::string table_;
};

class StatsOp : public StackedFeaturesKernel {
 public:
  using StackedFeaturesKernel::StackedFeaturesKernel;

 protected:
  absl::Status Run(OpKernelContext* context) override {
    ShardedTriples merged;
    TF_RETURN_IF_ERROR(Merge(context, &merged));
    const auto most = [](const std::vector<int32_t>& counts) {
      return *std::max_element(counts.begin(), counts.end());
    };
    TF_RETURN_IF_ERROR(SetScalar(context, "max_ids_per_sparse_core", most(merged.ids)));
    return SetScalar(context, "max_unique_ids_per_sparse_core", most(merged.distinct_rows));
  }
};

class CsrOp : public Kernel {
 public:
  explicit CsrOp(OpKernelConstruction* context)
      : Kernel(context), cores_(IntAttr(context, "num_sc_per_chip")) {
    shape_.max_minibatches = IntAttr(context, "max_minibatches_per_sc");
    const int64_t replicas = IntAttr(context, "num_replica");
    const int64_t per_sample = IntAttr(context, "max_ids_per_chip_per_sample");
    const int64_t samples = IntAttr(context, "sample_count_per_sc");
    OP_REQUIRES_OK(context, context->GetAttr("table_name", &table_));
    OP_REQUIRES_OK(context, context->GetAttr("allow_id_dropping", &drop_));
    OP_REQUIRES_OK(context, Product("num_replica", {replicas, cores_}, &shape_.shards));
    OP_REQUIRES_OK(context, Product("max_ids_per_chip_per_sample",
                                    {per_sample, samples, cores_}, &shape_.capacity));
    OP_REQUIRES_OK(context,
                   Product("max_minibatches_per_sc",
                           {shape_.max_minibatches, cores_, shape_.stride()}, &pointers_));
  }

 protected:
  absl::Status Run(OpKernelContext* context) override {
    OpInputList samples, rows, gains, id_counts;
    TF_RETURN_IF_ERROR(context->input_list("sorted_row_ids_list", &samples));
    TF_RETURN_IF_ERROR(context->input_list("sorted_col_ids_list", &rows));
    TF_RETURN_IF_ERROR(context->input_list("sorted_gains_list", &gains));
    TF_RETURN_IF_ERROR(context->input_list("id_counts_list", &id_counts));
    std::vector<TriplesView> triples;
    TF_RETURN_IF_ERROR(ReadTripleLists(
        samples, rows, gains,
        {"sorted_row_ids_list", "sorted_col_ids_list", "sorted_gains_list"}, &triples));
    for (const int given : {samples.size(), id_counts.size()}) {
      if (given == cores_) continue;
      return Invalid("id_counts_list", "there must be one of each list for each of the " +
                                           std::to_string(cores_) + " SparseCores, are " +
                                           std::to_string(given));
    }
    // Copied, so that nobody changes them after the check.
    std::vector<std::vector<int32_t>> counts;
    std::vector<CsrSource> sources;
    for (int i = 0; i < id_counts.size(); ++i) {
      const int32_t* const from = Ints(id_counts[i]);
      counts.emplace_back(from, from + id_counts[i].NumElements());
      sources.push_back({triples[static_cast<size_t>(i)], counts.back().data(),
                         static_cast<int64_t>(counts.back().size())});
    }
    const Tensor* splits_tensor;
    TF_RETURN_IF_ERROR(context->input("splits", &splits_tensor));
    const auto given = splits_tensor->flat<int64_t>();
    int64_t splits = 0;
    for (int64_t i = 0; i < given.size(); ++i) splits |= given(i);
    TF_RETURN_IF_ERROR(ToAbsl(CheckCsrSources(shape_, splits, sources)));

    Tensor* outputs[4];
    for (int i = 0; i < 4; ++i) {
      TF_RETURN_IF_ERROR(
          NewVector(context, i, i == 0 ? pointers_ : shape_.capacity, &outputs[i]));
    }
    CsrBuffers buffers{};
    buffers.row_pointers = Ints(outputs[0]);
    buffers.samples = Ints(outputs[1]);
    buffers.rows = Ints(outputs[2]);
    buffers.gains = Floats(outputs[3]);
    TF_RETURN_IF_ERROR(ToAbsl(PackCsr(shape_, splits, drop_, sources, &buffers)));
    if (buffers.dropped > 0) {
      LOG(WARNING) << "table " << table_ << ": dropped " << buffers.dropped
                   << " triples, for which max_ids_per_chip_per_sample makes no room";
    }
    TF_RETURN_IF_ERROR(
        SetScalar(context, "row_pointers_unpadded_size", buffers.row_pointers_size));
    TF_RETURN_IF_ERROR(SetScalar(context, "ids_unpadded_size", buffers.ids_size));
    return SetScalar(context, "num_minibatches_per_sc", buffers.minibatches);
  }

 private:
  static absl::Status Product(const char* name, const std::vector<int64_t>& factors,
                              int64_t* product) {
    Checked checked = 1;
    for (const int64_t factor : factors) {
      if (factor < 1) {
        return Invalid(name, "and what it is multiplied by must be at least 1, one is " +
                                 std::to_string(factor));
      }
      checked *= factor;
    }
    if (!checked.AtMost(kMaxInt)) {
      return Invalid(name, "makes a buffer too large for int32 positions, is " +
                               std::to_string(factors[0]));
    }
    *product = checked.value();
    return absl::OkStatus();
  }

  const int64_t cores_;
  CsrShape shape_{};
  int64_t pointers_ = 0;
  std::string table_;
  bool drop_ = false;
};

// ---- Lookups and updates.

// The buffers of a lookup, which its backward pass takes again.
class CsrKernel : public Kernel {
 public:
  explicit CsrKernel(OpKernelConstruction* context)
      : Kernel(context), cores_(IntAttr(context, "num_sparsecores_per_device")) {
    if (cores_ == -1) cores_ = kSparseCoresPerDevice;
    OP_REQUIRES(context, cores_ > 0 && (cores_ & (cores_ - 1)) == 0,
                Invalid("num_sparsecores_per_device",
                        "must be -1 or a power of two, is " + std::to_string(cores_)));
    if (context->HasAttr("max_ids_per_sparse_core")) {
      limits_.ids = IntAttr(context, "max_ids_per_sparse_core");
      limits_.distinct_rows = IntAttr(context, "max_unique_ids_per_sparse_core");
    }
  }

 protected:
  absl::Status CheckTable(const Tensor& table) const {
    TF_RETURN_IF_ERROR(CheckRank("embedding_table", table, 2));
    if (table.dim_size(0) % cores_ == 0 && table.dim_size(0) <= kMaxInt) {
      return absl::OkStatus();
    }
    return Invalid("embedding_table", "the number of rows must be a multiple of " + Cores() +
                                          ", has the shape " + table.shape().DebugString());
  }

  absl::Status Read(OpKernelContext* context, const char* samples_from, int64_t samples,
                    int64_t table_rows, Triples* triples) const {
    if (samples < 0 || samples % cores_ != 0 || samples > kMaxInt) {
      return Invalid(samples_from, "the number of samples must be a multiple of " + Cores() +
                                       ", is " + std::to_string(samples));
    }
    const char* const names[] = {"row_pointers", "sorted_sample_ids", "sorted_token_ids",
                                 "sorted_gains"};
    for (int i = 0; i < 4; ++i) {
      TF_RETURN_IF_ERROR(CheckRank(names[i], context->input(i), 1));
    }
    for (int i = 2; i < 4; ++i) {
      TF_RETURN_IF_ERROR(CheckShape(names[i], context->input(i), context->input(1).shape(),
                                    "sorted_sample_ids"));
    }
    const Tensor* minibatches;
    const char* const name = "num_minibatches_per_physical_sparse_core";
    TF_RETURN_IF_ERROR(context->input(name, &minibatches));
    TF_RETURN_IF_ERROR(CheckRank(name, *minibatches, 0));
    const CsrView csr{Ints(context->input(0)),
                      context->input(0).dim_size(0),
                      {Ints(context->input(1)), Ints(context->input(2)),
                       Floats(context->input(3)), context->input(1).dim_size(0)},
                      minibatches->flat<int32_t>()(0),
                      cores_,
                      limits_};
    return ToAbsl(ReadCsr(csr, samples, table_rows, triples));
  }

 private:
  std::string Cores() const {
    return "the device's SparseCores, " + std::to_string(cores_) + ", and fewer than 2^31";
  }

  int64_t cores_;
  CsrLimits limits_;
};

template <class T>
class LookupOp : public CsrKernel {
 public:
  explicit LookupOp(OpKernelConstruction* context)
      : CsrKernel(context), samples_(IntAttr(context, "input_size")) {
    float& low = quantization_.lower;
    float& high = quantization_.upper;
    OP_REQUIRES_OK(context, context->GetAttr("quantization_config_low", &low));
    OP_REQUIRES_OK(context, context->GetAttr("quantization_config_high", &high));
    quantization_.buckets = IntAttr(context, "quantization_config_num_buckets");
    quantization_.enabled = quantization_.buckets != 0;
    if (!quantization_.enabled) return;
    OP_REQUIRES(
        context, (std::is_same_v<T, float>),
        Invalid("quantization_config_num_buckets",
                "must be 0 for tables of int32, is " + std::to_string(quantization_.buckets)));
    OP_REQUIRES(
        context, quantization_.buckets > 1,
        Invalid("quantization_config_num_buckets",
                "must be 0 or at least 2, is " + std::to_string(quantization_.buckets)));
    OP_REQUIRES(context, quantization_.good(),
                Invalid("quantization_config_low",
                        "must be finite and below quantization_config_high, as far as float32 "
                        "can say; they are " +
                            Number(low) + " and " + Number(high)));
  }

 protected:
  absl::Status Run(OpKernelContext* context) override {
    const Tensor& table = context->input(4);
    TF_RETURN_IF_ERROR(CheckTable(table));
    Triples triples;
    TF_RETURN_IF_ERROR(Read(context, "input_size", samples_, table.dim_size(0), &triples));
    const int64_t width = table.dim_size(1);
    TensorShape shape;
    TF_RETURN_IF_ERROR(TensorShape::BuildTensorShape({samples_, width}, &shape));
    Tensor* activations;
    TF_RETURN_IF_ERROR(context->allocate_output(0, shape, &activations));
    const T* const from = table.flat<T>().data();
    T* const to = activations->flat<T>().data();
    DeviceContext exec(context);
    if constexpr (std::is_same_v<T, float>) {
      SumRows(triples, from, width, quantization_, samples_, to, exec);
      return absl::OkStatus();
    } else {
      return ToAbsl(SumRows(triples, from, width, samples_, to, exec));
    }
  }

 private:
  const int64_t samples_;
  Quantization quantization_;
};

// What the ops call an optimizer's slots and hyperparameters, which lie in the order of
// OptimizerFacts. A hyperparameter is an attr or an input; null: these ops do not have it.
struct Names {
  Optimizer optimizer;
  const char* slots[2];
  const char* hyper[kMaxHyper];
};
constexpr Names kGradientNames[] = {
    {Optimizer::kSgd, {}, {}},
    {Optimizer::kAdagrad, {"accumulator"}, {}},
    {Optimizer::kAdagradMomentum,
     {"accumulator", "momenta"},
     {"beta1", "use_nesterov", "exponent", "beta2", "epsilon"}},
    {Optimizer::kAdam,
     {"momenta", "velocity"},
     {"beta1", "beta2", "epsilon", nullptr, "use_sum_inside_sqrt"}},
    {Optimizer::kFtrl,
     {"accumulator", "linear"},
     {"l1_regularization_strength", "l2_regularization_strength", "learning_rate_power", "beta",
      "multiply_linear_by_learning_rate"}},
};
constexpr Names kRowNames[] = {
    {Optimizer::kSgd, {}, {}},
    {Optimizer::kAdagrad, {"accumulator"}, {}},
    {Optimizer::kAdagradMomentum,
     {"accumulator", "momentum"},
     {"beta_1", "use_nesterov", "exponent", "beta_2", "epsilon"}},
    {Optimizer::kAdam,
     {"momentum", "velocity"},
     {"beta_1", "beta_2", "epsilon", nullptr, "use_sum_inside_sqrt"}},
    {Optimizer::kFtrl,
     {"accumulator", "linear"},
     {"l1_regularization_strength", "l2_regularization_strength", "learning_rate_power", "beta",
      "multiply_linear_by_learning_rate"}},
};

// A table and its slots, updated in place where nobody else holds them.
class Update {
 public:
  Update(OpKernelConstruction* context, const Names& names) : names_(names) {
    for (int i = 0; i < kMaxHyper; ++i) {
      const char* const name = names.hyper[i];
      if (!name || !context->HasAttr(name)) continue;
      bool flag;
      if (context->GetAttr(name, &flag).ok()) {
        attrs_.values[i] = flag;
      } else {
        OP_REQUIRES_OK(context, context->GetAttr(name, &attrs_.values[i]));
        OP_REQUIRES_OK(context, CheckHyper(i, attrs_.values[i]));
      }
      is_attr_[i] = true;
    }
    if (!context->HasAttr("clip_weight_min")) return;
    float (&clip)[2] = attrs_.clip_weight;
    OP_REQUIRES_OK(context, context->GetAttr("clip_weight_min", &clip[0]));
    OP_REQUIRES_OK(context, context->GetAttr("clip_weight_max", &clip[1]));
    OP_REQUIRES(context, Hyper::AreLimits(clip),
                Invalid("clip_weight_min",
                        "must not be above clip_weight_max, and finite numbers must lie "
                        "between; they are " +
                            Number(clip[0]) + " and " + Number(clip[1])));
  }

  // The input `gradients` is [samples of the triples, width].
  absl::Status Apply(OpKernelContext* context, const Triples& triples,
                     const char* gradients_name) const {
    const Tensor* gradients;
    TF_RETURN_IF_ERROR(context->input(gradients_name, &gradients));
    DeviceContext exec(context);
    const auto wrong = embedding::FindOutside(exec, Range::kFinite, gradients->NumElements(),
                                              Floats(*gradients));
    if (wrong) {
      const int64_t width = gradients->dim_size(1);
      return Invalid(gradients_name, "must be finite, that of sample " +
                                         std::to_string(wrong->at / width) + ", column " +
                                         std::to_string(wrong->at % width) + " is " +
                                         Number(wrong->value));
    }
    Hyper hyper = attrs_;
    TF_RETURN_IF_ERROR(ReadScalar(context, "learning_rate", &hyper.learning_rate));
    for (int i = 0; i < kMaxHyper; ++i) {
      if (!names_.hyper[i] || is_attr_[i]) continue;
      TF_RETURN_IF_ERROR(ReadScalar(context, names_.hyper[i], &hyper.values[i]));
      TF_RETURN_IF_ERROR(CheckHyper(i, hyper.values[i]));
    }
    const std::string wrong_rate = WrongRate(names_.optimizer, hyper);
    if (!wrong_rate.empty()) return Invalid("learning_rate", wrong_rate);
    std::vector<std::string> names = {"embedding_table"};
    for (const char* const slot : names_.slots) {
      if (slot) names.push_back(slot);
    }
    const Tensor* table;
    TF_RETURN_IF_ERROR(context->input(names[0], &table));
    // Kept, because forwarding may take the input away.
    const TensorShape shape = table->shape();
    for (const std::string& name : names) {
      const Tensor* tensor;
      TF_RETURN_IF_ERROR(context->input(name, &tensor));
      TF_RETURN_IF_ERROR(CheckShape(name, *tensor, shape, "embedding_table"));
    }
    std::vector<float*> tables;
    for (const std::string& name : names) {
      const Tensor* from;
      TF_RETURN_IF_ERROR(context->input(name, &from));
      const float* const source = Floats(*from);
      Tensor* to;
      TF_RETURN_IF_ERROR(
          context->forward_input_or_allocate_output({name}, "updated_" + name, shape, &to));
      if (Floats(to) != source) Copy(source, shape.num_elements(), Floats(to), exec);
      tables.push_back(Floats(to));
    }
    const auto refused = UpdateRows(triples, Floats(*gradients), shape.dim_size(1),
                                    names_.optimizer, hyper, tables.data(), exec);
    if (!refused) return absl::OkStatus();
    return Invalid(names[static_cast<size_t>(refused->table)],
                   "must be " + Words(refused->range) + " in rows that are updated, row " +
                       std::to_string(refused->row) + ", column " +
                       std::to_string(refused->column) + " is " + Number(refused->value));
  }

 private:
  static absl::Status ReadScalar(OpKernelContext* context, const char* name, float* value) {
    const Tensor* tensor;
    TF_RETURN_IF_ERROR(context->input(name, &tensor));
    TF_RETURN_IF_ERROR(CheckRank(name, *tensor, 0));
    *value = tensor->scalar<float>()();
    return absl::OkStatus();
  }

  absl::Status CheckHyper(int i, float value) const {
    const Range range = embedding::FactsOf(names_.optimizer).hyper[i].range;
    if (Within(range, value)) return absl::OkStatus();
    return Invalid(names_.hyper[i], "must be " + Words(range) + ", is " + Number(value));
  }

  static void Copy(const float* from, int64_t count, float* to, ExecutionContext& exec) {
    constexpr int64_t kBlock = 1 << 18;
    exec.For((count + kBlock - 1) / kBlock, [&](int64_t i) {
      std::copy_n(from + i * kBlock, std::min(kBlock, count - i * kBlock), to + i * kBlock);
    });
  }

  const Names& names_;
  Hyper attrs_;
  bool is_attr_[kMaxHyper] = {};
};

template <Optimizer kOptimizer>
class GradientOp : public CsrKernel {
 public:
  explicit GradientOp(OpKernelConstruction* context)
      : CsrKernel(context), update_(context, kGradientNames[static_cast<int>(kOptimizer)]) {
    static_assert(kGradientNames[static_cast<int>(kOptimizer)].optimizer == kOptimizer);
  }

 protected:
  absl::Status Run(OpKernelContext* context) override {
    const Tensor *table, *gradients;
    TF_RETURN_IF_ERROR(context->input("embedding_table", &table));
    TF_RETURN_IF_ERROR(context->input("activation_gradients", &gradients));
    TF_RETURN_IF_ERROR(CheckTable(*table));
    TF_RETURN_IF_ERROR(CheckRank("activation_gradients", *gradients, 2));
    if (gradients->dim_size(1) != table->dim_size(1)) {
      return Invalid("activation_gradients", "must be as wide as embedding_table, which has " +
                                                 std::to_string(table->dim_size(1)) +
                                                 " columns, has the shape " +
                                                 gradients->shape().DebugString());
    }
    Triples triples;
    TF_RETURN_IF_ERROR(Read(context, "activation_gradients", gradients->dim_size(0),
                            table->dim_size(0), &triples));
    return update_.Apply(context, triples, "activation_gradients");
  }

 private:
  const Update update_;
};

template <Optimizer kOptimizer>
class RowsOp : public Kernel {
 public:
  explicit RowsOp(OpKernelConstruction* context)
      : Kernel(context),
        update_(context, kRowNames[static_cast<int>(kOptimizer)]),
        width_(IntAttr(context, "feature_width")) {
    static_assert(kRowNames[static_cast<int>(kOptimizer)].optimizer == kOptimizer);
  }

 protected:
  absl::Status Run(OpKernelContext* context) override {
    const Tensor *table, *indices, *gradient;
    TF_RETURN_IF_ERROR(context->input("embedding_table", &table));
    TF_RETURN_IF_ERROR(context->input("indices", &indices));
    TF_RETURN_IF_ERROR(context->input("gradient", &gradient));
    TF_RETURN_IF_ERROR(CheckRank("embedding_table", *table, 2));
    if (table->dim_size(1) != width_) {
      return Invalid("embedding_table", "must have feature_width columns, which is " +
                                            std::to_string(width_) + ", has the shape " +
                                            table->shape().DebugString());
    }
    TF_RETURN_IF_ERROR(CheckRank("indices", *indices, 1));
    const int64_t count = indices->dim_size(0);
    TF_RETURN_IF_ERROR(CheckRank("gradient", *gradient, 2));
    if (gradient->dim_size(0) != count || gradient->dim_size(1) != width_) {
      return Invalid("gradient", "must have the shape [" + std::to_string(count) + "," +
                                     std::to_string(width_) +
                                     "], as indices and feature_width say, has " +
                                     gradient->shape().DebugString());
    }
    Triples triples;
    TF_RETURN_IF_ERROR(
        ToAbsl(RowsToTriples(Ints(*indices), count, table->dim_size(0), &triples)));
    return update_.Apply(context, triples, "gradient");
  }

 private:
  const Update update_;
  const int64_t width_;
};

OPWRIGHT_REGISTER_CPU("ConvertToCooTensor", CooOp);
OPWRIGHT_REGISTER_CPU("ConvertToListOfSparseCoreCooTensors", ListOfCooOp);
OPWRIGHT_REGISTER_CPU("SortListOfSparseCoreCooTensors", SortOp);
OPWRIGHT_REGISTER_CPU("GetStatsFromListOfSparseCoreCooTensors", StatsOp);
OPWRIGHT_REGISTER_CPU("ConvertToSparseCoreCsrWrappedCooTensor", CsrOp);

#define REGISTER_LOOKUP(T)                                                         \
  OPWRIGHT_REGISTER_KERNEL("XlaSparseDenseMatmulWithCsrInput",                     \
                           .Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), \
                           LookupOp<T>)
REGISTER_LOOKUP(float);
REGISTER_LOOKUP(int32_t);
OPWRIGHT_REGISTER_CPU("XlaSparseDenseMatmulWithStaticBufferSize", LookupOp<float>);

#define REGISTER_UPDATES(NAME)                                                      \
  OPWRIGHT_REGISTER_CPU("XlaSparseDenseMatmulGradWith" #NAME "AndCsrInput",         \
                        GradientOp<Optimizer::k##NAME>);                            \
  OPWRIGHT_REGISTER_CPU("XlaSparseDenseMatmulGradWith" #NAME "AndStaticBufferSize", \
                        GradientOp<Optimizer::k##NAME>);                            \
  OPWRIGHT_REGISTER_CPU("XlaSparseCore" #NAME, RowsOp<Optimizer::k##NAME>)
REGISTER_UPDATES(Sgd);
REGISTER_UPDATES(Adagrad);
REGISTER_UPDATES(AdagradMomentum);
REGISTER_UPDATES(Adam);
REGISTER_UPDATES(Ftrl);

}  // namespace
}  // namespace opwright::sparsecore
