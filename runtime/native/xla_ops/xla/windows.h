// Programs of ops that move a window over a tensor.
#pragma once

#include <cstdint>
#include <vector>

#include "base/xla/builder.h"
#include "xla_ops/xla/pieces.h"

namespace opwright::xla_ops {

// How a window moves along one dimension. Its elements are `rate` apart. `before` elements are
// missing before the first of `size`, and it stops at `made` places.
struct Moves {
  int64_t size, window, stride, rate, before, made;

  // How many elements the window passes over, with those that are missing.
  int64_t Passed() const;
};

// The patches of `x` [batch, sizes..., channels]: [batch, made..., window... * channels].
// Elements that are missing are 0.
xla::XlaOp Patches(xla::XlaOp x, const std::vector<Moves>& moves);

// A window over the rows and columns of images [batch, height, width, channels].
struct Window {
  Moves rows, columns;
};

// The best elements of windows [batch, rows, columns, channels].
struct Best {
  xla::XlaOp values;
  xla::XlaOp places;  // In the window, counted row by row; -1 if there is none. int32.
};

// The first of the largest elements of each window, after `filter` [height, width, channels] is
// added. Only values above the lowest number count.
Best LargestSums(xla::XlaOp x, xla::XlaOp filter, const Window& window);
// The gradients by `x` and by `filter`, from `grads` of the sums at `places`.
xla::XlaOp GradientOfImages(xla::XlaOp places, xla::XlaOp grads, const Window& window);
xla::XlaOp GradientOfFilter(xla::XlaOp places, xla::XlaOp grads, const Window& window);

// The first of the largest elements of each window. A NaN counts if it is the first element.
// `of_batch` says that places count from the start of the batch and not of the image.
Best LargestElements(xla::XlaOp x, const Window& window, bool of_batch,
                     xla::PrimitiveType type);
// Adds `grads` to zeros of `shape` at `places`. Places that do not exist are dropped.
xla::XlaOp AddAtPlaces(xla::XlaOp grads, xla::XlaOp places, const Sizes& shape, bool of_batch);

}  // namespace opwright::xla_ops
