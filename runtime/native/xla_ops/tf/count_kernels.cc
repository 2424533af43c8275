// Kernels for XLA of ops that count values.
#include <cstdint>

#include "base/tf/register_xla.h"
#include "base/tf/xla_call.h"
#include "xla_ops/tf/types.h"
#include "xla_ops/xla/counts.h"

namespace opwright::xla_ops {
namespace {

using tensorflow::OpKernelConstruction;

class HistogramFixedWidthOp : public XlaKernel {
 public:
  using XlaKernel::XlaKernel;

 protected:
  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(call->WantShape(1, {2}));
    int64_t bins;
    TF_RETURN_IF_ERROR(call->KnownSize(2, 1, &bins));
    TF_RETURN_IF_ERROR(call->CheckSize(call->NameOf(2), {bins}));
    const int64_t count = call->count(0);
    const xla::XlaOp values = xla::Reshape(call->input(0), {count});
    const xla::XlaOp at = HistogramBins(values, call->input(1), bins);
    const Binned spec = {1, bins, call->context()->output_xla_type(0), false};
    const xla::XlaOp made =
        CountInRows(spec, Zeros(call->builder(), xla::S32, {count}), at, nullptr);
    call->Set(0, xla::Reshape(made, {bins}));
    return absl::OkStatus();
  }
};

// What both ops for bins of rows do with their last inputs.
class RowBincountOp : public XlaKernel {
 public:
  explicit RowBincountOp(OpKernelConstruction* context) : XlaKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("binary_output", &binary_));
  }

 protected:
  // `values`, `size` and `weights` are the indices of inputs.
  absl::Status Count(XlaCall* call, int values, int size, int weights, int64_t rows,
                     xla::XlaOp row, xla::XlaOp* made) const {
    TF_RETURN_IF_ERROR(call->WantRank(values, 1));
    Binned spec = {rows, 0, call->type(weights), binary_};
    TF_RETURN_IF_ERROR(call->KnownSize(size, 0, &spec.size));
    TF_RETURN_IF_ERROR(call->CheckSize(call->NameOf(size), {rows, spec.size}));
    const bool weighted = call->count(weights) > 0;
    if (weighted) TF_RETURN_IF_ERROR(call->WantShape(weights, call->shape(values)));
    const xla::XlaOp given = call->input(weights);
    *made = CountInRows(spec, row, call->input(values), weighted ? &given : nullptr);
    return absl::OkStatus();
  }

 private:
  bool binary_ = false;
};

class RaggedBincountOp : public RowBincountOp {
 public:
  using RowBincountOp::RowBincountOp;

 protected:
  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(call->WantRank(0, 1));
    if (call->count(0) == 0) return call->Refuse(0, "must have at least one element");
    const int64_t rows = call->count(0) - 1;
    const xla::XlaOp row = RowsOfSplits(call->input(0), rows, call->count(1));
    xla::XlaOp made;
    TF_RETURN_IF_ERROR(Count(call, 1, 2, 3, rows, row, &made));
    call->Set(0, made);
    return absl::OkStatus();
  }
};

class SparseBincountOp : public RowBincountOp {
 public:
  using RowBincountOp::RowBincountOp;

 protected:
  absl::Status Build(XlaCall* call) const override {
    Sizes dense;
    TF_RETURN_IF_ERROR(call->WantRank(2, 1));
    TF_RETURN_IF_ERROR(call->Known(2, &dense));
    const auto rank = static_cast<int64_t>(dense.size());
    if (rank != 1 && rank != 2) return call->Refuse(2, "must have 1 or 2 elements");
    const int64_t count = call->count(1);
    TF_RETURN_IF_ERROR(call->WantShape(0, {count, rank}));
    const int64_t rows = rank == 1 ? 1 : dense[0];
    TF_RETURN_IF_ERROR(call->CheckSize(call->NameOf(2), {rows}));
    const xla::XlaOp row =
        rank == 1 ? Zeros(call->builder(), xla::S64, {count}) : Column(call->input(0), 0);
    xla::XlaOp made;
    TF_RETURN_IF_ERROR(Count(call, 1, 3, 4, rows, row, &made));
    call->Set(0, rank == 1 ? xla::Collapse(made, {0, 1}) : made);
    return absl::OkStatus();
  }
};

OPWRIGHT_REGISTER_XLA("HistogramFixedWidth",
                      .TypeConstraint("T", kNumbers).TypeConstraint("dtype", kIndices),
                      HistogramFixedWidthOp);
OPWRIGHT_REGISTER_XLA("RaggedBincount",
                      .TypeConstraint("Tidx", kIndices).TypeConstraint("T", kNumbers),
                      RaggedBincountOp);
OPWRIGHT_REGISTER_XLA("SparseBincount",
                      .TypeConstraint("Tidx", kIndices).TypeConstraint("T", kNumbers),
                      SparseBincountOp);

const bool kCountConstantsRegistered =
    RegisterXlaConstants({"HistogramFixedWidth"}, {"nbins"}) &&
    RegisterXlaConstants({"RaggedBincount"}, {"size"}) &&
    RegisterXlaConstants({"SparseBincount"}, {"dense_shape", "size"});

}  // namespace
}  // namespace opwright::xla_ops
