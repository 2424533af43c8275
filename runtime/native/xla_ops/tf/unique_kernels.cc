// Kernels for XLA of UniqueWithCounts. The sizes of their results are dynamic.
#include <cstdint>
#include <numeric>
#include <utility>

#include "base/tf/register_xla.h"
#include "base/tf/xla_call.h"
#include "xla_ops/tf/types.h"
#include "xla_ops/xla/unique.h"

namespace opwright::xla_ops {
namespace {

class UniqueKernel : public XlaKernel {
 public:
  using XlaKernel::XlaKernel;

 protected:
  absl::Status FindAlong(XlaCall* call, int64_t axis) const {
    const Sizes& shape = call->shape(0);
    const int64_t size = shape[static_cast<size_t>(axis)];
    if (size > INT32_MAX || call->count(0) > INT32_MAX) {
      return call->Refuse(0, "must have less than 2^31 elements");
    }
    const xla::PrimitiveType index = call->context()->output_xla_type(1);
    if (size == 0) {
      call->Set(0, call->input(0));
      for (const int i : {1, 2}) call->Set(i, Zeros(call->builder(), index, {0}));
      return absl::OkStatus();
    }
    Sizes order(shape.size());
    std::iota(order.begin(), order.end(), 0);
    std::swap(order[0], order[static_cast<size_t>(axis)]);
    const auto as_index = [&](xla::XlaOp x) { return xla::ConvertElementType(x, index); };
    if (size == 1 || call->count(0) == 0) {  // All are one. XLA has no dynamic size of 1.
      call->Set(0, xla::SliceInDim(call->input(0), 0, 1, 1, axis));
      call->Set(1, Zeros(call->builder(), index, {size}));
      call->Set(2, as_index(xla::ConstantR1<int64_t>(call->builder(), {size})));
      return absl::OkStatus();
    }
    const Unique made = FindUnique(xla::Transpose(call->input(0), order));
    call->Set(0, xla::SetDimensionSize(xla::Transpose(made.rows, order), made.size, axis));
    call->Set(1, as_index(made.indices));
    call->Set(2, xla::SetDimensionSize(as_index(made.counts), made.size, 0));
    return absl::OkStatus();
  }
};

class UniqueWithCountsOp : public UniqueKernel {
 public:
  using UniqueKernel::UniqueKernel;

 protected:
  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(call->WantRank(0, 1));
    return FindAlong(call, 0);
  }
};

class UniqueWithCountsV2Op : public UniqueKernel {
 public:
  using UniqueKernel::UniqueKernel;

 protected:
  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(call->WantRank(1, 1));
    Sizes axes;
    TF_RETURN_IF_ERROR(call->Known(1, &axes));
    if (axes.size() > 1) return call->Refuse(1, "must have at most one element");
    if (axes.empty()) {
      TF_RETURN_IF_ERROR(call->WantRank(0, 1));
      return FindAlong(call, 0);
    }
    const int64_t rank = call->rank(0);
    if (axes[0] < -rank || axes[0] >= rank) {
      return call->Refuse(
          1, StrCat("must lie between ", -rank, " and ", rank - 1, ", is ", axes[0]));
    }
    return FindAlong(call, axes[0] < 0 ? axes[0] + rank : axes[0]);
  }
};

constexpr tensorflow::DataType kUnique[] = {
    tensorflow::DT_BFLOAT16, tensorflow::DT_HALF,   tensorflow::DT_FLOAT,
    tensorflow::DT_DOUBLE,   tensorflow::DT_INT8,   tensorflow::DT_INT16,
    tensorflow::DT_INT32,    tensorflow::DT_INT64,  tensorflow::DT_UINT8,
    tensorflow::DT_UINT16,   tensorflow::DT_UINT32, tensorflow::DT_UINT64,
    tensorflow::DT_BOOL};

OPWRIGHT_REGISTER_XLA("UniqueWithCounts",
                      .TypeConstraint("T", kUnique).TypeConstraint("out_idx", kIndices),
                      UniqueWithCountsOp);
OPWRIGHT_REGISTER_XLA("UniqueWithCountsV2",
                      .TypeConstraint("T", kUnique).TypeConstraint("out_idx", kIndices),
                      UniqueWithCountsV2Op);

const bool kUniqueConstantsRegistered = RegisterXlaConstants({"UniqueWithCountsV2"}, {"axis"});

}  // namespace
}  // namespace opwright::xla_ops
