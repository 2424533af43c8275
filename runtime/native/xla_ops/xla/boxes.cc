#include "xla_ops/xla/boxes.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace opwright::xla_ops {
namespace {

// The sides of boxes, and their areas.
struct Sides {
  xla::XlaOp top, left, bottom, right, area;
};

Sides SidesOf(const std::vector<xla::XlaOp>& corners) {
  Sides sides = {xla::Min(corners[0], corners[2]),
                 xla::Min(corners[1], corners[3]),
                 xla::Max(corners[0], corners[2]),
                 xla::Max(corners[1], corners[3]),
                 {}};
  sides.area = Rounded((sides.bottom - sides.top) * (sides.right - sides.left));
  return sides;
}

// The sides of one box of each group, as the whole of a shape.
Sides ChosenSides(const Sides& sides, xla::XlaOp chosen) {
  const Sizes shape = SizesOf(chosen);
  const auto one = [&](xla::XlaOp x) {
    const xla::XlaOp only = xla::Select(chosen, x, xla::ZerosLike(x));
    return Spread(ReduceDims(only, Combine::kAdd, {1}), shape, {0});
  };
  return {one(sides.top), one(sides.left), one(sides.bottom), one(sides.right),
          one(sides.area)};
}

// The intersection of boxes over their union. A box without an area overlaps no other.
xla::XlaOp Overlaps(const Sides& one, const Sides& other) {
  const xla::XlaOp zero = xla::ZerosLike(one.area);
  const xla::XlaOp height = xla::Min(one.bottom, other.bottom) - xla::Max(one.top, other.top);
  const xla::XlaOp width = xla::Min(one.right, other.right) - xla::Max(one.left, other.left);
  const xla::XlaOp shared = Rounded(xla::Max(height, zero) * xla::Max(width, zero));
  const xla::XlaOp none = xla::Or(xla::Le(one.area, zero), xla::Le(other.area, zero));
  return xla::Select(none, zero, shared / (one.area + other.area - shared));
}

// The positions of a loop's state.
struct Pick {
  enum At : size_t {
    kGoing,
    kStep,
    kCounts,
    kIndices,
    kPickedScores,
    kLeft,    // Which boxes may be picked still.
    kScores,  // Their scores now.
    kOrder,   // Their scores at first.
    kTop,
    kLeftSide,
    kBottom,
    kRight,
    kArea,
    kOverlap,
    kScore,
    kSigma,
    kStates
  };
};

xla::XlaOp AnyOf(xla::XlaOp truths) {
  return xla::ReduceAll(truths, xla::ConstantR0<bool>(truths.builder(), false),
                        xla::CreateScalarOrComputation(xla::PRED, truths.builder()));
}

// What is left after a pick: scores as the overlaps with the box lower them, and the boxes that
// may still be picked.
void LowerScores(xla::XlaOp overlaps, xla::XlaOp chosen, std::vector<xla::XlaOp>* state) {
  std::vector<xla::XlaOp>& now = *state;
  const xla::XlaOp sigma = now[Pick::kSigma], zero = xla::ZerosLike(sigma);
  const xla::XlaOp soft = xla::Gt(sigma, zero);
  const xla::XlaOp scale = xla::Select(soft, xla::Div(xla::FullLike(sigma, -0.5), sigma), zero);
  const Sizes shape = SizesOf(overlaps);
  const auto all = [&](xla::XlaOp x) { return Spread(x, shape, {}); };
  const xla::XlaOp one = xla::FullLike(overlaps, 1);
  const xla::XlaOp near = xla::Gt(overlaps, all(now[Pick::kOverlap]));
  const xla::XlaOp weight =
      xla::Select(all(soft), xla::Exp(all(scale) * overlaps * overlaps), one);
  now[Pick::kScores] = now[Pick::kScores] * weight;
  const xla::XlaOp out = xla::Or(chosen, xla::And(near, xla::Not(all(soft))));
  const xla::XlaOp high = xla::Gt(now[Pick::kScores], all(now[Pick::kScore]));
  now[Pick::kLeft] = xla::And(now[Pick::kLeft], xla::And(high, xla::Not(out)));
}

// Picks the best box of each group.
std::vector<xla::XlaOp> PickNext(absl::Span<const xla::XlaOp> before, int64_t most) {
  std::vector<xla::XlaOp> now(before.begin(), before.end());
  xla::XlaBuilder* const builder = now[Pick::kStep].builder();
  const Sizes shape = SizesOf(now[Pick::kScores]);
  // TensorFlow lowers the score of a box once it is the best. So scores below 0, which overlaps
  // raise, are picked in the order of what they were at first.
  const xla::XlaOp zeros = xla::ZerosLike(now[Pick::kOrder]);
  const xla::XlaOp order =
      xla::Select(xla::Lt(now[Pick::kOrder], zeros), now[Pick::kOrder], now[Pick::kScores]);
  const xla::XlaOp lowest = xla::MinValue(builder, xla::F32);
  const xla::XlaOp open = xla::Select(now[Pick::kLeft], order, Spread(lowest, shape, {}));
  const xla::XlaOp best = ReduceDims(open, Combine::kMax, {1});
  const xla::XlaOp found = xla::Gt(best, Spread(lowest, {shape[0]}, {}));
  const xla::XlaOp places = Counts(builder, xla::S32, shape, 1);
  const xla::XlaOp none = xla::FullLike(places, shape[1]);
  const xla::XlaOp is_best =
      xla::And(now[Pick::kLeft], xla::Eq(open, Spread(best, shape, {0})));
  const xla::XlaOp at = ReduceDims(xla::Select(is_best, places, none), Combine::kMin, {1});
  const xla::XlaOp chosen = xla::Eq(places, Spread(at, shape, {0}));
  const xla::XlaOp score =
      ReduceDims(xla::Select(chosen, now[Pick::kScores], zeros), Combine::kAdd, {1});
  const auto write = [&](Pick::At i, xla::XlaOp value) {
    const xla::XlaOp kept = xla::Select(found, value, xla::ZerosLike(value));
    now[i] = xla::DynamicUpdateSlice(now[i], xla::Reshape(kept, {shape[0], 1}),
                                     {xla::ZerosLike(now[Pick::kStep]), now[Pick::kStep]});
  };
  write(Pick::kIndices, at);
  write(Pick::kPickedScores, score);
  now[Pick::kCounts] = now[Pick::kCounts] + xla::ConvertElementType(found, xla::S32);
  const Sides sides = {now[Pick::kTop], now[Pick::kLeftSide], now[Pick::kBottom],
                       now[Pick::kRight], now[Pick::kArea]};
  LowerScores(Overlaps(sides, ChosenSides(sides, chosen)), chosen, &now);
  now[Pick::kStep] = now[Pick::kStep] + xla::ScalarLike(now[Pick::kStep], 1);
  now[Pick::kGoing] =
      xla::And(xla::Lt(now[Pick::kStep], xla::ScalarLike(now[Pick::kStep], most)),
               AnyOf(now[Pick::kLeft]));
  return now;
}

}  // namespace

Picked PickBoxes(const Boxes& boxes, const Thresholds& thresholds, int64_t most) {
  xla::XlaBuilder* const builder = boxes.scores.builder();
  const Sizes shape = SizesOf(boxes.scores);
  const Sizes made = {shape[0], most};
  if (most == 0 || Product(shape) == 0) {
    return {Zeros(builder, xla::S32, made), Zeros(builder, xla::F32, made),
            Zeros(builder, xla::S32, {shape[0]})};
  }
  std::vector<xla::XlaOp> state(Pick::kStates);
  state[Pick::kLeft] = xla::Gt(boxes.scores, Spread(thresholds.score, shape, {}));
  state[Pick::kGoing] = AnyOf(state[Pick::kLeft]);
  state[Pick::kStep] = xla::Zero(builder, xla::S32);
  state[Pick::kCounts] = Zeros(builder, xla::S32, {shape[0]});
  state[Pick::kIndices] = Zeros(builder, xla::S32, made);
  state[Pick::kPickedScores] = Zeros(builder, xla::F32, made);
  state[Pick::kScores] = state[Pick::kOrder] = boxes.scores;
  const Sides sides = SidesOf(boxes.corners);
  state[Pick::kTop] = sides.top;
  state[Pick::kLeftSide] = sides.left;
  state[Pick::kBottom] = sides.bottom;
  state[Pick::kRight] = sides.right;
  state[Pick::kArea] = sides.area;
  state[Pick::kOverlap] = thresholds.overlap;
  state[Pick::kScore] = thresholds.score;
  state[Pick::kSigma] = thresholds.sigma;
  state = Repeat(builder, "pick_boxes", Pick::kGoing, state,
                 [most](absl::Span<const xla::XlaOp> now) { return PickNext(now, most); });
  return {state[Pick::kIndices], state[Pick::kPickedScores], state[Pick::kCounts]};
}

namespace {

// The boxes of all images and classes, an image and a class a group.
Boxes BoxesOfClasses(xla::XlaOp boxes, xla::XlaOp scores) {
  const Sizes shape = SizesOf(scores);
  const Sizes each = {shape[0], shape[2], shape[1]};
  const Sizes groups = {shape[0] * shape[2], shape[1]};
  const int64_t shared = SizesOf(boxes)[2];
  Boxes made;
  for (int64_t i = 0; i < 4; ++i) {
    xla::XlaOp corner =
        xla::Reshape(xla::SliceInDim(boxes, i, i + 1, 1, 3), {shape[0], shape[1], shared});
    corner = shared == 1 ? Spread(xla::Reshape(corner, {shape[0], shape[1]}), each, {0, 2})
                         : xla::Transpose(corner, {0, 2, 1});
    made.corners.push_back(xla::Reshape(corner, groups));
  }
  made.scores = xla::Reshape(xla::Transpose(scores, {0, 2, 1}), groups);
  return made;
}

// The rows of `boxes` for the `indices` and `classes` [batch, n] of each image.
xla::XlaOp RowsOfBoxes(xla::XlaOp boxes, xla::XlaOp indices, xla::XlaOp classes) {
  xla::XlaBuilder* const builder = boxes.builder();
  const Sizes shape = SizesOf(boxes), picked = SizesOf(indices);
  const int64_t rows = shape[0] * shape[1] * shape[2];
  const xla::PrimitiveType type = IndexType(rows);
  const auto wide = [&](xla::XlaOp x) { return xla::ConvertElementType(x, type); };
  const auto number = [&](int64_t x) { return wide(xla::ConstantR0<int64_t>(builder, x)); };
  xla::XlaOp at = Counts(builder, type, picked, 0) * number(shape[1]) + wide(indices);
  at = at * number(shape[2]);
  if (shape[2] > 1) at = at + wide(classes);
  const xla::XlaOp made =
      GatherRows(xla::Reshape(boxes, {rows, 4}), xla::Reshape(at, {picked[0] * picked[1]}));
  return xla::Reshape(made, {picked[0], picked[1], 4});
}

// Sets what comes after the first `counts` of each row to 0, and adds zeros up to `most`.
xla::XlaOp Padded(xla::XlaOp x, xla::XlaOp counts, int64_t most) {
  const Sizes shape = SizesOf(x);
  const xla::XlaOp kept =
      xla::Lt(Counts(x.builder(), xla::S32, shape, 1), Spread(counts, shape, {0}));
  const xla::XlaOp made = xla::Select(kept, x, xla::ZerosLike(x));
  return xla::PadInDim(made, xla::Zero(x.builder(), TypeOf(x)), 1, 0, most - shape[1]);
}

}  // namespace

Combined CombineClasses(xla::XlaOp boxes, xla::XlaOp scores, const Thresholds& thresholds,
                        const Combination& spec) {
  xla::XlaBuilder* const builder = boxes.builder();
  const Sizes shape = SizesOf(scores);
  const int64_t of_class = std::min(spec.most_of_class, shape[1]);
  const int64_t all = of_class * shape[2];
  const int64_t taken = std::min(spec.most, all);
  if (shape[0] == 0 || taken == 0) {
    return {Zeros(builder, xla::F32, {shape[0], spec.most, 4}),
            Zeros(builder, xla::F32, {shape[0], spec.most}),
            Zeros(builder, xla::F32, {shape[0], spec.most}),
            Zeros(builder, xla::S32, {shape[0]})};
  }
  const Picked picked = PickBoxes(BoxesOfClasses(boxes, scores), thresholds, of_class);
  const Sizes of_image = {shape[0], all};
  const xla::XlaOp ranks = Counts(builder, xla::S32, SizesOf(picked.scores), 1);
  const xla::XlaOp exists = xla::Lt(ranks, Spread(picked.counts, SizesOf(ranks), {0}));
  const xla::XlaOp lowest = xla::MinValue(builder, xla::F32);
  const xla::XlaOp keys = xla::Reshape(
      xla::Select(exists, picked.scores, Spread(lowest, SizesOf(ranks), {})), of_image);
  const xla::XlaOp sorted = xla::Sort(
      {keys, Counts(builder, xla::S32, of_image, 1), xla::Reshape(picked.indices, of_image)},
      xla::CreateScalarGtComputation({xla::F32, xla::S32, xla::S32}, builder), 1, true);
  const auto best = [&](int64_t i) {
    return xla::SliceInDim(xla::GetTupleElement(sorted, i), 0, taken, 1, 1);
  };
  const xla::XlaOp places = best(1);
  const xla::XlaOp classes = xla::Div(places, xla::FullLike(places, of_class));
  const xla::XlaOp found =
      ReduceDims(xla::Reshape(picked.counts, {shape[0], shape[2]}), Combine::kAdd, {1});
  const xla::XlaOp counts = xla::Min(found, xla::FullLike(found, taken));
  xla::XlaOp rows = RowsOfBoxes(boxes, best(2), classes);
  if (spec.clip) rows = xla::Clamp(xla::ZerosLike(rows), rows, xla::FullLike(rows, 1));
  return {Padded(rows, counts, spec.most), Padded(best(0), counts, spec.most),
          Padded(xla::ConvertElementType(classes, xla::F32), counts, spec.most), counts};
}

}  // namespace opwright::xla_ops
