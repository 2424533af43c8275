// The program of ops that find the unique elements of a tensor.
#pragma once

#include <cstdint>

#include "base/xla/builder.h"
#include "xla_ops/xla/pieces.h"

namespace opwright::xla_ops {

struct Unique {
  xla::XlaOp rows;     // [n, ...], in the order in which they come first.
  xla::XlaOp indices;  // [n]: which of them each row is. int32.
  xla::XlaOp counts;   // [n]: how often each comes. int32.
  xla::XlaOp size;     // How many there are. What comes after them means nothing. int32.
};

// Finds the unique rows of `x` [n, ...], which has at least one row. A NaN equals no other.
Unique FindUnique(xla::XlaOp x);

}  // namespace opwright::xla_ops
