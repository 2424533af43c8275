#include "xla_ops/xla/ragged.h"

#include "xla_ops/xla/counts.h"

namespace opwright::xla_ops {
namespace {

// The rows of `table` for numbers that are at least 0, as 64 bits. Without rows, it is 0.
xla::XlaOp Lookup(xla::XlaOp table, xla::XlaOp rows) {
  const Sizes shape = SizesOf(table);
  if (shape[0] == 0) return Zeros(table.builder(), xla::S64, SizesOf(rows));
  return xla::ConvertElementType(GatherRows(table, rows), xla::S64);
}

xla::XlaOp Places(xla::XlaBuilder* builder, int64_t count) {
  return Counts(builder, xla::S64, {count}, 0);
}

}  // namespace

RaggedLevel LevelOfSplits(xla::XlaOp splits, int64_t rows, int64_t values) {
  const xla::XlaOp row = xla::ConvertElementType(RowsOfSplits(splits, rows, values), xla::S64);
  const xla::XlaOp start = Lookup(splits, row);
  return {row, Places(splits.builder(), values) - start, rows};
}

RaggedLevel LevelOfRowIds(xla::XlaOp ids, int64_t rows) {
  xla::XlaBuilder* const builder = ids.builder();
  const int64_t values = SizesOf(ids)[0];
  const xla::XlaOp row = xla::ConvertElementType(ids, xla::S64);
  const xla::XlaOp places = Places(builder, values);
  const xla::XlaOp none = xla::Broadcast(xla::ConstantR0<int64_t>(builder, values), {rows});
  const xla::XlaOp starts = ScatterRows(none, row, places, Combine::kMin);
  return {row, places - Lookup(starts, row), rows};
}

xla::XlaOp RaggedToDense(const std::vector<RaggedLevel>& levels, xla::XlaOp values,
                         xla::XlaOp otherwise, const Sizes& sizes) {
  xla::XlaBuilder* const builder = values.builder();
  const auto ragged = static_cast<int64_t>(levels.size()) + 1;
  const Sizes inner(sizes.begin() + ragged, sizes.end());
  Sizes dims;
  const auto missing = static_cast<int64_t>(inner.size() - SizesOf(otherwise).size());
  for (size_t i = 0; i < SizesOf(otherwise).size(); ++i) {
    dims.push_back(1 + missing + static_cast<int64_t>(i));
  }
  const int64_t rows = Product(Sizes(sizes.begin(), sizes.begin() + ragged));
  const xla::XlaOp filled = Spread(otherwise, Joined({rows}, inner), dims);
  // Where each row of the level before goes, or -1.
  xla::XlaOp at = Places(builder, levels[0].count);
  at = xla::Select(xla::Lt(at, xla::FullLike(at, sizes[0])), at, xla::FullLike(at, -1));
  for (size_t i = 0; i < levels.size(); ++i) {
    const RaggedLevel& level = levels[i];
    const xla::XlaOp size =
        xla::ConstantR0<int64_t>(builder, sizes[i + 1]) + xla::ZerosLike(level.rows);
    const xla::XlaOp row = level.rows;
    const xla::XlaOp base = Lookup(at, row);
    const xla::XlaOp zero = xla::ZerosLike(row);
    xla::XlaOp fits = xla::And(InRange(level.positions, sizes[i + 1]), xla::Ge(base, zero));
    fits = xla::And(fits, InRange(row, level.count));
    at = xla::Select(fits, base * size + level.positions, xla::FullLike(zero, -1));
  }
  at = xla::ConvertElementType(at, IndexType(rows));
  return xla::Reshape(ScatterRows(filled, at, values, Combine::kReplace), sizes);
}

RaggedIndices RaggedToSparse(const std::vector<xla::XlaOp>& splits, const Sizes& values) {
  xla::XlaBuilder* const builder = splits[0].builder();
  const int64_t elements = Product(values);
  const int64_t inner = values[0] == 0 ? 1 : elements / values[0];
  const xla::XlaOp flat = Places(builder, elements);
  std::vector<xla::XlaOp> columns, shape;
  // The inner dimensions are those of a dense tensor.
  xla::XlaOp left = xla::Rem(flat, xla::FullLike(flat, inner == 0 ? 1 : inner));
  for (size_t i = values.size(); i-- > 1;) {
    const xla::XlaOp size = xla::FullLike(flat, values[i] == 0 ? 1 : values[i]);
    columns.insert(columns.begin(), xla::Rem(left, size));
    left = xla::Div(left, size);
    shape.insert(shape.begin(), xla::ConstantR0<int64_t>(builder, values[i]));
  }
  xla::XlaOp row = xla::Div(flat, xla::FullLike(flat, inner == 0 ? 1 : inner));
  for (size_t i = splits.size(); i-- > 0;) {
    const int64_t rows = SizesOf(splits[i])[0] - 1;
    const int64_t below = i + 1 < splits.size() ? SizesOf(splits[i + 1])[0] - 1 : values[0];
    const RaggedLevel level = LevelOfSplits(splits[i], rows, below);
    columns.insert(columns.begin(), Lookup(level.positions, row));
    row = Lookup(level.rows, row);
    const xla::XlaOp wide = xla::ConvertElementType(splits[i], xla::S64);
    const xla::XlaOp lengths =
        xla::SliceInDim(wide, 1, rows + 1, 1, 0) - xla::SliceInDim(wide, 0, rows, 1, 0);
    const xla::XlaOp most = ReduceDims(lengths, Combine::kMax, {0});
    shape.insert(shape.begin(), xla::Max(most, xla::ZerosLike(most)));
  }
  columns.insert(columns.begin(), row);
  shape.insert(shape.begin(), xla::ConstantR0<int64_t>(builder, SizesOf(splits[0])[0] - 1));
  for (xla::XlaOp& size : shape) size = xla::Reshape(size, {1});
  return {FromColumns(builder, columns, elements), xla::ConcatInDim(builder, shape, 0)};
}

}  // namespace opwright::xla_ops
