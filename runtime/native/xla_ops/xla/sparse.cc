#include "xla_ops/xla/sparse.h"

#include <optional>
#include <vector>

#include "xla_ops/xla/segments.h"

namespace opwright::xla_ops {
namespace {

xla::XlaOp Where(xla::XlaOp condition, xla::XlaOp x, int64_t otherwise) {
  return xla::Select(condition, x, xla::FullLike(x, otherwise));
}

}  // namespace

xla::XlaOp SparseTimesDense(const Sparse& a, bool adjoint, xla::XlaOp b, int64_t rows) {
  xla::XlaBuilder* const builder = b.builder();
  const xla::PrimitiveType type = TypeOf(b);
  const xla::PrimitiveType wide = WideType(type);
  const Sizes shape = SizesOf(b);
  const xla::XlaOp zero = Zeros(builder, wide, {rows, shape[1]});
  if (shape[0] == 0) return xla::ConvertElementType(zero, type);
  const xla::XlaOp row = Column(a.indices, adjoint ? 1 : 0);
  const xla::XlaOp column = Column(a.indices, adjoint ? 0 : 1);
  const xla::XlaOp values =
      xla::ConvertElementType(adjoint ? xla::MaybeConjugate(a.values, true) : a.values, wide);
  const xla::XlaOp picked = GatherRows(xla::ConvertElementType(b, wide), column);
  const xla::XlaOp terms = picked * Spread(values, SizesOf(picked), {0});
  const xla::XlaOp at = Where(InRange(column, shape[0]), row, -1);
  return xla::ConvertElementType(ScatterRows(zero, at, terms, Combine::kAdd), type);
}

Sparse SortIndices(const Sparse& sparse) {
  const Sizes shape = SizesOf(sparse.indices);
  if (shape[0] < 2 || shape[1] == 0) return sparse;
  xla::XlaBuilder* const builder = sparse.indices.builder();
  std::vector<xla::XlaOp> keys;
  for (int64_t i = 0; i < shape[1]; ++i) keys.push_back(Column(sparse.indices, i));
  std::vector<xla::PrimitiveType> types(keys.size(), TypeOf(sparse.indices));
  std::vector<std::optional<decltype(&xla::LtTotalOrder)>> less(keys.size(),
                                                                &xla::LtTotalOrder);
  keys.push_back(Counts(builder, xla::S32, {shape[0]}, 0));
  types.push_back(xla::S32);
  less.push_back(std::nullopt);
  const xla::XlaOp sorted = xla::Sort(
      keys, xla::CreateScalarComparisonComputation("less", types, less, builder), 0, true);
  const xla::XlaOp order = xla::GetTupleElement(sorted, shape[1]);
  return {GatherRows(sparse.indices, order), GatherRows(sparse.values, order)};
}

Reshaped ReshapeIndices(xla::XlaOp indices, xla::XlaOp shape, xla::XlaOp new_shape) {
  xla::XlaBuilder* const builder = indices.builder();
  const Sizes count = SizesOf(indices);
  const int64_t new_rank = SizesOf(new_shape)[0];
  const xla::XlaOp one = xla::ConstantR0<int64_t>(builder, 1);
  xla::XlaOp total = one;
  xla::XlaOp flat = Zeros(builder, xla::S64, {count[0]});
  for (int64_t i = count[1]; i-- > 0;) {
    flat = flat + Column(indices, i) * total;
    total = total * Element(shape, i);
  }
  const xla::XlaOp open = xla::Lt(new_shape, xla::ZerosLike(new_shape));
  const xla::XlaOp given = xla::Select(open, xla::FullLike(new_shape, 1), new_shape);
  xla::XlaOp known = one;
  for (int64_t i = 0; i < new_rank; ++i) known = known * Element(given, i);
  const xla::XlaOp rest = xla::Div(total, xla::Max(known, one));
  const xla::XlaOp made = xla::Select(open, xla::Broadcast(rest, {new_rank}), new_shape);
  std::vector<xla::XlaOp> columns(static_cast<size_t>(new_rank));
  for (int64_t i = new_rank; i-- > 0;) {
    const xla::XlaOp size = xla::Max(Element(made, i), one);
    columns[static_cast<size_t>(i)] = xla::Rem(flat, size);
    flat = xla::Div(flat, size);
  }
  return {FromColumns(builder, columns, count[0]), made};
}

xla::XlaOp SparseSoftmax(const Sparse& sparse) {
  xla::XlaBuilder* const builder = sparse.values.builder();
  const Sizes shape = SizesOf(sparse.indices);
  const int64_t count = shape[0];
  if (count == 0) return sparse.values;
  const xla::PrimitiveType type = TypeOf(sparse.values);
  const xla::XlaOp values = xla::ConvertElementType(sparse.values, WideType(type));
  // A row begins where any index but the last differs from that of the entry before.
  xla::XlaOp begins = Zeros(builder, xla::S32, {count});
  for (int64_t i = 0; i + 1 < shape[1]; ++i) {
    const xla::XlaOp column = Column(sparse.indices, i);
    const xla::XlaOp before = xla::ConcatInDim(
        builder,
        {xla::SliceInDim(column, 0, 1, 1, 0), xla::SliceInDim(column, 0, count - 1, 1, 0)}, 0);
    begins = xla::Or(begins, xla::ConvertElementType(xla::Ne(column, before), xla::S32));
  }
  const xla::XlaOp rows = RunningSum(begins);
  const xla::XlaOp most = ReduceSegments(Reduction::kMax, values, rows, count);
  const xla::XlaOp raised = xla::Exp(values - GatherRows(most, rows));
  const xla::XlaOp sums = ReduceSegments(Reduction::kSum, raised, rows, count);
  return xla::ConvertElementType(raised / GatherRows(sums, rows), type);
}

xla::XlaOp ReduceSparse(const Sparse& sparse, Combine combine, const Sizes& kept,
                        const Sizes& sizes) {
  xla::XlaBuilder* const builder = sparse.values.builder();
  const int64_t count = SizesOf(sparse.values)[0];
  const int64_t total = Product(sizes);
  xla::XlaOp flat = Zeros(builder, xla::S64, {count});
  xla::XlaOp exists = xla::Broadcast(xla::ConstantR0<bool>(builder, true), {count});
  for (size_t i = 0; i < kept.size(); ++i) {
    const xla::XlaOp column = Column(sparse.indices, kept[i]);
    exists = xla::And(exists, InRange(column, sizes[i]));
    flat = flat * xla::FullLike(flat, sizes[i]) + column;
  }
  const xla::XlaOp at = xla::ConvertElementType(Where(exists, flat, -1), IndexType(total));
  const Reduction reduction = combine == Combine::kMax ? Reduction::kMax : Reduction::kSum;
  return xla::Reshape(ReduceSegments(reduction, sparse.values, at, total), sizes);
}

xla::XlaOp StartsOfRows(xla::XlaBuilder* builder, int64_t rows, int64_t rank) {
  std::vector<xla::XlaOp> columns(static_cast<size_t>(rank), Zeros(builder, xla::S64, {rows}));
  columns[0] = Counts(builder, xla::S64, {rows}, 0);
  return FromColumns(builder, columns, rows);
}

Filled FillEmptyRows(const Sparse& sparse, xla::XlaOp filler, int64_t rows) {
  xla::XlaBuilder* const builder = filler.builder();
  const Sizes shape = SizesOf(sparse.indices);
  const int64_t count = shape[0];
  const int64_t most = count + rows - 1;
  const xla::PrimitiveType type = IndexType(most);
  const xla::XlaOp first = Column(sparse.indices, 0);
  const xla::XlaOp row = xla::ConvertElementType(
      xla::Clamp(xla::ZerosLike(first), first, xla::FullLike(first, rows - 1)), type);
  const xla::XlaOp one = xla::One(builder, type);
  const xla::XlaOp counts = ScatterRows(Zeros(builder, type, {rows}), row,
                                        xla::Broadcast(one, {count}), Combine::kAdd);
  const xla::XlaOp empty = xla::Eq(counts, xla::ZerosLike(counts));
  const xla::XlaOp made = xla::Max(counts, xla::FullLike(counts, 1));
  const xla::XlaOp ends = RunningSum(made);
  const xla::XlaOp starts = ends - made;
  // What empty rows before each row add to the position of its entries.
  const xla::XlaOp added = starts - (RunningSum(counts) - counts);
  const xla::XlaOp from = Counts(builder, type, {count}, 0);
  const xla::XlaOp sorted =
      xla::Sort({row, from}, xla::CreateScalarLtComputation({type, type}, builder), 0, true);
  const xla::XlaOp places =
      ScatterRows(from, xla::GetTupleElement(sorted, 1),
                  from + GatherRows(added, xla::GetTupleElement(sorted, 0)), Combine::kReplace);
  const xla::XlaOp indices = ScatterRows(Zeros(builder, xla::S64, {most, shape[1]}), places,
                                         sparse.indices, Combine::kReplace);
  return {
      {ScatterRows(indices, Where(empty, starts, -1), StartsOfRows(builder, rows, shape[1]),
                   Combine::kReplace),
       ScatterRows(xla::Broadcast(filler, {most}), places, sparse.values, Combine::kReplace)},
      Element(ends, rows - 1),
      empty,
      places};
}

xla::XlaOp DenseAt(xla::XlaOp dense, xla::XlaOp indices, int64_t rank) {
  xla::XlaBuilder* const builder = dense.builder();
  const Sizes shape = SizesOf(dense);
  const int64_t count = SizesOf(indices)[0];
  if (shape.empty()) return xla::Broadcast(dense, {count});
  std::vector<xla::XlaOp> columns;
  const auto first = rank - static_cast<int64_t>(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) {
    const xla::XlaOp column = Column(indices, first + static_cast<int64_t>(i));
    columns.push_back(shape[i] == 1 ? xla::ZerosLike(column) : column);
  }
  return GatherElements(dense, FromColumns(builder, columns, count));
}

}  // namespace opwright::xla_ops
