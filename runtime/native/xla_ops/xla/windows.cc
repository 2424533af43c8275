#include "xla_ops/xla/windows.h"

#include <algorithm>
#include <cstddef>

namespace opwright::xla_ops {

int64_t Moves::Passed() const {
  const int64_t passed = window == 0 ? 0 : (made - 1) * stride + (window - 1) * rate + 1;
  return std::max(passed, before + size);
}

namespace {

// The windows' elements along dimension `dim` of `x`, one window after the other.
xla::XlaOp WindowsAlong(xla::XlaOp x, int64_t dim, const Moves& moves) {
  xla::XlaBuilder* const builder = x.builder();
  const int64_t count = moves.made * moves.window;
  const xla::PrimitiveType type = IndexType(moves.Passed());
  const Sizes places = {moves.made, moves.window};
  const xla::XlaOp starts = Counts(builder, type, places, 0);
  const xla::XlaOp taps = Counts(builder, type, places, 1);
  const xla::XlaOp at = starts * xla::FullLike(starts, moves.stride) +
                        taps * xla::FullLike(taps, moves.rate) -
                        xla::FullLike(starts, moves.before);
  const xla::XlaOp flat = xla::Reshape(at, {count});
  const xla::XlaOp made = GatherAlong(x, dim, flat);
  const xla::XlaOp exists = Spread(InRange(flat, moves.size), SizesOf(made), {dim});
  return xla::Select(exists, made, xla::ZerosLike(made));
}

}  // namespace

xla::XlaOp Patches(xla::XlaOp x, const std::vector<Moves>& moves) {
  const Sizes shape = SizesOf(x);
  Sizes split = {shape.front()}, order = {0}, made = {shape.front()};
  int64_t depth = shape.back();
  for (size_t i = 0; i < moves.size(); ++i) {
    const auto dim = static_cast<int64_t>(i);
    x = WindowsAlong(x, dim + 1, moves[i]);
    split.push_back(moves[i].made);
    split.push_back(moves[i].window);
    order.push_back(2 * dim + 1);
    made.push_back(moves[i].made);
    depth *= moves[i].window;
  }
  const auto spatial = static_cast<int64_t>(moves.size());
  for (int64_t i = 0; i <= spatial; ++i) order.push_back(i < spatial ? 2 * i + 2 : 2 * i + 1);
  split.push_back(shape.back());
  made.push_back(depth);
  return xla::Reshape(xla::Transpose(xla::Reshape(x, split), order), made);
}

namespace {

// The positions of the state of the loop over the elements of a window.
struct Tap {
  enum At : size_t { kGoing, kPlace, kImages, kFilter, kValues, kPlaces, kStates };
};

// Which values count as the largest.
enum class Counting { kAboveLowest, kFirst };

// The first row of each window, for one element of the window.
xla::XlaOp Start(xla::XlaOp tap, const Moves& moves) {
  return tap * xla::FullLike(tap, moves.rate);
}

// Whether the elements at `start` of each window exist along one dimension of `shape`.
xla::XlaOp Exists(xla::XlaOp start, const Moves& moves, const Sizes& shape, int64_t dim) {
  const xla::XlaOp windows = Counts(start.builder(), TypeOf(start), shape, dim);
  const xla::XlaOp at = windows * xla::FullLike(windows, moves.stride) +
                        Spread(start, shape, {}) - xla::FullLike(windows, moves.before);
  return InRange(at, moves.size);
}

// The element of each window that is `row` and `column` from its start, of padded images.
xla::XlaOp ElementsOfWindows(xla::XlaOp padded, xla::XlaOp row, xla::XlaOp column,
                             const Window& window) {
  const Sizes shape = SizesOf(padded);
  const Sizes taken = {shape[0], (window.rows.made - 1) * window.rows.stride + 1,
                       (window.columns.made - 1) * window.columns.stride + 1, shape[3]};
  const xla::XlaOp zero = xla::ZerosLike(row);
  const xla::XlaOp span = xla::DynamicSlice(padded, {zero, row, column, zero}, taken);
  return xla::Slice(span, {0, 0, 0, 0}, taken,
                    {1, window.rows.stride, window.columns.stride, 1});
}

std::vector<xla::XlaOp> TryTap(absl::Span<const xla::XlaOp> before, const Window& window,
                               xla::PrimitiveType type, Counting counting) {
  std::vector<xla::XlaOp> now(before.begin(), before.end());
  const Sizes shape = SizesOf(now[Tap::kValues]);
  const xla::XlaOp place = now[Tap::kPlace];
  const xla::XlaOp width = xla::FullLike(place, window.columns.window);
  const xla::XlaOp row = Start(xla::Div(place, width), window.rows);
  const xla::XlaOp column = Start(xla::Rem(place, width), window.columns);
  const xla::XlaOp filter =
      xla::DynamicSlice(now[Tap::kFilter], {place, xla::ZerosLike(place)}, {1, shape[3]});
  xla::XlaOp values = ElementsOfWindows(now[Tap::kImages], row, column, window);
  if (counting == Counting::kAboveLowest) {
    values = RoundedTo(type, values + Spread(xla::Reshape(filter, {shape[3]}), shape, {3}));
  }
  const xla::XlaOp exists =
      xla::And(Exists(row, window.rows, shape, 1), Exists(column, window.columns, shape, 2));
  xla::XlaOp larger = xla::Gt(values, now[Tap::kValues]);
  if (counting == Counting::kFirst) {
    larger = xla::Or(larger, xla::Lt(now[Tap::kPlaces], xla::ZerosLike(now[Tap::kPlaces])));
  }
  const xla::XlaOp better = xla::And(exists, larger);
  now[Tap::kValues] = xla::Select(better, values, now[Tap::kValues]);
  now[Tap::kPlaces] = xla::Select(better, Spread(place, shape, {}), now[Tap::kPlaces]);
  now[Tap::kPlace] = place + xla::FullLike(place, 1);
  const int64_t all = window.rows.window * window.columns.window;
  now[Tap::kGoing] = xla::Lt(now[Tap::kPlace], xla::FullLike(place, all));
  return now;
}

Sizes MadeShape(const Sizes& images, const Window& window) {
  return {images[0], window.rows.made, window.columns.made, images[3]};
}

// Adds what is missing around the rows or columns of images.
xla::XlaOp Padded(xla::XlaOp x, int64_t dim, const Moves& moves) {
  return xla::PadInDim(x, xla::Zero(x.builder(), TypeOf(x)), dim, moves.before,
                       moves.Passed() - moves.size - moves.before);
}

Best LargestOf(xla::XlaOp x, xla::XlaOp filter, const Window& window, Counting counting) {
  xla::XlaBuilder* const builder = x.builder();
  const xla::PrimitiveType type = TypeOf(x), wide = WideType(type);
  const Sizes shape = MadeShape(SizesOf(x), window);
  const int64_t all = window.rows.window * window.columns.window;
  const xla::XlaOp lowest = xla::ConvertElementType(xla::MinFiniteValue(builder, type), wide);
  const xla::XlaOp none = xla::ConstantR0<int32_t>(builder, -1);
  std::vector<xla::XlaOp> state(Tap::kStates);
  state[Tap::kValues] = Spread(lowest, shape, {});
  state[Tap::kPlaces] = Spread(none, shape, {});
  if (all > 0 && Product(shape) > 0) {
    state[Tap::kGoing] = xla::ConstantR0<bool>(builder, true);
    state[Tap::kPlace] = xla::Zero(builder, xla::S32);
    const xla::XlaOp given = xla::ConvertElementType(x, wide);
    state[Tap::kImages] = Padded(Padded(given, 1, window.rows), 2, window.columns);
    state[Tap::kFilter] = xla::Reshape(xla::ConvertElementType(filter, wide), {all, shape[3]});
    state = Repeat(
        builder, "windows", Tap::kGoing, state,
        [&](absl::Span<const xla::XlaOp> now) { return TryTap(now, window, type, counting); });
  }
  return {xla::ConvertElementType(state[Tap::kValues], type), state[Tap::kPlaces]};
}

// Where elements of windows are along one dimension: in the window, and in the images.
struct Position {
  xla::XlaOp in_window, in_images;
};

Position PositionAlong(xla::XlaOp in_window, const Moves& moves, int64_t dim) {
  const xla::XlaOp windows =
      Counts(in_window.builder(), TypeOf(in_window), SizesOf(in_window), dim);
  const xla::XlaOp start =
      windows * xla::FullLike(windows, moves.stride) - xla::FullLike(windows, moves.before);
  return {in_window, start + Start(in_window, moves)};
}

struct Coordinates {
  Position row, column;
};

Coordinates CoordinatesOf(xla::XlaOp places, const Window& window, xla::PrimitiveType type) {
  const xla::XlaOp wide = xla::ConvertElementType(places, type);
  const xla::XlaOp width = xla::FullLike(wide, std::max<int64_t>(window.columns.window, 1));
  return {PositionAlong(xla::Div(wide, width), window.rows, 1),
          PositionAlong(xla::Rem(wide, width), window.columns, 2)};
}

// Adds `grads` to zeros of `shape`, at flat indices of it.
xla::XlaOp AddFlat(xla::XlaOp grads, xla::XlaOp at, const Sizes& shape) {
  const xla::PrimitiveType type = TypeOf(grads), wide = WideType(type);
  const int64_t count = Product(SizesOf(grads));
  const xla::XlaOp made =
      ScatterRows(Zeros(grads.builder(), wide, {Product(shape)}), xla::Reshape(at, {count}),
                  xla::Reshape(xla::ConvertElementType(grads, wide), {count}), Combine::kAdd);
  return xla::ConvertElementType(xla::Reshape(made, shape), type);
}

}  // namespace

Best LargestSums(xla::XlaOp x, xla::XlaOp filter, const Window& window) {
  return LargestOf(x, filter, window, Counting::kAboveLowest);
}

xla::XlaOp GradientOfImages(xla::XlaOp places, xla::XlaOp grads, const Window& window) {
  const Sizes shape = SizesOf(grads);
  const Sizes images = {shape[0], window.rows.size, window.columns.size, shape[3]};
  if (Product(shape) == 0) return Zeros(grads.builder(), TypeOf(grads), images);
  const xla::PrimitiveType type =
      IndexType(std::max({Product(images), window.rows.Passed(), window.columns.Passed()}));
  const xla::XlaOp none = xla::Lt(places, xla::ZerosLike(places));
  const Coordinates found =
      CoordinatesOf(xla::Max(places, xla::ZerosLike(places)), window, type);
  // Where no value counts, the gradient goes to the first element that the window has.
  const auto first = [&](const Position& place) {
    return xla::Select(none, xla::Max(place.in_images, xla::ZerosLike(place.in_images)),
                       place.in_images);
  };
  const xla::XlaOp row = first(found.row), column = first(found.column);
  const auto count = [&](int64_t dim) { return Counts(grads.builder(), type, shape, dim); };
  const auto times = [](xla::XlaOp x, int64_t size) { return x * xla::FullLike(x, size); };
  const xla::XlaOp pixel = times(times(count(0), images[1]) + row, images[2]) + column;
  const xla::XlaOp flat = times(pixel, images[3]) + count(3);
  const xla::XlaOp exists = xla::And(InRange(row, images[1]), InRange(column, images[2]));
  return AddFlat(grads, xla::Select(exists, flat, xla::FullLike(flat, -1)), images);
}

xla::XlaOp GradientOfFilter(xla::XlaOp places, xla::XlaOp grads, const Window& window) {
  const Sizes shape = SizesOf(grads);
  const Sizes filter = {window.rows.window, window.columns.window, shape[3]};
  if (Product(shape) == 0 || Product(filter) == 0) {
    return Zeros(grads.builder(), TypeOf(grads), filter);
  }
  const xla::PrimitiveType type = IndexType(Product(filter));
  const xla::XlaOp place =
      xla::ConvertElementType(xla::Max(places, xla::ZerosLike(places)), type);
  const xla::XlaOp flat =
      place * xla::FullLike(place, shape[3]) + Counts(grads.builder(), type, shape, 3);
  return AddFlat(grads, flat, filter);
}

Best LargestElements(xla::XlaOp x, const Window& window, bool of_batch,
                     xla::PrimitiveType type) {
  xla::XlaBuilder* const builder = x.builder();
  const Sizes images = SizesOf(x), made = MadeShape(images, window);
  const xla::XlaOp filter =
      Zeros(builder, TypeOf(x), {window.rows.window, window.columns.window, images[3]});
  const Best best = LargestOf(x, filter, window, Counting::kFirst);
  const xla::PrimitiveType wide =
      IndexType(std::max({Product(images), window.rows.Passed(), window.columns.Passed()}));
  const xla::XlaOp none = xla::Lt(best.places, xla::ZerosLike(best.places));
  const Coordinates found = CoordinatesOf(best.places, window, wide);
  const auto count = [&](int64_t dim) { return Counts(builder, wide, made, dim); };
  const auto times = [](xla::XlaOp x, int64_t size) { return x * xla::FullLike(x, size); };
  xla::XlaOp row = found.row.in_images;
  if (of_batch) row = row + times(count(0), images[1]);
  const xla::XlaOp flat =
      times(times(row, images[2]) + found.column.in_images, images[3]) + count(3);
  const xla::XlaOp places = xla::Select(none, xla::FullLike(flat, -1), flat);
  return {best.values, xla::ConvertElementType(places, type)};
}

xla::XlaOp AddAtPlaces(xla::XlaOp grads, xla::XlaOp places, const Sizes& shape, bool of_batch) {
  xla::XlaBuilder* const builder = grads.builder();
  const int64_t all = Product(shape);
  if (all == 0) return Zeros(builder, TypeOf(grads), shape);
  const int64_t of_image = of_batch ? all : all / shape[0];
  const xla::XlaOp exists = InRange(places, of_image);
  xla::XlaOp at = places;
  if (!of_batch) {
    const xla::XlaOp image = Counts(builder, TypeOf(places), SizesOf(places), 0);
    at = at + image * xla::FullLike(image, of_image);
  }
  at = xla::Select(exists, at, xla::FullLike(at, -1));
  return AddFlat(grads, xla::ConvertElementType(at, IndexType(all)), shape);
}

}  // namespace opwright::xla_ops
