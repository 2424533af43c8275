// Programs of ops that count values.
#pragma once

#include <cstdint>

#include "base/xla/builder.h"
#include "xla_ops/xla/pieces.h"

namespace opwright::xla_ops {

// The bin of each value in [0, bins). `range` has the least and the largest value of the bins.
// The result has 32 bits. The bin of a NaN is -1, unless there is only one bin.
xla::XlaOp HistogramBins(xla::XlaOp values, xla::XlaOp range, int64_t bins);

// Counts, or sums of weights, by row and bin. Values in `bins` [n] that are not in [0, size),
// and rows in `rows` [n] that do not exist, are dropped. Without weights, each value counts
// one. With `binary`, a bin has 1 if a value fell into it.
struct Binned {
  int64_t rows;
  int64_t size;
  xla::PrimitiveType type;
  bool binary;
};
xla::XlaOp CountInRows(const Binned& spec, xla::XlaOp rows, xla::XlaOp bins,
                       const xla::XlaOp* weights);

// The row of each of `count` values, of which row i has those from splits[i] to splits[i + 1].
// The result is in [-1, rows].
xla::XlaOp RowsOfSplits(xla::XlaOp splits, int64_t rows, int64_t count);

}  // namespace opwright::xla_ops
