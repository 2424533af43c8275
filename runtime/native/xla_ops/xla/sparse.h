// Programs of ops on sparse tensors: indices [count, rank], values [count] and a shape [rank].
#pragma once

#include <cstdint>

#include "base/xla/builder.h"
#include "xla_ops/xla/pieces.h"

namespace opwright::xla_ops {

struct Sparse {
  xla::XlaOp indices;
  xla::XlaOp values;
};

// The product of a sparse matrix and a dense one, with `rows` rows. `adjoint` is of the sparse
// matrix. Entries that are out of range are dropped.
xla::XlaOp SparseTimesDense(const Sparse& a, bool adjoint, xla::XlaOp b, int64_t rows);

// Sorts by index, row by row. Entries with equal indices keep their order.
Sparse SortIndices(const Sparse& sparse);

// Indices of the same elements in another shape of `new_rank` dimensions, one of which may be
// -1. The second result is the shape. Both have 64 bits.
struct Reshaped {
  xla::XlaOp indices;
  xla::XlaOp shape;
};
Reshaped ReshapeIndices(xla::XlaOp indices, xla::XlaOp shape, xla::XlaOp new_shape);

// The softmax of each row, which is the last dimension. Indices must be sorted.
xla::XlaOp SparseSoftmax(const Sparse& sparse);

// Reduces to a dense tensor of the dimensions that `kept` lists, of these sizes. Elements
// without entries are 0.
xla::XlaOp ReduceSparse(const Sparse& sparse, Combine combine, const Sizes& kept,
                        const Sizes& sizes);

// The indices [row, 0, ...] of the first element of each row: [rows, rank].
xla::XlaOp StartsOfRows(xla::XlaBuilder* builder, int64_t rows, int64_t rank);

// Entries in the order of their rows, with one of value `filler` at the start of each of `rows`
// rows that has none. There must be at least one entry and one row. A row that does not exist
// is the nearest.
struct Filled {
  Sparse entries;     // Of the largest size that they can have.
  xla::XlaOp size;    // How many there are. It has 32 or 64 bits.
  xla::XlaOp empty;   // For each row, whether it had no entry.
  xla::XlaOp places;  // For each entry, its position in `entries`, in as many bits.
};
Filled FillEmptyRows(const Sparse& sparse, xla::XlaOp filler, int64_t rows);

// The elements of a dense tensor, broadcast to `rank` dimensions, at the indices.
xla::XlaOp DenseAt(xla::XlaOp dense, xla::XlaOp indices, int64_t rank);

}  // namespace opwright::xla_ops
