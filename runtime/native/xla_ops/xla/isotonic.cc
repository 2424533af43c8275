#include "xla_ops/xla/isotonic.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace opwright::xla_ops {
namespace {

// Pools of neighbours are on a stack for each row, and the last pool is beside it. A step joins
// the last pool with the one below if their means go up. Otherwise it puts the last pool on the
// stack, and makes a new one of the next element.
struct Pool {
  enum At : size_t {
    kGoing,
    kInput,  // All elements [rows * size].
    kTaken,  // How many elements of each row are in pools.
    kDepth,  // How many pools are on the stack.
    kSum,    // Of the last pool: its sum, mean and first position.
    kMean,
    kStart,
    kSums,  // The same of the pools on the stack [rows * size].
    kMeans,
    kStarts,
    kStates
  };
};

using States = std::vector<xla::XlaOp>;

// The positions of one element of each row in a flat tensor; -1 where there is none.
xla::XlaOp PlaceOf(xla::XlaOp column, int64_t size, xla::XlaOp exists) {
  const Sizes shape = SizesOf(column);
  const xla::PrimitiveType type = IndexType(shape[0] * size);
  const xla::XlaOp row = Counts(column.builder(), type, shape, 0);
  const xla::XlaOp flat =
      row * xla::FullLike(row, size) + xla::ConvertElementType(column, type);
  return xla::Select(exists, flat, xla::FullLike(flat, -1));
}

// Puts the last pool of each row on its stack, where `chosen` says so.
void Push(xla::XlaOp chosen, int64_t size, States* state) {
  States& now = *state;
  const xla::XlaOp place = PlaceOf(now[Pool::kDepth], size, chosen);
  now[Pool::kSums] = ScatterRows(now[Pool::kSums], place, now[Pool::kSum], Combine::kReplace);
  now[Pool::kMeans] =
      ScatterRows(now[Pool::kMeans], place, now[Pool::kMean], Combine::kReplace);
  now[Pool::kStarts] =
      ScatterRows(now[Pool::kStarts], place, now[Pool::kStart], Combine::kReplace);
  now[Pool::kDepth] = now[Pool::kDepth] + xla::ConvertElementType(chosen, xla::S32);
}

States JoinOrTake(absl::Span<const xla::XlaOp> before, xla::PrimitiveType type, int64_t size) {
  States now(before.begin(), before.end());
  const xla::XlaOp zero = xla::ZerosLike(now[Pool::kDepth]);
  const xla::XlaOp one = xla::FullLike(zero, 1);
  const xla::XlaOp deep = xla::Gt(now[Pool::kDepth], zero);
  const xla::XlaOp below = PlaceOf(xla::Max(now[Pool::kDepth] - one, zero), size, deep);
  const xla::XlaOp joins =
      xla::And(deep, xla::Gt(now[Pool::kMean], GatherRows(now[Pool::kMeans], below)));
  const xla::XlaOp start = GatherRows(now[Pool::kStarts], below);
  const xla::XlaOp sum = RoundedTo(type, GatherRows(now[Pool::kSums], below) + now[Pool::kSum]);
  const xla::XlaOp count =
      RoundedTo(type, xla::ConvertElementType(now[Pool::kTaken] - start, TypeOf(sum)));
  const xla::XlaOp mean = RoundedTo(type, sum / count);

  const xla::XlaOp left = xla::Lt(now[Pool::kTaken], xla::FullLike(zero, size));
  const xla::XlaOp takes = xla::And(left, xla::Not(joins));
  const xla::XlaOp next =
      GatherRows(now[Pool::kInput], PlaceOf(now[Pool::kTaken], size, takes));
  Push(takes, size, &now);
  const auto either = [&](xla::XlaOp joined, xla::XlaOp taken, xla::XlaOp kept) {
    return xla::Select(joins, joined, xla::Select(takes, taken, kept));
  };
  now[Pool::kSum] = either(sum, next, now[Pool::kSum]);
  now[Pool::kMean] = either(mean, next, now[Pool::kMean]);
  now[Pool::kStart] = either(start, now[Pool::kTaken], now[Pool::kStart]);
  now[Pool::kDepth] = now[Pool::kDepth] - xla::ConvertElementType(joins, xla::S32);
  now[Pool::kTaken] = now[Pool::kTaken] + xla::ConvertElementType(takes, xla::S32);
  now[Pool::kGoing] = xla::ReduceAll(
      xla::Or(joins, takes), xla::ConstantR0<bool>(now[Pool::kGoing].builder(), false),
      xla::CreateScalarOrComputation(xla::PRED, now[Pool::kGoing].builder()));
  return now;
}

// The number of the pool of each element, from the first positions of the pools.
xla::XlaOp PoolNumbers(xla::XlaOp starts, xla::XlaOp counts, const Sizes& shape) {
  xla::XlaBuilder* const builder = starts.builder();
  const int64_t all = shape[0] * shape[1];
  const xla::PrimitiveType type = IndexType(all);
  const xla::XlaOp exists =
      xla::Lt(Counts(builder, xla::S32, shape, 1), Spread(counts, shape, {0}));
  const xla::XlaOp row = Counts(builder, type, shape, 0);
  const xla::XlaOp place = row * xla::FullLike(row, shape[1]) +
                           xla::ConvertElementType(xla::Reshape(starts, shape), type);
  const xla::XlaOp at = xla::Select(exists, place, xla::FullLike(place, -1));
  const xla::XlaOp ones = xla::Broadcast(xla::One(builder, xla::S32), {all});
  const xla::XlaOp marks = ScatterRows(Zeros(builder, xla::S32, {all}), xla::Reshape(at, {all}),
                                       ones, Combine::kReplace);
  xla::XlaOp sums = xla::Reshape(marks, shape);
  for (int64_t step = 1; step < shape[1]; step *= 2) {
    sums = sums + xla::PadInDim(xla::SliceInDim(sums, 0, shape[1] - step, 1, 1),
                                xla::Zero(builder, xla::S32), 1, step, 0);
  }
  return sums - xla::FullLike(sums, 1);
}

}  // namespace

Isotonic IsotonicRegression(xla::XlaOp x) {
  xla::XlaBuilder* const builder = x.builder();
  const xla::PrimitiveType type = TypeOf(x), wide = WideType(type);
  const Sizes shape = SizesOf(x);
  const int64_t rows = shape[0], size = shape[1], all = rows * size;
  if (all == 0) return {x, Zeros(builder, xla::S32, shape)};
  States state(Pool::kStates);
  const xla::XlaOp given = xla::ConvertElementType(x, wide);
  state[Pool::kGoing] = xla::ConstantR0<bool>(builder, true);
  state[Pool::kInput] = xla::Reshape(given, {all});
  state[Pool::kTaken] = xla::Broadcast(xla::One(builder, xla::S32), {rows});
  state[Pool::kDepth] = state[Pool::kStart] = Zeros(builder, xla::S32, {rows});
  state[Pool::kSum] = state[Pool::kMean] = Column(given, 0);
  state[Pool::kSums] = state[Pool::kMeans] = Zeros(builder, wide, {all});
  state[Pool::kStarts] = Zeros(builder, xla::S32, {all});
  state = Repeat(builder, "pool", Pool::kGoing, state,
                 [&](absl::Span<const xla::XlaOp> now) { return JoinOrTake(now, type, size); });
  Push(xla::Broadcast(xla::ConstantR0<bool>(builder, true), {rows}), size, &state);
  const xla::XlaOp segments = PoolNumbers(state[Pool::kStarts], state[Pool::kDepth], shape);
  const xla::PrimitiveType index = IndexType(all);
  const xla::XlaOp row = Counts(builder, index, shape, 0);
  const xla::XlaOp place =
      row * xla::FullLike(row, size) + xla::ConvertElementType(segments, index);
  const xla::XlaOp fit = GatherRows(state[Pool::kMeans], xla::Reshape(place, {all}));
  return {xla::ConvertElementType(xla::Reshape(fit, shape), type), segments};
}

}  // namespace opwright::xla_ops
