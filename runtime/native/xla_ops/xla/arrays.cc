#include "xla_ops/xla/arrays.h"

#include <vector>

namespace opwright::xla_ops {

xla::XlaOp UnravelIndex(xla::XlaOp indices, xla::XlaOp dims, int64_t rank, const Sizes& shape) {
  xla::XlaBuilder* const builder = indices.builder();
  const xla::PrimitiveType type = TypeOf(indices);
  const Sizes row = Joined({1}, shape);
  if (rank == 0) return Zeros(builder, type, Joined({0}, shape));
  std::vector<xla::XlaOp> coordinates(static_cast<size_t>(rank));
  xla::XlaOp left = indices;
  for (int64_t i = rank; i-- > 0;) {
    const xla::XlaOp size = Element(dims, i);
    coordinates[static_cast<size_t>(i)] = xla::Reshape(xla::Rem(left, size), row);
    left = xla::Div(left, size);
  }
  return xla::ConcatInDim(builder, coordinates, 0);
}

xla::XlaOp NthElement(xla::XlaOp x, xla::XlaOp n, bool reverse, const Sizes& shape) {
  const auto rank = static_cast<int64_t>(shape.size());
  const int64_t last = shape.back() - 1;
  const xla::XlaOp sorted =
      xla::Sort({x}, xla::CreateScalarLtComputation({TypeOf(x)}, x.builder()), rank - 1);
  if (reverse) n = xla::ScalarLike(n, last) - n;
  std::vector<xla::XlaOp> starts(shape.size(), xla::ZerosLike(n));
  starts.back() = n;
  Sizes one(shape);
  one.back() = 1;
  const xla::XlaOp taken = xla::DynamicSlice(sorted, starts, one);
  return xla::Reshape(taken, Sizes(shape.begin(), shape.end() - 1));
}

xla::XlaOp InTopK(xla::XlaOp predictions, xla::XlaOp targets, int64_t k, int64_t batch,
                  int64_t classes) {
  xla::XlaBuilder* const builder = predictions.builder();
  if (classes == 0) return Zeros(builder, xla::PRED, {batch});
  const xla::PrimitiveType type = TypeOf(targets);
  const Sizes shape = {batch, classes};
  const xla::XlaOp chosen =
      xla::Eq(Counts(builder, type, shape, 1), Spread(targets, shape, {0}));
  const xla::XlaOp of_target = ReduceDims(
      xla::Select(chosen, predictions, xla::ZerosLike(predictions)), Combine::kAdd, {1});
  const xla::XlaOp above =
      xla::ConvertElementType(xla::Gt(predictions, Spread(of_target, shape, {0})), xla::S32);
  const xla::XlaOp finite = ReduceDims(
      xla::ConvertElementType(xla::IsFinite(predictions), xla::S32), Combine::kMin, {1});
  const xla::XlaOp found =
      ReduceDims(xla::ConvertElementType(chosen, xla::S32), Combine::kMax, {1});
  const xla::XlaOp count =
      xla::ConvertElementType(ReduceDims(above, Combine::kAdd, {1}), xla::S64);
  const xla::XlaOp zero = xla::ConstantR0<int32_t>(builder, 0);
  const xla::XlaOp few = xla::Lt(count, xla::ConstantR0<int64_t>(builder, k));
  return xla::And(few, xla::And(xla::Gt(finite, zero), xla::Gt(found, zero)));
}

}  // namespace opwright::xla_ops
