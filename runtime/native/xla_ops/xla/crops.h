// Programs that cut boxes out of images and resize them.
#pragma once

#include <cstdint>

#include "base/xla/builder.h"
#include "xla_ops/xla/pieces.h"

namespace opwright::xla_ops {

// What is cut: from images [batch, height, width, channels] the boxes [n, 4], each of which
// becomes a crop of the size `rows` x `columns`. All boxes, images and crops have elements.
struct Crops {
  Sizes image;
  xla::XlaOp boxes;
  xla::XlaOp images;  // Which image each box is in. If there is none, it is the nearest.
  int64_t rows, columns;
  bool nearest;  // Takes the nearest pixel. Otherwise it interpolates.
};

// The crops of `image`, with `outside` where a box is outside of its image.
xla::XlaOp CropAndResize(const Crops& crops, xla::XlaOp image, float outside);

// The gradient by the images in `type`, from `grads` of the crops. Boxes whose image does not
// exist are dropped.
xla::XlaOp CropGradientOfImage(const Crops& crops, xla::XlaOp grads, xla::PrimitiveType type);

// The gradient by the boxes.
xla::XlaOp CropGradientOfBoxes(const Crops& crops, xla::XlaOp grads, xla::XlaOp image);

}  // namespace opwright::xla_ops
