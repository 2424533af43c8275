// The op that packs sorted COO tensors into the buffers of a lookup.
#include <cstdint>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/text.h"
#include "base/tf/register.h"
#include "base/tf/status.h"
#include "sparsecore/csr.h"
#include "sparsecore/limits.h"
#include "sparsecore/tf/kernel.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/logging.h"

namespace opwright::sparsecore {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class CsrOp : public Kernel {
 public:
  explicit CsrOp(OpKernelConstruction* context)
      : Kernel(context), cores_(IntAttr(context, "num_sc_per_chip")) {
    shape_.max_minibatches = IntAttr(context, "max_minibatches_per_sc");
    const int64_t replicas = IntAttr(context, "num_replica");
    per_sample_ = IntAttr(context, "max_ids_per_chip_per_sample");
    const int64_t samples = IntAttr(context, "sample_count_per_sc");
    OP_REQUIRES_OK(context, context->GetAttr("table_name", &table_));
    OP_REQUIRES_OK(context, context->GetAttr("allow_id_dropping", &drop_));
    OP_REQUIRES_OK(context, Product("num_replica", {replicas, cores_}, &shape_.shards));
    OP_REQUIRES_OK(context, Product("max_ids_per_chip_per_sample",
                                    {per_sample_, samples, cores_}, &shape_.capacity));
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
      return Invalid("id_counts_list", StrCat("there must be one of each list for each of the ",
                                              cores_, " SparseCores, are ", given));
    }
    // The counts are copied, so that no other thread can change them after the check.
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
      Count(buffers);
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
        return Invalid(
            name, StrCat("and what it is multiplied by must be at least 1, one is ", factor));
      }
      checked *= factor;
    }
    if (!checked.AtMost(kMaxInt32)) {
      return Invalid(name,
                     StrCat("makes a buffer too large for int32 positions, is ", factors[0]));
    }
    *product = checked.value();
    return absl::OkStatus();
  }

  // Counts what a batch drops. The first batch of a table that drops ids says so.
  void Count(const CsrBuffers& buffers) const {
    const int64_t least =
        LeastPerSample(buffers.needed_size, shape_.capacity / per_sample_, per_sample_);
    if (!AddDroppedIds(table_, buffers.dropped, least)) return;
    LOG(WARNING) << "table " << table_ << ": a batch dropped " << buffers.dropped
                 << " ids, because max_ids_per_chip_per_sample=" << per_sample_
                 << " gives it space for " << shape_.capacity
                 << ", padding included. This batch fits with max_ids_per_chip_per_sample="
                 << least << ". Further ids are dropped without a warning, and counted by "
                 << "opwright.tpu.sparsecore_dropped_ids()";
  }

  const int64_t cores_;
  CsrShape shape_{};
  int64_t pointers_ = 0, per_sample_ = 1;
  std::string table_;
  bool drop_ = false;
};

OPWRIGHT_REGISTER_CPU("ConvertToSparseCoreCsrWrappedCooTensor", CsrOp);

}  // namespace
}  // namespace opwright::sparsecore
