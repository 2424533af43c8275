#include "xla_ops/xla/pieces.h"

#include <limits>
#include <utility>

#include "xla/shape_util.h"

namespace opwright::xla_ops {

int64_t Product(absl::Span<const int64_t> sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

Sizes Joined(absl::Span<const int64_t> first, absl::Span<const int64_t> second) {
  Sizes joined(first.begin(), first.end());
  joined.insert(joined.end(), second.begin(), second.end());
  return joined;
}

namespace {

xla::Shape ShapeOf(xla::XlaOp x) {
  if (x.builder() != nullptr) {
    auto shape = x.builder()->GetShape(x);
    if (shape.ok()) return *std::move(shape);
  }
  return xla::ShapeUtil::MakeShape(xla::F32, {});
}

}  // namespace

Sizes SizesOf(xla::XlaOp x) {
  const xla::Shape shape = ShapeOf(x);
  return Sizes(shape.dimensions().begin(), shape.dimensions().end());
}

xla::PrimitiveType TypeOf(xla::XlaOp x) { return ShapeOf(x).element_type(); }

xla::XlaOp Scalar(xla::XlaBuilder* builder, xla::PrimitiveType type, double value) {
  // Not XLA's own function for this, which ends the process for some types.
  return xla::ConvertElementType(xla::ConstantR0<double>(builder, value), type);
}

xla::XlaOp Zeros(xla::XlaBuilder* builder, xla::PrimitiveType type, const Sizes& sizes) {
  return xla::Broadcast(xla::Zero(builder, type), sizes);
}

xla::XlaOp Counts(xla::XlaBuilder* builder, xla::PrimitiveType type, const Sizes& sizes,
                  int64_t dim) {
  return xla::Iota(builder, xla::ShapeUtil::MakeShape(type, sizes), dim);
}

xla::PrimitiveType IndexType(int64_t bound) {
  return bound <= std::numeric_limits<int32_t>::max() ? xla::S32 : xla::S64;
}

xla::XlaOp Neutral(xla::XlaBuilder* builder, xla::PrimitiveType type, Combine combine) {
  switch (combine) {
    case Combine::kAdd:
    case Combine::kReplace: return xla::Zero(builder, type);
    case Combine::kMultiply: return xla::One(builder, type);
    case Combine::kMax: return xla::MinValue(builder, type);
    case Combine::kMin: return xla::MaxValue(builder, type);
  }
  return xla::Zero(builder, type);
}

xla::XlaComputation Combiner(xla::XlaBuilder* builder, xla::PrimitiveType type,
                             Combine combine) {
  switch (combine) {
    case Combine::kAdd: return xla::CreateScalarAddComputation(type, builder);
    case Combine::kMultiply: return xla::CreateScalarMultiplyComputation(type, builder);
    case Combine::kMax: return xla::CreateScalarMaxComputation(type, builder);
    case Combine::kMin: return xla::CreateScalarMinComputation(type, builder);
    case Combine::kReplace: break;
  }
  const auto made = builder->CreateSubBuilder("replace");
  const xla::Shape scalar = xla::ShapeUtil::MakeShape(type, {});
  xla::Parameter(made.get(), 0, scalar, "old");
  const xla::XlaOp value = xla::Parameter(made.get(), 1, scalar, "new");
  auto built = made->Build(value);
  if (built.ok()) return *std::move(built);
  builder->ReportError(built.status());
  return {};
}

xla::XlaOp ScatterRows(xla::XlaOp into, xla::XlaOp rows, xla::XlaOp updates, Combine combine) {
  xla::ScatterDimensionNumbers numbers;
  const auto rank = static_cast<int64_t>(SizesOf(updates).size());
  for (int64_t i = 1; i < rank; ++i) numbers.add_update_window_dims(i);
  numbers.add_inserted_window_dims(0);
  numbers.add_scatter_dims_to_operand_dims(0);
  numbers.set_index_vector_dim(1);
  return xla::Scatter(into, rows, updates, Combiner(into.builder(), TypeOf(into), combine),
                      numbers);
}

xla::XlaOp ScatterElements(xla::XlaOp into, xla::XlaOp indices, xla::XlaOp updates,
                           Combine combine) {
  xla::ScatterDimensionNumbers numbers;
  const auto rank = static_cast<int64_t>(SizesOf(into).size());
  for (int64_t i = 0; i < rank; ++i) {
    numbers.add_inserted_window_dims(i);
    numbers.add_scatter_dims_to_operand_dims(i);
  }
  numbers.set_index_vector_dim(1);
  return xla::Scatter(into, indices, updates, Combiner(into.builder(), TypeOf(into), combine),
                      numbers);
}

xla::XlaOp GatherRows(xla::XlaOp table, xla::XlaOp rows) {
  xla::GatherDimensionNumbers numbers;
  Sizes slice = SizesOf(table);
  if (slice.empty()) return table;
  slice[0] = 1;
  const auto rank = static_cast<int64_t>(slice.size());
  for (int64_t i = 1; i < rank; ++i) numbers.add_offset_dims(i);
  numbers.add_collapsed_slice_dims(0);
  numbers.add_start_index_map(0);
  numbers.set_index_vector_dim(1);
  return xla::Gather(table, rows, numbers, slice);
}

xla::XlaOp GatherElements(xla::XlaOp from, xla::XlaOp indices) {
  xla::GatherDimensionNumbers numbers;
  const auto rank = static_cast<int64_t>(SizesOf(from).size());
  for (int64_t i = 0; i < rank; ++i) {
    numbers.add_collapsed_slice_dims(i);
    numbers.add_start_index_map(i);
  }
  numbers.set_index_vector_dim(1);
  return xla::Gather(from, indices, numbers, Sizes(static_cast<size_t>(rank), 1));
}

xla::XlaOp GatherAlong(xla::XlaOp x, int64_t dim, xla::XlaOp indices) {
  xla::GatherDimensionNumbers numbers;
  Sizes slice = SizesOf(x);
  const auto rank = static_cast<int64_t>(slice.size());
  if (dim >= rank) return x;
  slice[static_cast<size_t>(dim)] = 1;
  for (int64_t i = 0; i < rank; ++i) {
    if (i != dim) numbers.add_offset_dims(i);
  }
  numbers.add_collapsed_slice_dims(dim);
  numbers.add_start_index_map(dim);
  numbers.set_index_vector_dim(1);
  return xla::Gather(x, indices, numbers, slice);
}

xla::XlaOp InRange(xla::XlaOp x, int64_t size) {
  return xla::And(xla::Ge(x, xla::ZerosLike(x)), xla::Lt(x, xla::FullLike(x, size)));
}

xla::XlaOp ReduceDims(xla::XlaOp x, Combine combine, const Sizes& dims) {
  xla::XlaBuilder* const builder = x.builder();
  const xla::PrimitiveType type = TypeOf(x);
  return xla::Reduce(x, Neutral(builder, type, combine), Combiner(builder, type, combine),
                     dims);
}

xla::XlaOp RunningSum(xla::XlaOp x) {
  const int64_t size = Product(SizesOf(x));
  const xla::XlaOp zero = xla::Zero(x.builder(), TypeOf(x));
  for (int64_t step = 1; step < size; step *= 2) {
    x = x + xla::PadInDim(xla::SliceInDim(x, 0, size - step, 1, 0), zero, 0, step, 0);
  }
  return x;
}

xla::XlaOp Column(xla::XlaOp matrix, int64_t i) {
  return xla::Reshape(xla::SliceInDim(matrix, i, i + 1, 1, 1), {SizesOf(matrix)[0]});
}

xla::XlaOp Element(xla::XlaOp vector, int64_t i) {
  return xla::Reshape(xla::SliceInDim(vector, i, i + 1, 1, 0), {});
}

xla::XlaOp FromColumns(xla::XlaBuilder* builder, const std::vector<xla::XlaOp>& columns,
                       int64_t rows) {
  if (columns.empty()) return Zeros(builder, xla::S64, {rows, 0});
  std::vector<xla::XlaOp> wide;
  for (const xla::XlaOp column : columns) wide.push_back(xla::Reshape(column, {rows, 1}));
  return xla::ConcatInDim(builder, wide, 1);
}

xla::XlaOp Rounded(xla::XlaOp product) {
  return xla::Max(product, xla::MinFiniteValue(product.builder(), TypeOf(product)));
}

xla::XlaOp RoundedTo(xla::PrimitiveType type, xla::XlaOp x) {
  if (type == xla::F16) return xla::ReducePrecision(x, 5, 10);
  if (type == xla::BF16) return xla::ReducePrecision(x, 8, 7);
  return x;
}

std::vector<xla::XlaOp> Repeat(
    xla::XlaBuilder* builder, const char* name, size_t going, std::vector<xla::XlaOp> state,
    const std::function<std::vector<xla::XlaOp>(absl::Span<const xla::XlaOp>)>& body) {
  using States = absl::Span<const xla::XlaOp>;
  auto made = xla::WhileLoopHelper(
      [going](States now, xla::XlaBuilder*) -> absl::StatusOr<xla::XlaOp> {
        return xla::And(now[going], now[going]);  // The last operation is the result.
      },
      [&body](States now, xla::XlaBuilder*) -> absl::StatusOr<std::vector<xla::XlaOp>> {
        return body(now);
      },
      state, name, builder);
  if (made.ok()) return *std::move(made);
  builder->ReportError(made.status());
  return state;
}

xla::PrimitiveType WideType(xla::PrimitiveType type) {
  return type == xla::F16 || type == xla::BF16 ? xla::F32 : type;
}

}  // namespace opwright::xla_ops
