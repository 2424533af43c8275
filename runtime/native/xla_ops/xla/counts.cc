#include "xla_ops/xla/counts.h"

namespace opwright::xla_ops {

xla::XlaOp HistogramBins(xla::XlaOp values, xla::XlaOp range, int64_t bins) {
  xla::XlaBuilder* const builder = values.builder();
  if (bins == 1) return xla::ConvertElementType(xla::ZerosLike(values), xla::S32);
  const auto bound = [&](int64_t i) { return Element(range, i); };
  const auto wide = [](xla::XlaOp x) { return xla::ConvertElementType(x, xla::F64); };
  const auto number = [&](int64_t x) {
    return xla::ConstantR0<double>(builder, static_cast<double>(x));
  };
  // The barriers keep XLA from joining the divisions, after which values at the limits of bins
  // would fall into their neighbours.
  const xla::XlaOp count = xla::OptimizationBarrier(number(bins));
  const xla::XlaOp step =
      xla::OptimizationBarrier(wide(bound(1)) / count - wide(bound(0)) / count);
  const xla::XlaOp inside = wide(xla::Clamp(bound(0), values, bound(1)));
  const xla::XlaOp at = xla::Min((inside - wide(bound(0))) / step, number(bins - 1));
  const xla::XlaOp bin = xla::ConvertElementType(at, xla::S32);
  return xla::Select(xla::Eq(values, values), bin, xla::FullLike(bin, -1));
}

xla::XlaOp CountInRows(const Binned& spec, xla::XlaOp rows, xla::XlaOp bins,
                       const xla::XlaOp* weights) {
  xla::XlaBuilder* const builder = bins.builder();
  const int64_t count = Product(SizesOf(bins));
  const xla::PrimitiveType type = IndexType(spec.rows * spec.size);
  const xla::XlaOp wide = xla::ConvertElementType(bins, xla::S64);
  const xla::XlaOp row = xla::ConvertElementType(rows, xla::S64);
  const xla::XlaOp exists = xla::And(InRange(wide, spec.size), InRange(row, spec.rows));
  const xla::XlaOp flat = row * xla::ConstantR0<int64_t>(builder, spec.size) + wide;
  const xla::XlaOp index =
      xla::ConvertElementType(xla::Select(exists, flat, xla::FullLike(flat, -1)), type);
  const bool weighted = weights != nullptr && !spec.binary;
  const xla::XlaOp updates =
      weighted ? *weights : xla::Broadcast(xla::One(builder, spec.type), {count});
  const xla::XlaOp made = ScatterRows(Zeros(builder, spec.type, {spec.rows * spec.size}), index,
                                      updates, spec.binary ? Combine::kReplace : Combine::kAdd);
  return xla::Reshape(made, {spec.rows, spec.size});
}

xla::XlaOp RowsOfSplits(xla::XlaOp splits, int64_t rows, int64_t count) {
  xla::XlaBuilder* const builder = splits.builder();
  if (count == 0) return Zeros(builder, xla::S32, {0});
  const xla::XlaOp ones = xla::Broadcast(xla::One(builder, xla::S32), {rows + 1});
  const xla::XlaOp starts =
      ScatterRows(Zeros(builder, xla::S32, {count}), splits, ones, Combine::kAdd);
  return RunningSum(starts) - xla::One(builder, xla::S32);
}

}  // namespace opwright::xla_ops
