// The program of IsotonicRegression.
#pragma once

#include "base/xla/builder.h"
#include "xla_ops/xla/pieces.h"

namespace opwright::xla_ops {

struct Isotonic {
  xla::XlaOp fit;       // [rows, size].
  xla::XlaOp segments;  // [rows, size], int32.
};

// Fits the closest rows that never go up to the rows of `x` [rows, size].
Isotonic IsotonicRegression(xla::XlaOp x);

}  // namespace opwright::xla_ops
