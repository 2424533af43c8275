#include "xla_ops/xla/resize.h"

#include <cmath>
#include <limits>
#include <vector>

namespace opwright::xla_ops {
namespace {

// What a new pixel takes from old ones: [to, taps]. All indices are those of old pixels.
struct Shares {
  xla::XlaOp indices, weights;
};

// The values of TensorFlow's table of cubic polynomials.
constexpr int64_t kSteps = 1024;

// The polynomials at steps from 0 to 1: first that of the two near pixels, then that of the two
// far ones.
xla::XlaOp CubicTable(xla::XlaBuilder* builder, double a) {
  std::vector<float> table;
  for (const bool far : {false, true}) {
    for (int64_t i = 0; i <= kSteps; ++i) {
      const double x = static_cast<double>(i) / static_cast<double>(kSteps) + (far ? 1 : 0);
      const double value =
          far ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : ((a + 2) * x - (a + 3)) * x * x + 1;
      table.push_back(static_cast<float>(value));
    }
  }
  return xla::ConstantR1<float>(builder, table);
}

// The place of each new pixel among the old ones.
xla::XlaOp PlaceOfPixels(xla::XlaBuilder* builder, const Resizing& resizing, Centers centers) {
  const xla::XlaOp pixels = Counts(builder, xla::F32, {resizing.to}, 0);
  const xla::XlaOp scale = xla::ConstantR0<float>(builder, resizing.scale);
  if (centers == Centers::kCorner) return pixels * scale;
  const xla::XlaOp half = xla::ConstantR0<float>(builder, 0.5f);
  return Rounded((pixels + half) * scale) - half;
}

// Divides the weights of each new pixel by their sum, if it is not nearly 0.
xla::XlaOp Normalized(xla::XlaOp weights) {
  const Sizes shape = SizesOf(weights);
  const xla::XlaOp sum = Spread(ReduceDims(weights, Combine::kAdd, {1}), shape, {0});
  const double least = 1000.0 * static_cast<double>(std::numeric_limits<float>::min());
  const xla::XlaOp one = xla::FullLike(sum, 1);
  const xla::XlaOp divides = xla::Ge(xla::Abs(sum), xla::FullLike(sum, least));
  return weights * xla::Select(divides, one / sum, one);
}

Shares CubicShares(xla::XlaBuilder* builder, const Resizing& resizing, Centers centers) {
  const xla::XlaOp place = PlaceOfPixels(builder, resizing, centers);
  const xla::XlaOp low = xla::Floor(place);
  const xla::XlaOp part = place - low;
  const xla::XlaOp step = xla::ConvertElementType(
      xla::RoundToEven(part * xla::FullLike(part, static_cast<double>(kSteps))), xla::S32);
  const xla::XlaOp first = xla::ConvertElementType(low, xla::S32);
  const auto number = [&](int64_t x) { return xla::FullLike(first, x); };
  const xla::XlaOp back = number(kSteps) - step, far = number(kSteps + 1);
  const Sizes one = {resizing.to, 1};
  std::vector<xla::XlaOp> indices, steps;
  const std::vector<xla::XlaOp> in_table = {far + step, step, back, far + back};
  for (int64_t tap = 0; tap < 4; ++tap) {
    indices.push_back(xla::Reshape(first + number(tap - 1), one));
    steps.push_back(xla::Reshape(in_table[static_cast<size_t>(tap)], one));
  }
  const Sizes shape = {resizing.to, 4};
  const xla::XlaOp at = xla::ConcatInDim(builder, indices, 1);
  const bool half = centers == Centers::kHalf;
  xla::XlaOp weights = xla::Reshape(
      GatherRows(CubicTable(builder, half ? -0.5 : -0.75),
                 xla::Reshape(xla::ConcatInDim(builder, steps, 1), {resizing.to * 4})),
      shape);
  if (half) {
    const xla::XlaOp exists = InRange(at, resizing.from);
    weights = Normalized(xla::Select(exists, weights, xla::ZerosLike(weights)));
  }
  return {xla::Clamp(xla::ZerosLike(at), at, xla::FullLike(at, resizing.from - 1)), weights};
}

// How much of each old pixel a new one covers. The indices of those that it does not cover are
// -1.
Shares AreaShares(xla::XlaBuilder* builder, const Resizing& resizing) {
  const Sizes shape = {resizing.to, MostCovered(resizing)};
  const xla::XlaOp scale = Spread(xla::ConstantR0<float>(builder, resizing.scale), shape, {});
  const xla::XlaOp pixels = Counts(builder, xla::F32, shape, 0);
  const xla::XlaOp one = xla::FullLike(pixels, 1);
  const xla::XlaOp start = Rounded(pixels * scale);
  const xla::XlaOp end = Rounded((pixels + one) * scale);
  const xla::XlaOp index = xla::ConvertElementType(xla::Floor(start), xla::S32) +
                           Counts(builder, xla::S32, shape, 1);
  const xla::XlaOp at = xla::ConvertElementType(index, xla::F32);
  const xla::XlaOp ends_before = xla::Gt(at + one, end);
  const xla::XlaOp of_first = xla::Select(ends_before, scale, at + one - start);
  const xla::XlaOp of_others = xla::Select(ends_before, end - at, one);
  const xla::XlaOp covered = xla::Lt(index, xla::ConvertElementType(xla::Ceil(end), xla::S32));
  const xla::XlaOp inside =
      xla::Clamp(xla::ZerosLike(index), index, xla::FullLike(index, resizing.from - 1));
  return {xla::Select(covered, inside, xla::FullLike(index, -1)),
          xla::Select(xla::Lt(at, start), of_first, of_others)};
}

// Resizes one dimension of `x`.
xla::XlaOp ResizedAlong(xla::XlaOp x, int64_t dim, const Shares& shares) {
  const Sizes shares_shape = SizesOf(shares.indices);
  Sizes split = SizesOf(x);
  const auto at = static_cast<size_t>(dim);
  split[at] = shares_shape[0];
  split.insert(split.begin() + dim + 1, shares_shape[1]);
  const xla::XlaOp flat = xla::Reshape(shares.indices, {Product(shares_shape)});
  const xla::XlaOp taken = xla::Reshape(GatherAlong(x, dim, flat), split);
  const auto all = [&](xla::XlaOp one) { return Spread(one, split, {dim, dim + 1}); };
  const xla::XlaOp covered = all(xla::Ge(shares.indices, xla::ZerosLike(shares.indices)));
  const xla::XlaOp weighted =
      xla::Select(covered, taken * all(shares.weights), xla::ZerosLike(taken));
  return ReduceDims(weighted, Combine::kAdd, {dim + 1});
}

// The gradient of ResizedAlong.
xla::XlaOp SharedAlong(xla::XlaOp grads, int64_t dim, const Shares& shares, int64_t from) {
  const Sizes shares_shape = SizesOf(shares.indices);
  Sizes order = {0, 1, 2, 3};
  std::swap(order[0], order[static_cast<size_t>(dim)]);
  const xla::XlaOp first = xla::Transpose(grads, order);
  Sizes shape = SizesOf(first), split = shape;
  split.insert(split.begin() + 1, shares_shape[1]);
  const xla::XlaOp weights = xla::ConvertElementType(shares.weights, TypeOf(grads));
  const xla::XlaOp weighted =
      Spread(first, split, {0, 2, 3, 4}) * Spread(weights, split, {0, 1});
  const int64_t count = Product(shares_shape);
  const xla::XlaOp updates = xla::Reshape(weighted, {count, shape[1], shape[2], shape[3]});
  shape[0] = from;
  const xla::XlaOp made =
      ScatterRows(Zeros(grads.builder(), TypeOf(grads), shape),
                  xla::Reshape(shares.indices, {count}), updates, Combine::kAdd);
  return xla::Transpose(made, order);
}

}  // namespace

xla::XlaOp ResizeCubic(xla::XlaOp x, const Resizing& rows, const Resizing& columns,
                       Centers centers) {
  xla::XlaBuilder* const builder = x.builder();
  const xla::XlaOp given = xla::ConvertElementType(x, xla::F32);
  const xla::XlaOp made = ResizedAlong(given, 1, CubicShares(builder, rows, centers));
  return ResizedAlong(made, 2, CubicShares(builder, columns, centers));
}

xla::XlaOp ResizeCubicGradient(xla::XlaOp grads, const Resizing& rows, const Resizing& columns,
                               Centers centers, xla::PrimitiveType type) {
  xla::XlaBuilder* const builder = grads.builder();
  const xla::XlaOp given = xla::ConvertElementType(grads, type);
  const xla::XlaOp made = SharedAlong(given, 1, CubicShares(builder, rows, centers), rows.from);
  return SharedAlong(made, 2, CubicShares(builder, columns, centers), columns.from);
}

int64_t MostCovered(const Resizing& resizing) {
  // Two are covered in part. Float32 has not all digits of the places of large images.
  const auto whole = static_cast<int64_t>(std::ceil(resizing.scale));
  return whole + 2 + resizing.from / (int64_t{1} << 22);
}

xla::XlaOp ResizeArea(xla::XlaOp x, const Resizing& rows, const Resizing& columns) {
  xla::XlaBuilder* const builder = x.builder();
  const xla::XlaOp given = xla::ConvertElementType(x, xla::F32);
  const xla::XlaOp sums = ResizedAlong(ResizedAlong(given, 2, AreaShares(builder, columns)), 1,
                                       AreaShares(builder, rows));
  const double area = static_cast<double>(rows.scale * columns.scale);
  return sums * xla::FullLike(sums, 1.0 / area);
}

}  // namespace opwright::xla_ops
