// Programs of ops on ragged tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "base/xla/builder.h"
#include "xla_ops/xla/pieces.h"

namespace opwright::xla_ops {

// One ragged dimension: the row of each value, and its position in the row.
struct RaggedLevel {
  xla::XlaOp rows;       // [values]
  xla::XlaOp positions;  // [values]
  int64_t count;         // How many rows there are.
};

RaggedLevel LevelOfSplits(xla::XlaOp splits, int64_t rows, int64_t values);
// `ids` [values] has the row of each value, and is sorted.
RaggedLevel LevelOfRowIds(xla::XlaOp ids, int64_t rows);

// Puts `values` [n, ...] into a dense tensor of shape `sizes`, which has the rows, a size for
// each level, and the inner dimensions. Values that do not fit are dropped. Elements without a
// value have that of `otherwise`, which broadcasts to the inner dimensions.
xla::XlaOp RaggedToDense(const std::vector<RaggedLevel>& levels, xla::XlaOp values,
                         xla::XlaOp otherwise, const Sizes& sizes);

// The indices [elements, rank] and the shape of a ragged tensor as a sparse one. `splits` has
// the splits of each level, and `values` the shape of the values.
struct RaggedIndices {
  xla::XlaOp indices;
  xla::XlaOp shape;
};
RaggedIndices RaggedToSparse(const std::vector<xla::XlaOp>& splits, const Sizes& values);

}  // namespace opwright::xla_ops
