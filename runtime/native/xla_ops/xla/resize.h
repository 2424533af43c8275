// Programs that resize images.
#pragma once

#include <cstdint>

#include "base/xla/builder.h"
#include "xla_ops/xla/pieces.h"

namespace opwright::xla_ops {

// How one dimension of images is resized.
struct Resizing {
  int64_t from, to;
  // The distance of new pixels in old ones.
  float scale;
};

// Whether pixels have their place at their centers. This also decides the cubic polynomial.
enum class Centers { kCorner, kHalf };

// The images `x` [batch, rows.from, columns.from, channels] in a new size, by cubic
// interpolation. The result is float32.
xla::XlaOp ResizeCubic(xla::XlaOp x, const Resizing& rows, const Resizing& columns,
                       Centers centers);
// Its gradient by `x` in `type`, from `grads` of the result.
xla::XlaOp ResizeCubicGradient(xla::XlaOp grads, const Resizing& rows, const Resizing& columns,
                               Centers centers, xla::PrimitiveType type);

// The most old pixels that a new pixel covers along a dimension.
int64_t MostCovered(const Resizing& resizing);
// The images in a new size, whose pixels are the means of the old ones that they cover. The
// result is float32.
xla::XlaOp ResizeArea(xla::XlaOp x, const Resizing& rows, const Resizing& columns);

}  // namespace opwright::xla_ops
