#include "xla_ops/xla/crops.h"

#include <array>

namespace opwright::xla_ops {
namespace {

// Where the pixels of crops are along one axis of the image: between two pixels of it.
struct Positions {
  xla::XlaOp low, high;  // [n, size], int32.
  xla::XlaOp part;       // How far from the lower to the higher.
  xla::XlaOp inside;     // Whether the position is in the image.
  int64_t dim;           // Of the crops.
};

xla::XlaOp Float(xla::XlaBuilder* builder, double value) {
  return xla::ConstantR0<float>(builder, static_cast<float>(value));
}

float Ratio(int64_t size, int64_t pixels) {
  return static_cast<float>(size - 1) / static_cast<float>(pixels - 1);
}

// The distance of neighbours in the units of the image. TensorFlow rounds it in another way for
// the gradient by the boxes.
xla::XlaOp StepOf(xla::XlaOp length, int64_t size, int64_t pixels, bool of_boxes) {
  xla::XlaBuilder* const builder = length.builder();
  if (of_boxes) return length * Float(builder, Ratio(size, pixels));
  // The barrier keeps XLA from multiplying by the inverse, which rounds in another way.
  const xla::XlaOp steps =
      xla::OptimizationBarrier(Float(builder, static_cast<double>(pixels - 1)));
  return length * Float(builder, static_cast<double>(size - 1)) / steps;
}

// The positions of the crops' `pixels` along an axis of the image, which has `size`. Boxes have
// the `axis` in two columns.
Positions PositionsOf(const Crops& crops, int64_t axis, bool of_boxes) {
  xla::XlaBuilder* const builder = crops.boxes.builder();
  const int64_t size = crops.image[axis == 0 ? 1 : 2];
  const int64_t pixels = axis == 0 ? crops.rows : crops.columns;
  const xla::XlaOp first = Column(crops.boxes, axis), last = Column(crops.boxes, axis + 2);
  const Sizes shape = {SizesOf(first)[0], pixels};
  const xla::XlaOp end = Float(builder, static_cast<double>(size - 1));
  xla::XlaOp at;
  if (pixels > 1) {
    const xla::XlaOp step = StepOf(last - first, size, pixels, of_boxes);
    at = Spread(Rounded(first * end), shape, {0}) +
         Rounded(Counts(builder, xla::F32, shape, 1) * Spread(step, shape, {0}));
  } else {
    at = Spread(Float(builder, 0.5) * (first + last) * end, shape, {0});
  }
  Positions made;
  made.inside = xla::And(xla::Ge(at, xla::ZerosLike(at)), xla::Le(at, Spread(end, shape, {})));
  at = xla::Select(made.inside, at, xla::ZerosLike(at));
  const auto whole = [](xla::XlaOp x) { return xla::ConvertElementType(x, xla::S32); };
  made.low = whole(crops.nearest ? xla::Round(at) : xla::Floor(at));
  made.high = crops.nearest ? made.low : whole(xla::Ceil(at));
  made.part = at - xla::Floor(at);
  made.dim = axis + 1;
  return made;
}

Sizes ShapeOf(const Crops& crops) {
  return {SizesOf(crops.images)[0], crops.rows, crops.columns, crops.image[3]};
}

// A value of each position along an axis, or of each pixel, for all elements of the crops.
xla::XlaOp ForAll(const Crops& crops, xla::XlaOp x, const Sizes& dims) {
  return Spread(x, ShapeOf(crops), dims);
}

xla::XlaOp Inside(const Crops& crops, const Positions& y, const Positions& x) {
  return xla::And(ForAll(crops, y.inside, {0, y.dim}), ForAll(crops, x.inside, {0, x.dim}));
}

// The rows of pixels in a table [batch * height * width, channels], in one row of all crops.
// `image` says in which image each box is.
xla::XlaOp RowsOfPixels(const Crops& crops, xla::XlaOp image, xla::XlaOp y, xla::XlaOp x) {
  const Sizes shape = {SizesOf(image)[0], crops.rows, crops.columns};
  const int64_t height = crops.image[1], width = crops.image[2];
  const xla::PrimitiveType type = IndexType(crops.image[0] * height * width);
  const auto all = [&](xla::XlaOp index, const Sizes& dims) {
    return Spread(xla::ConvertElementType(index, type), shape, dims);
  };
  const xla::XlaOp of_image = all(image, {0});
  const xla::XlaOp row = of_image * xla::FullLike(of_image, height) + all(y, {0, 1});
  const xla::XlaOp made = row * xla::FullLike(row, width) + all(x, {0, 2});
  return xla::Reshape(made, {Product(shape)});
}

Sizes TableShape(const Crops& crops) {
  const Sizes& image = crops.image;
  return {image[0] * image[1] * image[2], image[3]};
}

// The pixels of `image` at positions, as float32.
xla::XlaOp PixelsAt(const Crops& crops, xla::XlaOp image, xla::XlaOp y, xla::XlaOp x) {
  const xla::XlaOp nearest = xla::Clamp(xla::ZerosLike(crops.images), crops.images,
                                        xla::FullLike(crops.images, crops.image[0] - 1));
  const xla::XlaOp pixels =
      GatherRows(xla::Reshape(image, TableShape(crops)), RowsOfPixels(crops, nearest, y, x));
  return xla::ConvertElementType(xla::Reshape(pixels, ShapeOf(crops)), xla::F32);
}

// The four pixels around each position: top left and right, bottom left and right.
std::array<xla::XlaOp, 4> Corners(const Crops& crops, xla::XlaOp image, const Positions& y,
                                  const Positions& x) {
  return {PixelsAt(crops, image, y.low, x.low), PixelsAt(crops, image, y.low, x.high),
          PixelsAt(crops, image, y.high, x.low), PixelsAt(crops, image, y.high, x.high)};
}

xla::XlaOp Between(xla::XlaOp low, xla::XlaOp high, xla::XlaOp part) {
  return low + (high - low) * part;
}

}  // namespace

xla::XlaOp CropAndResize(const Crops& crops, xla::XlaOp image, float outside) {
  const Positions y = PositionsOf(crops, 0, false), x = PositionsOf(crops, 1, false);
  xla::XlaOp made;
  if (crops.nearest) {
    made = PixelsAt(crops, image, y.low, x.low);
  } else {
    const auto corners = Corners(crops, image, y, x);
    const xla::XlaOp right = ForAll(crops, x.part, {0, 2});
    made = Between(Between(corners[0], corners[1], right),
                   Between(corners[2], corners[3], right), ForAll(crops, y.part, {0, 1}));
  }
  return xla::Select(Inside(crops, y, x), made,
                     ForAll(crops, Float(image.builder(), outside), {}));
}

xla::XlaOp CropGradientOfImage(const Crops& crops, xla::XlaOp grads, xla::PrimitiveType type) {
  xla::XlaBuilder* const builder = grads.builder();
  const Positions y = PositionsOf(crops, 0, false), x = PositionsOf(crops, 1, false);
  const Sizes pixels = {SizesOf(crops.images)[0], crops.rows, crops.columns};
  const xla::XlaOp exists = Spread(InRange(crops.images, crops.image[0]), pixels, {0});
  const xla::XlaOp inside =
      xla::And(Spread(y.inside, pixels, {0, 1}), Spread(x.inside, pixels, {0, 2}));
  const xla::XlaOp used = xla::Reshape(xla::And(exists, inside), {Product(pixels)});
  const Sizes flat = {Product(pixels), crops.image[3]};
  const xla::PrimitiveType wide = WideType(type);
  std::vector<xla::XlaOp> rows, updates;
  const auto add = [&](xla::XlaOp row, xla::XlaOp column, xla::XlaOp update) {
    const xla::XlaOp at = RowsOfPixels(crops, crops.images, row, column);
    rows.push_back(xla::Select(used, at, xla::FullLike(at, -1)));
    updates.push_back(xla::ConvertElementType(xla::Reshape(update, flat), wide));
  };
  if (crops.nearest) {
    add(y.low, x.low, grads);
  } else {
    const xla::XlaOp one = xla::FullLike(grads, 1);
    const xla::XlaOp right = ForAll(crops, x.part, {0, 2});
    const xla::XlaOp down = ForAll(crops, y.part, {0, 1});
    const xla::XlaOp top = (one - down) * grads, bottom = down * grads;
    add(y.low, x.low, (one - right) * top);
    add(y.low, x.high, right * top);
    add(y.high, x.low, (one - right) * bottom);
    add(y.high, x.high, right * bottom);
  }
  const xla::XlaOp made =
      ScatterRows(Zeros(builder, wide, TableShape(crops)), xla::ConcatInDim(builder, rows, 0),
                  xla::ConcatInDim(builder, updates, 0), Combine::kAdd);
  return xla::ConvertElementType(xla::Reshape(made, crops.image), type);
}

namespace {

// The gradients by the two ends of boxes along an axis, from those by the positions [n,
// pixels].
std::array<xla::XlaOp, 2> OfEnds(xla::XlaOp grads, int64_t size) {
  xla::XlaBuilder* const builder = grads.builder();
  const Sizes shape = SizesOf(grads);
  const xla::XlaOp end = Spread(Float(builder, static_cast<double>(size - 1)), shape, {});
  xla::XlaOp of_last = end * xla::FullLike(end, 0.5), of_first = of_last;
  if (shape[1] > 1) {
    of_last = Counts(builder, xla::F32, shape, 1);
    of_last = of_last * xla::FullLike(of_last, static_cast<double>(Ratio(size, shape[1])));
    of_first = end - of_last;
  }
  const auto total = [](xla::XlaOp x) { return ReduceDims(x, Combine::kAdd, {1}); };
  return {total(grads * of_first), total(grads * of_last)};
}

}  // namespace

xla::XlaOp CropGradientOfBoxes(const Crops& crops, xla::XlaOp grads, xla::XlaOp image) {
  const Positions y = PositionsOf(crops, 0, true), x = PositionsOf(crops, 1, true);
  const auto corners = Corners(crops, image, y, x);
  const xla::XlaOp inside = Inside(crops, y, x);
  const auto slope = [&](const Positions& other, std::array<int, 4> from_to, int64_t kept) {
    const xla::XlaOp part = ForAll(crops, other.part, {0, other.dim});
    const auto corner = [&](size_t i) { return corners[static_cast<size_t>(from_to[i])]; };
    const xla::XlaOp made = (xla::FullLike(part, 1) - part) * (corner(1) - corner(0)) +
                            part * (corner(3) - corner(2));
    return ReduceDims(xla::Select(inside, made * grads, xla::ZerosLike(grads)), Combine::kAdd,
                      {kept == 1 ? 2 : 1, 3});
  };
  const auto of_y = OfEnds(slope(x, {0, 2, 1, 3}, 1), crops.image[1]);
  const auto of_x = OfEnds(slope(y, {0, 1, 2, 3}, 2), crops.image[2]);
  const Sizes column = {SizesOf(crops.images)[0], 1};
  std::vector<xla::XlaOp> columns;
  for (const xla::XlaOp one : {of_y[0], of_x[0], of_y[1], of_x[1]}) {
    columns.push_back(xla::Reshape(one, column));
  }
  return xla::ConcatInDim(grads.builder(), columns, 1);
}

}  // namespace opwright::xla_ops
