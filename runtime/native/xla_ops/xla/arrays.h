// Programs of ops that rearrange or select elements.
#pragma once

#include <cstdint>

#include "base/xla/builder.h"
#include "xla_ops/xla/pieces.h"

namespace opwright::xla_ops {

// The coordinates of flat indices in an array. `dims` [rank] has the array's sizes. `indices`
// has the shape `shape`. The result is [rank] + shape.
xla::XlaOp UnravelIndex(xla::XlaOp indices, xla::XlaOp dims, int64_t rank, const Sizes& shape);

// The n-th smallest, or largest, values along the last dimension of `x`. `n` is clamped.
xla::XlaOp NthElement(xla::XlaOp x, xla::XlaOp n, bool reverse, const Sizes& shape);

// For each row of `predictions` [batch, classes], whether fewer than `k` predictions exceed
// that of the row's target. Rows whose target or predictions are not valid give false.
xla::XlaOp InTopK(xla::XlaOp predictions, xla::XlaOp targets, int64_t k, int64_t batch,
                  int64_t classes);

}  // namespace opwright::xla_ops
