#include "xla_ops/xla/unique.h"

#include <cstddef>
#include <optional>
#include <vector>

namespace opwright::xla_ops {
namespace {

// The positions of the state of the loop over columns. Rows that are equal so far are of one
// group.
struct Group {
  enum At : size_t { kGoing, kColumn, kColumns, kNumbers, kStates };
};

// What is sorted in place of `x`: equal elements have equal bits, as have 0 and -0.
xla::XlaOp SortKeys(xla::XlaOp x) {
  if (TypeOf(x) == xla::PRED) return xla::ConvertElementType(x, xla::S32);
  const xla::XlaOp zero = xla::ZerosLike(x);
  return xla::Select(xla::Eq(x, zero), zero, x);
}

// Whether each element of a vector differs from the one before.
xla::XlaOp DiffersFromLast(xla::XlaOp x) {
  const int64_t size = SizesOf(x)[0];
  const xla::XlaOp differs =
      xla::Ne(xla::SliceInDim(x, 1, size, 1, 0), xla::SliceInDim(x, 0, size - 1, 1, 0));
  return xla::PadInDim(differs, xla::ConstantR0<bool>(x.builder(), false), 0, 1, 0);
}

// Divides the groups of rows by one more column.
std::vector<xla::XlaOp> DivideGroups(absl::Span<const xla::XlaOp> before) {
  std::vector<xla::XlaOp> now(before.begin(), before.end());
  xla::XlaBuilder* const builder = now[Group::kColumn].builder();
  const Sizes shape = SizesOf(now[Group::kColumns]);
  const xla::XlaOp at = now[Group::kColumn];
  const xla::XlaOp column = xla::Reshape(
      xla::DynamicSlice(now[Group::kColumns], {at, xla::ZerosLike(at)}, {1, shape[1]}),
      {shape[1]});
  using Less = xla::XlaOp (*)(xla::XlaOp, xla::XlaOp, absl::Span<const int64_t>);
  const std::vector<std::optional<Less>> less = {xla::LtTotalOrder, xla::LtTotalOrder,
                                                 std::nullopt};
  const xla::XlaOp sorted =
      xla::Sort({now[Group::kNumbers], column, Counts(builder, xla::S32, {shape[1]}, 0)},
                xla::CreateScalarComparisonComputation(
                    "less", {xla::S32, TypeOf(column), xla::S32}, less, builder),
                0, true);
  const xla::XlaOp starts = xla::Or(DiffersFromLast(xla::GetTupleElement(sorted, 0)),
                                    DiffersFromLast(xla::GetTupleElement(sorted, 1)));
  const xla::XlaOp numbers = RunningSum(xla::ConvertElementType(starts, xla::S32));
  now[Group::kNumbers] = ScatterRows(now[Group::kNumbers], xla::GetTupleElement(sorted, 2),
                                     numbers, Combine::kReplace);
  now[Group::kColumn] = at + xla::FullLike(at, 1);
  now[Group::kGoing] = xla::Lt(now[Group::kColumn], xla::FullLike(at, shape[0]));
  return now;
}

// The group of each row of `x` [n, columns]: equal rows have equal numbers below n.
xla::XlaOp GroupsOfRows(xla::XlaOp x) {
  xla::XlaBuilder* const builder = x.builder();
  const Sizes shape = SizesOf(x);
  const xla::XlaOp together = Zeros(builder, xla::S32, {shape[0]});
  if (shape[1] == 0) return together;
  std::vector<xla::XlaOp> state(Group::kStates);
  state[Group::kGoing] = xla::ConstantR0<bool>(builder, true);
  state[Group::kColumn] = xla::Zero(builder, xla::S32);
  state[Group::kColumns] = xla::Transpose(SortKeys(x), {1, 0});
  state[Group::kNumbers] = together;
  return Repeat(builder, "unique", Group::kGoing, state, DivideGroups)[Group::kNumbers];
}

}  // namespace

Unique FindUnique(xla::XlaOp x) {
  xla::XlaBuilder* const builder = x.builder();
  const Sizes shape = SizesOf(x);
  const int64_t rows = shape[0];
  const int64_t columns = Product(absl::MakeConstSpan(shape).subspan(1));
  const xla::XlaOp groups = GroupsOfRows(xla::Reshape(x, {rows, columns}));
  const xla::XlaOp places = Counts(builder, xla::S32, {rows}, 0);
  const xla::XlaOp firsts = GatherRows(
      ScatterRows(xla::Broadcast(xla::ConstantR0<int32_t>(builder, INT32_MAX), {rows}), groups,
                  places, Combine::kMin),
      groups);
  const xla::XlaOp is_first = xla::Eq(firsts, places);
  const xla::XlaOp sums = RunningSum(xla::ConvertElementType(is_first, xla::S32));
  const xla::XlaOp one = xla::One(builder, xla::S32);
  const xla::XlaOp numbers = sums - one;
  const xla::XlaOp indices = GatherRows(numbers, firsts);
  const xla::XlaOp targets = xla::Select(is_first, numbers, xla::FullLike(numbers, -1));
  return {ScatterRows(xla::ZerosLike(x), targets, x, Combine::kReplace), indices,
          ScatterRows(Zeros(builder, xla::S32, {rows}), indices, xla::Broadcast(one, {rows}),
                      Combine::kAdd),
          Element(sums, rows - 1)};
}

}  // namespace opwright::xla_ops
