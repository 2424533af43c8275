// Programs of reductions over segments of rows.
#pragma once

#include <cstdint>

#include "base/xla/builder.h"
#include "xla_ops/xla/pieces.h"

namespace opwright::xla_ops {

enum class Reduction { kSum, kMean, kSqrtN, kProduct, kMax, kMin };

// Reduces the rows of `data` [n, ...] whose id in `ids` [n] is equal. The result has `segments`
// rows. Rows with other ids are dropped. A segment without rows is 1 for kProduct, else 0.
xla::XlaOp ReduceSegments(Reduction reduction, xla::XlaOp data, xla::XlaOp ids,
                          int64_t segments);

// The gradient of the reduction of rows `indices` [n] of a table, by the table. `grad` has a
// row for each segment. The result has `rows` rows. Pairs that are out of range are dropped.
xla::XlaOp SparseSegmentGradient(Reduction reduction, xla::XlaOp grad, xla::XlaOp indices,
                                 xla::XlaOp ids, int64_t rows);

}  // namespace opwright::xla_ops
