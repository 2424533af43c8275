// OpwrightSparseCoreLimits checks the sorted ids of all SparseCores of a chip against the
// limits of TPUEmbeddingV2. The ops that sort and pack ids check the same limits. Each of them
// knows only a part of what an error should name.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/text.h"
#include "base/tf/register.h"
#include "base/tf/status.h"
#include "sparsecore/limits.h"
#include "sparsecore/tf/kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::sparsecore {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

REGISTER_OP("OpwrightSparseCoreLimits")
    .Input("sorted_col_ids_list: cores * int32")
    .Input("id_counts_list: cores * int32")
    .Output("checked: cores * int32")
    // The most ids, the most distinct rows, and the capacity.
    .Output("needs: int32")
    .Attr("cores: int >= 1")
    .Attr("samples: int >= 1")
    .Attr("max_ids: int >= 1")
    .Attr("max_unique_ids: int >= 1")
    .Attr("max_ids_per_chip_per_sample: int >= 1")
    .Attr("allow_id_dropping: bool")
    // For messages: the name of the stack, and what to call it.
    .Attr("stack: string")
    .Attr("where: string")
    // Otherwise TensorFlow packs constant ids only once, and counts dropped ids only once.
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      const int cores = context->num_inputs() / 2;
      for (int i = 0; i < cores; ++i) context->set_output(i, context->input(cores + i));
      context->set_output(cores, context->Vector(3));
      return absl::OkStatus();
    });

class LimitsOp : public Kernel {
 public:
  explicit LimitsOp(OpKernelConstruction* context)
      : Kernel(context),
        samples_(IntAttr(context, "samples")),
        max_ids_(IntAttr(context, "max_ids")),
        max_distinct_(IntAttr(context, "max_unique_ids")),
        per_sample_(IntAttr(context, "max_ids_per_chip_per_sample")) {
    OP_REQUIRES_OK(context, context->GetAttr("allow_id_dropping", &drop_));
    OP_REQUIRES_OK(context, context->GetAttr("stack", &stack_));
    OP_REQUIRES_OK(context, context->GetAttr("where", &where_));
    OP_REQUIRES(context, samples_ <= kMaxInt32 && per_sample_ <= kMaxInt32,
                Invalid("samples", "and max_ids_per_chip_per_sample must fit in int32"));
  }

 protected:
  absl::Status Run(OpKernelContext* context) override {
    OpInputList rows, id_counts;
    TF_RETURN_IF_ERROR(context->input_list("sorted_col_ids_list", &rows));
    TF_RETURN_IF_ERROR(context->input_list("id_counts_list", &id_counts));
    std::vector<SortedRows> of_cores;
    for (int i = 0; i < rows.size(); ++i) {
      TF_RETURN_IF_ERROR(CheckRank("sorted_col_ids_list", rows[i], 1));
      TF_RETURN_IF_ERROR(CheckRank("id_counts_list", id_counts[i], 1));
      const int32_t* const from = Ints(id_counts[i]);
      of_cores.push_back(
          {Ints(rows[i]), rows[i].dim_size(0), {from, from + id_counts[i].dim_size(0)}});
    }
    TF_RETURN_IF_ERROR(ToAbsl(CheckSortedRows(of_cores)));
    const Demand demand = MeasureDemand(of_cores);
    TF_RETURN_IF_ERROR(Check(demand));
    for (int i = 0; i < id_counts.size(); ++i) context->set_output(i, id_counts[i]);
    tensorflow::Tensor* needs;
    TF_RETURN_IF_ERROR(NewVector(context, id_counts.size(), 3, &needs));
    Ints(needs)[0] = static_cast<int32_t>(demand.ids.count);
    Ints(needs)[1] = static_cast<int32_t>(demand.distinct_rows.count);
    Ints(needs)[2] = static_cast<int32_t>(demand.capacity);
    return absl::OkStatus();
  }

 private:
  absl::Status Check(const Demand& demand) const {
    if (demand.ids.count > max_ids_) {
      return BeyondShard("max_ids_per_table", max_ids_, demand.ids, "ids", demand);
    }
    if (demand.distinct_rows.count > max_distinct_) {
      return BeyondShard("max_unique_ids_per_table", max_distinct_, demand.distinct_rows,
                         "distinct ids", demand);
    }
    const int64_t capacity = per_sample_ * samples_;
    if (demand.capacity > kMaxInt32) {
      return Invalid("features", StrCat(where_, " gets too many ids for int32 positions"));
    }
    if (demand.capacity > capacity && !drop_) {
      return Invalid(
          "max_ids_per_chip_per_sample",
          StrCat("is ", per_sample_, ", which gives ", where_, " space for ", capacity,
                 " ids, padding included; this batch needs ", demand.capacity,
                 ". Set SparseCoreEmbeddingConfig(max_ids_per_chip_per_sample=",
                 LeastPerSample(demand.capacity, samples_, per_sample_),
                 "), or drop the ids that do not fit with allow_id_dropping=True", kCompute));
    }
    return absl::OkStatus();
  }

  absl::Status BeyondShard(const char* name, int64_t limit, const Demand::Most& most,
                           const char* what, const Demand& demand) const {
    const int64_t ids = std::max(max_ids_, demand.ids.count);
    const int64_t distinct = std::max(max_distinct_, demand.distinct_rows.count);
    return Invalid(
        name,
        StrCat("is ", limit, " for ", where_, "; SparseCore ", most.core, " requests ",
               most.count, " ", what, " of shard ", most.shard,
               ". Set SparseCoreEmbeddingConfig(max_ids_per_table={'", stack_, "': ", ids,
               "}, max_unique_ids_per_table={'", stack_, "': ", distinct, "})", kCompute,
               drop_ ? ". Here as on a TPU, allow_id_dropping=True drops only the ids beyond "
                       "max_ids_per_chip_per_sample"
                     : ""));
  }

  static constexpr char kCompute[] =
      "; opwright.tpu.sparsecore_limits computes the numbers for a data set";

  const int64_t samples_, max_ids_, max_distinct_, per_sample_;
  bool drop_ = false;
  std::string stack_, where_;
};

OPWRIGHT_REGISTER_CPU("OpwrightSparseCoreLimits", LimitsOp);

}  // namespace
}  // namespace opwright::sparsecore
