// Kernels for XLA of ops on sparse tensors.
#include <cstdint>
#include <vector>

#include "base/tf/register_xla.h"
#include "base/tf/xla_call.h"
#include "xla_ops/tf/types.h"
#include "xla_ops/xla/sparse.h"

namespace opwright::xla_ops {
namespace {

using tensorflow::OpKernelConstruction;

// Checks the three inputs of a sparse tensor, the first of which is `i`.
absl::Status CheckSparse(const XlaCall& call, int i) {
  TF_RETURN_IF_ERROR(call.WantRank(i, 2));
  TF_RETURN_IF_ERROR(call.WantShape(i + 1, {call.shape(i)[0]}));
  return call.WantShape(i + 2, {call.shape(i)[1]});
}

Sparse SparseAt(const XlaCall& call, int i) { return {call.input(i), call.input(i + 1)}; }

class SparseTensorDenseMatMulOp : public XlaKernel {
 public:
  explicit SparseTensorDenseMatMulOp(OpKernelConstruction* context) : XlaKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("adjoint_a", &adjoint_a_));
    OP_REQUIRES_OK(context, context->GetAttr("adjoint_b", &adjoint_b_));
  }

 protected:
  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(CheckSparse(*call, 0));
    TF_RETURN_IF_ERROR(call->WantRank(3, 2));
    TF_RETURN_IF_ERROR(call->WantShape(2, {2}));
    Sizes shape;
    TF_RETURN_IF_ERROR(call->Known(2, &shape));
    const Sizes& b = call->shape(3);
    const int64_t inner = shape[adjoint_a_ ? 0 : 1];
    if (inner != b[adjoint_b_ ? 1 : 0]) {
      return call->Refuse(
          2, StrCat("has an inner dimension of ", inner, ", and b of ", b[adjoint_b_ ? 1 : 0]));
    }
    const int64_t rows = shape[adjoint_a_ ? 1 : 0];
    TF_RETURN_IF_ERROR(call->CheckSize(call->NameOf(2), {rows, b[adjoint_b_ ? 0 : 1]}));
    xla::XlaOp dense = call->input(3);
    if (adjoint_b_) dense = xla::Transpose(xla::MaybeConjugate(dense, true), {1, 0});
    call->Set(0, SparseTimesDense(SparseAt(*call, 0), adjoint_a_, dense, rows));
    return absl::OkStatus();
  }

 private:
  bool adjoint_a_ = false;
  bool adjoint_b_ = false;
};

class SparseReorderOp : public XlaKernel {
 public:
  using XlaKernel::XlaKernel;

 protected:
  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(CheckSparse(*call, 0));
    const Sparse made = SortIndices(SparseAt(*call, 0));
    call->Set(0, made.indices);
    call->Set(1, made.values);
    return absl::OkStatus();
  }
};

class SparseReshapeOp : public XlaKernel {
 public:
  using XlaKernel::XlaKernel;

 protected:
  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(call->WantRank(0, 2));
    TF_RETURN_IF_ERROR(call->WantShape(1, {call->shape(0)[1]}));
    TF_RETURN_IF_ERROR(call->WantRank(2, 1));
    const Reshaped made = ReshapeIndices(call->input(0), call->input(1), call->input(2));
    call->Set(0, made.indices);
    call->Set(1, made.shape);
    return absl::OkStatus();
  }
};

class SparseSoftmaxOp : public XlaKernel {
 public:
  using XlaKernel::XlaKernel;

 protected:
  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(CheckSparse(*call, 0));
    if (call->shape(0)[1] < 2) return call->Refuse(2, "must have at least 2 elements");
    call->Set(0, SparseSoftmax(SparseAt(*call, 0)));
    return absl::OkStatus();
  }
};

template <Combine kCombine>
class SparseReduceOp : public XlaKernel {
 public:
  explicit SparseReduceOp(OpKernelConstruction* context) : XlaKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("keep_dims", &keep_dims_));
  }

 protected:
  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(CheckSparse(*call, 0));
    Sizes shape, axes;
    TF_RETURN_IF_ERROR(call->Known(2, &shape));
    TF_RETURN_IF_ERROR(call->Known(3, &axes));
    const auto rank = static_cast<int64_t>(shape.size());
    std::vector<bool> reduced(shape.size(), false);
    for (int64_t axis : axes) {
      if (axis < -rank || axis >= rank) {
        return call->Refuse(
            3, StrCat("must lie between ", -rank, " and ", rank - 1, ", has ", axis));
      }
      reduced[static_cast<size_t>(axis < 0 ? axis + rank : axis)] = true;
    }
    Sizes kept, sizes, made;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (!reduced[i]) {
        kept.push_back(static_cast<int64_t>(i));
        sizes.push_back(shape[i]);
        made.push_back(shape[i]);
      } else if (keep_dims_) {
        made.push_back(1);
      }
    }
    TF_RETURN_IF_ERROR(call->CheckSize(call->NameOf(2), sizes));
    const xla::XlaOp dense = ReduceSparse(SparseAt(*call, 0), kCombine, kept, sizes);
    call->Set(0, xla::Reshape(dense, made));
    return absl::OkStatus();
  }

 private:
  bool keep_dims_ = false;
};

enum class Cwise { kAdd, kMultiply, kDivide };

template <Cwise kCwise>
class SparseDenseCwiseOp : public XlaKernel {
 public:
  using XlaKernel::XlaKernel;

 protected:
  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(CheckSparse(*call, 0));
    const int64_t rank = call->shape(0)[1];
    if (call->rank(3) > rank) {
      return call->Refuse(3, StrCat("must have at most ", rank, " dimensions, has the shape ",
                                    Text(call->shape(3))));
    }
    const xla::XlaOp values = call->input(1);
    if (call->count(3) == 0 || call->count(1) == 0) {
      call->Set(0, values);
      return absl::OkStatus();
    }
    const xla::XlaOp dense = DenseAt(call->input(3), call->input(0), rank);
    switch (kCwise) {
      case Cwise::kAdd: call->Set(0, values + dense); break;
      case Cwise::kMultiply: call->Set(0, values * dense); break;
      case Cwise::kDivide: call->Set(0, values / dense); break;
    }
    return absl::OkStatus();
  }
};

class SparseTensorDenseAddOp : public XlaKernel {
 public:
  using XlaKernel::XlaKernel;

 protected:
  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(CheckSparse(*call, 0));
    TF_RETURN_IF_ERROR(call->WantRank(3, call->shape(0)[1]));
    call->Set(0,
              ScatterElements(call->input(3), call->input(0), call->input(1), Combine::kAdd));
    return absl::OkStatus();
  }
};

class SparseConcatOp : public XlaKernel {
 public:
  explicit SparseConcatOp(OpKernelConstruction* context) : XlaKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("concat_dim", &dim_));
    OP_REQUIRES_OK(context, context->GetAttr("N", &count_));
  }

 protected:
  absl::Status Build(XlaCall* call) const override {
    xla::XlaBuilder* const builder = call->builder();
    TF_RETURN_IF_ERROR(call->WantRank(0, 2));
    const int64_t rank = call->shape(0)[1];
    if (dim_ < -rank || dim_ >= rank) {
      return Invalid("concat_dim",
                     StrCat("must lie between ", -rank, " and ", rank - 1, ", is ", dim_));
    }
    const int64_t dim = dim_ < 0 ? dim_ + rank : dim_;
    // Which dimension counts is a mask, so that shapes need not be known.
    const xla::XlaOp chosen =
        xla::Eq(Counts(builder, xla::S64, {rank}, 0), xla::ConstantR0<int64_t>(builder, dim));
    xla::XlaOp offset = Zeros(builder, xla::S64, {rank});
    std::vector<xla::XlaOp> indices, values;
    for (int i = 0; i < count_; ++i) {
      const int at[] = {i, count_ + i, 2 * count_ + i};
      TF_RETURN_IF_ERROR(CheckList(*call, at, rank));
      const Sizes shape = call->shape(at[0]);
      indices.push_back(call->input(at[0]) + Spread(offset, shape, {1}));
      values.push_back(call->input(at[1]));
      offset = offset + xla::Select(chosen, call->input(at[2]), xla::ZerosLike(offset));
    }
    const Sparse made = SortIndices(
        {xla::ConcatInDim(builder, indices, 0), xla::ConcatInDim(builder, values, 0)});
    call->Set(0, made.indices);
    call->Set(1, made.values);
    call->Set(2, xla::Select(chosen, offset, call->input(2 * count_)));
    return absl::OkStatus();
  }

  static absl::Status CheckList(const XlaCall& call, const int* at, int64_t rank) {
    TF_RETURN_IF_ERROR(call.WantRank(at[0], 2));
    TF_RETURN_IF_ERROR(call.WantShape(at[0], {call.shape(at[0])[0], rank}));
    TF_RETURN_IF_ERROR(call.WantShape(at[1], {call.shape(at[0])[0]}));
    return call.WantShape(at[2], {rank});
  }

 private:
  int64_t dim_ = 0;
  int count_ = 0;
};

class SparseFillEmptyRowsOp : public XlaKernel {
 public:
  using XlaKernel::XlaKernel;

 protected:
  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(CheckSparse(*call, 0));
    TF_RETURN_IF_ERROR(call->WantRank(3, 0));
    const int64_t count = call->shape(0)[0], rank = call->shape(0)[1];
    if (rank == 0) return call->Refuse(2, "must have at least one element");
    Sizes shape;
    TF_RETURN_IF_ERROR(call->Known(2, &shape));
    const int64_t rows = shape[0];
    if (rows < 0 || (rows == 0 && count > 0)) {
      return call->Refuse(2, StrCat("has ", rows, " rows, and indices have ", count));
    }
    TF_RETURN_IF_ERROR(call->CheckSize(call->NameOf(2), {rows}));
    TF_RETURN_IF_ERROR(call->CheckSize(call->NameOf(2), {count + rows, rank}));
    xla::XlaBuilder* const builder = call->builder();
    if (count == 0) {
      call->Set(0, StartsOfRows(builder, rows, rank));
      call->Set(1, xla::Broadcast(call->input(3), {rows}));
      call->Set(2, xla::Broadcast(xla::ConstantR0<bool>(builder, true), {rows}));
      call->Set(3, Zeros(builder, xla::S64, {0}));
      return absl::OkStatus();
    }
    Filled made = FillEmptyRows(SparseAt(*call, 0), call->input(3), rows);
    if (rows > 1) {
      const xla::XlaOp size = xla::ConvertElementType(made.size, xla::S32);
      made.entries.indices = xla::SetDimensionSize(made.entries.indices, size, 0);
      made.entries.values = xla::SetDimensionSize(made.entries.values, size, 0);
    }
    call->Set(0, made.entries.indices);
    call->Set(1, made.entries.values);
    call->Set(2, made.empty);
    call->Set(3, xla::ConvertElementType(made.places, xla::S64));
    return absl::OkStatus();
  }
};

class SparseFillEmptyRowsGradOp : public XlaKernel {
 public:
  using XlaKernel::XlaKernel;

 protected:
  // The gradients of entries whose number values decide. XLA leaves out of the sum what is past
  // that number.
  int BoundedInput() const override { return 1; }

  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(call->WantRank(0, 1));
    TF_RETURN_IF_ERROR(call->WantRank(1, 1));
    const xla::XlaOp grad = call->input(1);
    if (call->count(1) == 0) {
      call->Set(0, xla::Broadcast(xla::Zero(call->builder(), call->type(1)), call->shape(0)));
      call->Set(1, xla::Zero(call->builder(), call->type(1)));
      return absl::OkStatus();
    }
    call->Set(0, GatherRows(grad, call->input(0)));
    const xla::XlaOp taken =
        xla::Broadcast(xla::Zero(call->builder(), call->type(1)), call->shape(0));
    const xla::XlaOp left = ScatterRows(grad, call->input(0), taken, Combine::kReplace);
    const xla::PrimitiveType wide = WideType(call->type(1));
    call->Set(1, xla::ConvertElementType(
                     ReduceDims(xla::ConvertElementType(left, wide), Combine::kAdd, {0}),
                     call->type(1)));
    return absl::OkStatus();
  }
};

constexpr tensorflow::DataType kProducts[] = {
    tensorflow::DT_BFLOAT16, tensorflow::DT_HALF,  tensorflow::DT_FLOAT,
    tensorflow::DT_DOUBLE,   tensorflow::DT_INT32, tensorflow::DT_COMPLEX64};
constexpr tensorflow::DataType kSoftmaxTypes[] = {tensorflow::DT_HALF, tensorflow::DT_FLOAT,
                                                  tensorflow::DT_DOUBLE};

OPWRIGHT_REGISTER_XLA("SparseTensorDenseMatMul",
                      .TypeConstraint("T", kProducts).TypeConstraint("Tindices", kIndices),
                      SparseTensorDenseMatMulOp);
OPWRIGHT_REGISTER_XLA("SparseReorder", .TypeConstraint("T", kAny), SparseReorderOp);
OPWRIGHT_REGISTER_XLA("SparseReshape", , SparseReshapeOp);
OPWRIGHT_REGISTER_XLA("SparseSoftmax", .TypeConstraint("T", kSoftmaxTypes), SparseSoftmaxOp);
OPWRIGHT_REGISTER_XLA("SparseReduceSum", .TypeConstraint("T", kNumeric),
                      SparseReduceOp<Combine::kAdd>);
OPWRIGHT_REGISTER_XLA("SparseReduceMax", .TypeConstraint("T", kReal),
                      SparseReduceOp<Combine::kMax>);
OPWRIGHT_REGISTER_XLA("SparseDenseCwiseAdd", .TypeConstraint("T", kReal),
                      SparseDenseCwiseOp<Cwise::kAdd>);
OPWRIGHT_REGISTER_XLA("SparseDenseCwiseMul", .TypeConstraint("T", kReal),
                      SparseDenseCwiseOp<Cwise::kMultiply>);
OPWRIGHT_REGISTER_XLA("SparseDenseCwiseDiv", .TypeConstraint("T", kReal),
                      SparseDenseCwiseOp<Cwise::kDivide>);
OPWRIGHT_REGISTER_XLA("SparseTensorDenseAdd",
                      .TypeConstraint("T", kNumeric).TypeConstraint("Tindices", kIndices),
                      SparseTensorDenseAddOp);
OPWRIGHT_REGISTER_XLA("SparseConcat", .TypeConstraint("T", kAny), SparseConcatOp);
OPWRIGHT_REGISTER_XLA("SparseFillEmptyRows", .TypeConstraint("T", kAny), SparseFillEmptyRowsOp);
OPWRIGHT_REGISTER_XLA("SparseFillEmptyRowsGrad", .TypeConstraint("T", kNumeric),
                      SparseFillEmptyRowsGradOp);

const bool kSparseConstantsRegistered =
    RegisterXlaConstants({"SparseTensorDenseMatMul"}, {"a_shape"}) &&
    RegisterXlaConstants({"SparseFillEmptyRows"}, {"dense_shape"}) &&
    RegisterXlaConstants({"SparseReduceSum", "SparseReduceMax"},
                         {"input_shape", "reduction_axes"});

}  // namespace
}  // namespace opwright::xla_ops
