// Pieces from which the programs of ops are made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "base/xla/builder.h"

namespace opwright::xla_ops {

using Sizes = std::vector<int64_t>;

// How a scatter or a reduction combines two values.
enum class Combine { kAdd, kMultiply, kMax, kMin, kReplace };

int64_t Product(absl::Span<const int64_t> sizes);
Sizes Joined(absl::Span<const int64_t> first, absl::Span<const int64_t> second);

xla::XlaOp Scalar(xla::XlaBuilder* builder, xla::PrimitiveType type, double value);
xla::XlaOp Zeros(xla::XlaBuilder* builder, xla::PrimitiveType type, const Sizes& sizes);
// Numbers that count up along one dimension.
xla::XlaOp Counts(xla::XlaBuilder* builder, xla::PrimitiveType type, const Sizes& sizes,
                  int64_t dim);
// The type for indices below a bound. TPUs are faster with 32 bits.
xla::PrimitiveType IndexType(int64_t bound);

// The value with which `combine` changes nothing. For kReplace it is 0.
xla::XlaOp Neutral(xla::XlaBuilder* builder, xla::PrimitiveType type, Combine combine);
xla::XlaComputation Combiner(xla::XlaBuilder* builder, xla::PrimitiveType type,
                             Combine combine);

// Combines `updates` [n, ...] into the rows of `into` [rows, ...] that `rows` [n] names.
// Updates whose row does not exist are dropped.
xla::XlaOp ScatterRows(xla::XlaOp into, xla::XlaOp rows, xla::XlaOp updates, Combine combine);
// Combines `updates` [n] into the elements of `into` that `indices` [n, rank] names.
xla::XlaOp ScatterElements(xla::XlaOp into, xla::XlaOp indices, xla::XlaOp updates,
                           Combine combine);
// Returns the rows of `table` [rows, ...] that `rows` [n] names. Rows that do not exist are
// those nearest to them.
xla::XlaOp GatherRows(xla::XlaOp table, xla::XlaOp rows);
// Returns the elements of `from` that `indices` [n, rank] names.
xla::XlaOp GatherElements(xla::XlaOp from, xla::XlaOp indices);

// Returns the elements of `x` along one dimension that `indices` [n] names. Those that do not
// exist are the nearest.
xla::XlaOp GatherAlong(xla::XlaOp x, int64_t dim, xla::XlaOp indices);

// Whether each element is in [0, size).
xla::XlaOp InRange(xla::XlaOp x, int64_t size);

// Reduces dimensions.
xla::XlaOp ReduceDims(xla::XlaOp x, Combine combine, const Sizes& dims);
// The sums of the first i + 1 elements of a vector.
xla::XlaOp RunningSum(xla::XlaOp x);

// The i-th column of a matrix, element of a vector, and the matrix of columns of 64 bits.
xla::XlaOp Column(xla::XlaOp matrix, int64_t i);
xla::XlaOp Element(xla::XlaOp vector, int64_t i);
xla::XlaOp FromColumns(xla::XlaBuilder* builder, const std::vector<xla::XlaOp>& columns,
                       int64_t rows);
// A product with its own rounding. XLA may otherwise join it with a sum, which rounds once.
xla::XlaOp Rounded(xla::XlaOp product);
// `x` as numbers of `type` are rounded. XLA may keep more digits of 16 bits than these have.
xla::XlaOp RoundedTo(xla::PrimitiveType type, xla::XlaOp x);
// Repeats `body` on `state` as long as the element `going` of the state, a truth, holds.
std::vector<xla::XlaOp> Repeat(
    xla::XlaBuilder* builder, const char* name, size_t going, std::vector<xla::XlaOp> state,
    const std::function<std::vector<xla::XlaOp>(absl::Span<const xla::XlaOp>)>& body);
// The type in which numbers of `type` are summed.
xla::PrimitiveType WideType(xla::PrimitiveType type);

// Returns `x` as the whole of a shape, given the dimensions that its own become.
inline xla::XlaOp Spread(xla::XlaOp x, const Sizes& sizes, const Sizes& dims) {
  return xla::BroadcastInDim(x, sizes, dims);
}

// The shape of an operand. If the program is invalid, it is that of a scalar: the builder keeps
// the error.
Sizes SizesOf(xla::XlaOp x);
xla::PrimitiveType TypeOf(xla::XlaOp x);

}  // namespace opwright::xla_ops
