#include "xla_ops/xla/segments.h"

namespace opwright::xla_ops {
namespace {

Combine CombineOf(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kMean:
    case Reduction::kSqrtN: return Combine::kAdd;
    case Reduction::kProduct: return Combine::kMultiply;
    case Reduction::kMax: return Combine::kMax;
    case Reduction::kMin: return Combine::kMin;
  }
  return Combine::kAdd;
}

bool IsScaled(Reduction reduction) {
  return reduction == Reduction::kMean || reduction == Reduction::kSqrtN;
}

// The number of rows of each segment.
xla::XlaOp RowsOfSegments(xla::XlaOp ids, int64_t segments) {
  xla::XlaBuilder* const builder = ids.builder();
  const xla::XlaOp ones = xla::Broadcast(xla::One(builder, xla::S32), SizesOf(ids));
  return ScatterRows(Zeros(builder, xla::S32, {segments}), ids, ones, Combine::kAdd);
}

// What a segment's sum is divided by.
xla::XlaOp DivisorsOf(Reduction reduction, xla::XlaOp counts, xla::PrimitiveType type) {
  const xla::XlaOp some =
      xla::ConvertElementType(xla::Max(counts, xla::One(counts.builder(), xla::S32)), type);
  return reduction == Reduction::kSqrtN ? xla::Sqrt(some) : some;
}

}  // namespace

xla::XlaOp ReduceSegments(Reduction reduction, xla::XlaOp data, xla::XlaOp ids,
                          int64_t segments) {
  xla::XlaBuilder* const builder = data.builder();
  const xla::PrimitiveType type = TypeOf(data);
  const Combine combine = CombineOf(reduction);
  const bool sums = combine == Combine::kAdd || combine == Combine::kMultiply;
  const xla::PrimitiveType wide = sums ? WideType(type) : type;
  Sizes shape = SizesOf(data);
  shape[0] = segments;
  const xla::XlaOp start = xla::Broadcast(Neutral(builder, wide, combine), shape);
  xla::XlaOp made = ScatterRows(start, ids, xla::ConvertElementType(data, wide), combine);
  if (IsScaled(reduction)) {
    const xla::XlaOp counts = RowsOfSegments(ids, segments);
    made = made / Spread(DivisorsOf(reduction, counts, wide), shape, {0});
  } else if (!sums) {
    const xla::XlaOp counts = RowsOfSegments(ids, segments);
    const xla::XlaOp empty = xla::Eq(counts, xla::ZerosLike(counts));
    made = xla::Select(Spread(empty, shape, {0}), xla::ZerosLike(made), made);
  }
  return xla::ConvertElementType(made, type);
}

xla::XlaOp SparseSegmentGradient(Reduction reduction, xla::XlaOp grad, xla::XlaOp indices,
                                 xla::XlaOp ids, int64_t rows) {
  const xla::PrimitiveType type = TypeOf(grad);
  Sizes shape = SizesOf(grad);
  const int64_t segments = shape[0];
  shape[0] = rows;
  xla::XlaBuilder* const builder = grad.builder();
  const xla::PrimitiveType wide = WideType(type);
  const xla::XlaOp zero = Zeros(builder, wide, shape);
  if (segments == 0) return xla::ConvertElementType(zero, type);
  xla::XlaOp scaled = xla::ConvertElementType(grad, wide);
  if (IsScaled(reduction)) {
    const xla::XlaOp counts = RowsOfSegments(ids, segments);
    scaled = scaled / Spread(DivisorsOf(reduction, counts, wide), SizesOf(grad), {0});
  }
  const xla::XlaOp at =
      xla::Select(InRange(ids, segments), indices, xla::FullLike(indices, -1));
  const xla::XlaOp made = ScatterRows(zero, at, GatherRows(scaled, ids), Combine::kAdd);
  return xla::ConvertElementType(made, type);
}

}  // namespace opwright::xla_ops
