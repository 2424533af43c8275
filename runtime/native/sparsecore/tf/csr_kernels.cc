// The op that packs sorted COO tensors into the buffers of a lookup.
#include <cstdint>
#include <string>
#include <vector>

#include "base/text.h"
#include "base/tf/register.h"
#include "base/tf/status.h"
#include "sparsecore/csr.h"
#include "sparsecore/limits.h"
#include "sparsecore/tf/kernel.h"
#include "sparsecore/tf/pack_kernel.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/logging.h"

namespace opwright::sparsecore {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class CsrOp : public PackKernel {
 public:
  explicit CsrOp(OpKernelConstruction* context)
      : PackKernel(context, {"sample_count_per_sc", "num_sc_per_chip"}) {
    OP_REQUIRES_OK(context, context->GetAttr("table_name", &table_));
    OP_REQUIRES_OK(context, context->GetAttr("allow_id_dropping", &drop_));
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
      if (given == cores()) continue;
      return Invalid("id_counts_list", StrCat("there must be one of each list for each of the ",
                                              cores(), " SparseCores, are ", given));
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
    const int64_t splits = JoinedSplits(*splits_tensor);
    TF_RETURN_IF_ERROR(ToAbsl(CheckCsrSources(shape(), splits, sources)));
    CsrBuffers buffers{};
    TF_RETURN_IF_ERROR(Pack(context, splits, sources, &buffers));
    if (buffers.dropped > 0) {
      if (!drop_) {
        return TooSmall(buffers,
                        ", or set allow_id_dropping to drop the triples that do not fit");
      }
      Count(buffers);
    }
    return WriteSizes(context, buffers, "num_minibatches_per_sc");
  }

 private:
  // Counts what a batch drops. The first batch of a table that drops ids says so.
  void Count(const CsrBuffers& buffers) const {
    const int64_t least = LeastPerSample(buffers);
    if (!AddDroppedIds(table_, buffers.dropped, least)) return;
    LOG(WARNING) << "table " << table_ << ": a batch dropped " << buffers.dropped
                 << " ids, because max_ids_per_chip_per_sample=" << per_sample()
                 << " gives it space for " << shape().capacity
                 << ", padding included. This batch fits with max_ids_per_chip_per_sample="
                 << least << ". Further ids are dropped without a warning, and counted by "
                 << "opwright.tpu.sparsecore_dropped_ids()";
  }

  std::string table_;
  bool drop_ = false;
};

OPWRIGHT_REGISTER_CPU("ConvertToSparseCoreCsrWrappedCooTensor", CsrOp);

}  // namespace
}  // namespace opwright::sparsecore
