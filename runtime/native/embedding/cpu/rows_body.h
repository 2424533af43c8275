// The bodies of RowKernels. Included by one file per instruction set, which is compiled with
// its flags: OPWRIGHT_VECTOR_BYTES is the width of its vectors, OPWRIGHT_ACCUMULATORS how
// many of them a sum may fill. Lookups ask for rows OPWRIGHT_AHEAD_BYTES, but no more than
// OPWRIGHT_AHEAD_ROWS, ahead of the sums, into the level OPWRIGHT_AHEAD_LEVEL of the cache.
// OPWRIGHT_WAITS_FOR_PAGES: whether the processor waits with all that follows a request until
// it knows the page, but for requests that follow at once, which then come in groups. All of it
// has internal linkage.
#include <type_traits>
#include <utility>

#include "base/float16.h"
#include "base/simd.h"
#include "embedding/cpu/rows.h"

namespace opwright::embedding {
namespace {

constexpr int kLanes = OPWRIGHT_VECTOR_BYTES / 4;

template <int N>
using V = typename Simd<float, N>::V;

constexpr int64_t kLine = 64;
constexpr bool kWaitsForPages = OPWRIGHT_WAITS_FOR_PAGES;

// Functions of the standard library may be shared with code for other processors.
inline int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t Max(int64_t a, int64_t b) { return a > b ? a : b; }

// Whether every row begins with a line.
inline bool Aligned(const float* table, int64_t stride) {
  return reinterpret_cast<uintptr_t>(table) % kLine == 0 && stride * 4 % kLine == 0;
}

// Lines that hold as many floats, wherever they begin.
inline int64_t LinesOf(int64_t floats, bool aligned) {
  return (floats * 4 + kLine - 1) / kLine + (aligned ? 0 : 1);
}

// Asks for the line of an address, into a level of the cache.
template <int kLevel>
inline void Prefetch(const void* at) {
  __builtin_prefetch(at, 0, 4 - kLevel);
  // GCC takes a function that does nothing else for one without effect, and leaves it out.
  asm volatile("");
}

template <int kLevel>
inline void PrefetchLines(const float* from, int64_t lines) {
  const char* const data = reinterpret_cast<const char*>(from);
  for (int64_t i = 0; i < lines; ++i) Prefetch<kLevel>(data + i * kLine);
}

// How far ahead of the rows that are summed others are asked for, in bytes and so in rows:
// enough to keep memory busy, and little enough to be there still when it is their turn.
// Measured, and flat around these.
inline int64_t RowsAhead(int64_t bytes, int64_t row_bytes, int64_t least, int64_t most) {
  return Min(most, Max(least, bytes / row_bytes));
}

// floorf, inlined with every instruction set; values beyond int32 have no fraction.
inline float Floor(float x) {
  const float whole = static_cast<float>(static_cast<int32_t>(x));
  const float below = whole > x ? whole - 1 : whole;
  return x > -2147483000.f && x < 2147483000.f ? below : x;
}

struct Plain {
  template <int N>
  V<N> Row(const float* from) const {
    return Get<float, N>(from);
  }
};

struct Quantized {
  float lower, upper, step;
  explicit Quantized(const Quantization& q) : lower(q.lower), upper(q.upper), step(q.step()) {}
  template <int N>
  V<N> Row(const float* from) const {
    float values[N];
    for (int i = 0; i < N; ++i) {
      const float x = rules::Between(lower, upper, from[i]);
      // The last bucket's value is rounded, and may not leave the limits by that.
      values[i] = rules::Min(upper, Floor((x - lower) / step + 0.5f) * step + lower);
    }
    return Get<float, N>(values);
  }
};

// Rows are asked for before they are summed. Memory is kept busiest by requests spread evenly
// among the sums: lines of columns `from` to `from + end` of the row that comes `rows` ids
// later. The processor waits for as many lines as it finds within a window of so many
// instructions, so that a row should take few, and no branches of its own.
template <int kLevel, bool kAligned>
struct Ahead {
  static constexpr int64_t kAtOnce = 16;  // Pages.
  int64_t rows, ids_end;

  // The first lines of rows that are soon asked for.
  void AskForPages(const LookupCall& call, int64_t i) const {
    const int64_t end = Min(ids_end, i + rows + kAtOnce);
    for (int64_t next = i == call.first ? i : i + rows; next < end; ++next) {
      Prefetch<kLevel>(call.table + call.indices[next] * call.stride);
    }
  }

  template <int kFloats>
  static void Ask(const float* from, int64_t end) {
    constexpr int kInLine = kLine / sizeof(float);
    for (int k = 0; k < kFloats; k += kInLine) Prefetch<kLevel>(from + k);
    if (!kAligned) Prefetch<kLevel>(from + end - 1);
  }
};

// Calls visit(number of columns, first column) over a row.
template <int N, class Visit>
inline void Columns(int64_t from, int64_t dimension, Visit&& visit) {
  if constexpr (N > 0) {
    for (; from + N <= dimension; from += N) {
      visit(std::integral_constant<int, N>(), from);
    }
    Columns<N / 2>(from, dimension, visit);
  }
}

// kVectors sums of N columns each, but that the last ones begin at column `last`: they may
// share columns with what is before them, whose sums are the same twice. Loops over the sums
// are unrolled before anything else: to GCC they are an array in memory as long as one of them
// is a loop.
template <int N, int kVectors>
struct Sums {
  V<N> of[kVectors];
  const int64_t last;

  explicit Sums(int64_t last) : last(last) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) of[v] = V<N>{};
  }

  int64_t At(int v) const { return v < kVectors - 1 ? v * N : last; }

  __attribute__((always_inline)) void PutInto(float* out, bool past_caches) const {
    if (past_caches) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) Stream<N>(out + At(v), of[v]);
    } else {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) Put<float, N>(out + At(v), of[v]);
    }
  }
};

// Calls visit(N, kVectors, first column, last) for all columns of a row: with all sums that
// there are registers for, and then kLast vectors, the last of them whole. kLast is negative if
// there are fewer columns than a vector has.
template <int kLast, class Visit>
inline void Parts(int64_t dimension, Visit&& visit) {
  using One = std::integral_constant<int, 1>;
  using Whole = std::integral_constant<int, kLanes>;
  if constexpr (kLast < 0) {
    Columns<kLanes / 2>(
        0, dimension, [&](auto width, int64_t from) { visit(width, One(), from, int64_t{0}); });
  } else {
    using All = std::integral_constant<int, OPWRIGHT_ACCUMULATORS>;
    constexpr int64_t kFull = OPWRIGHT_ACCUMULATORS * kLanes;
    const int64_t full = dimension / kFull * kFull;
    for (int64_t from = 0; from < full; from += kFull) {
      visit(Whole(), All(), from, kFull - kLanes);
    }
    if constexpr (kLast > 0) {
      using Last = std::integral_constant<int, kLast>;
      visit(Whole(), Last(), full, dimension - full - kLanes);
    }
  }
}

// Columns of a sample, from `from` on. A function of its own has all registers for its loop.
template <bool kWeighted, int N, int kVectors, class Read, class Ahead>
__attribute__((noinline)) void Bag(const LookupCall& call, const Read& read, const Ahead& ahead,
                                   int64_t sample, int64_t from, int64_t last) {
  Sums<N, kVectors> sums(last);
  const int64_t first = call.offsets[sample], end = call.offsets[sample + 1];
  const float* const table = call.table + from;
  const float* const table_last = table + last;
  const int64_t stride = call.stride, rows = ahead.rows;
  const int64_t* id = call.indices + first;
  const float* weight = kWeighted ? call.per_sample_weights + first : nullptr;
  const auto add = [&](auto asks, const int64_t* until) __attribute__((always_inline)) {
    for (; id < until; ++id) {
      const int64_t row = *id * stride;
      if constexpr (decltype(asks)::value) {
        ahead.template Ask<N * kVectors>(table + id[rows] * stride, last + N);
      }
      const float factor = kWeighted ? *weight++ : 1.f;
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        // Its address is one register's and the row's.
        const auto value =
            read.template Row<N>((v < kVectors - 1 ? table + v * N : table_last) + row);
        sums.of[v] += kWeighted ? factor * value : value;
      }
    }
  };
  // The last ones of all ids have nothing left to ask for.
  add(std::true_type(), call.indices + Max(first, Min(end, ahead.ids_end - rows)));
  add(std::false_type(), call.indices + end);
  const float scale = call.scales ? call.scales[sample] : 1.f;
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) sums.of[v] *= scale;
  sums.PutInto(call.out + sample * call.out_stride + from, call.past_caches);
}

template <bool kWeighted, int kLast, class Read, class Ahead>
void Bags(const LookupCall& call, const Read& read, const Ahead& ahead) {
  for (int64_t sample = call.first; sample < call.end; ++sample) {
    Parts<kLast>(call.dimension, [&](auto width, auto vectors, int64_t from, int64_t last) {
      constexpr int N = decltype(width)::value, kVectors = decltype(vectors)::value;
      Bag<kWeighted, N, kVectors>(call, read, ahead, sample, from, last);
    });
  }
}

// Samples that have one id each. What a call says is read once: of many short rows that would
// be half of all instructions.
template <int kLast, class Read, class Ahead>
void Singles(const LookupCall& call, const Read& read, const Ahead& ahead) {
  const float* const table = call.table;
  const int64_t* const indices = call.indices;
  const int64_t stride = call.stride, dimension = call.dimension, out_stride = call.out_stride;
  const int64_t first = call.first, end = call.end, rows = ahead.rows;
  const bool past_caches = call.past_caches;
  // More lines than one of a row keep memory busy by themselves.
  const bool pages = kWaitsForPages && dimension * static_cast<int64_t>(sizeof(float)) <= kLine;
  float* out = call.out + first * out_stride;
  for (int64_t i = first; i < end; ++i, out += out_stride) {
    if (pages && (i % Ahead::kAtOnce == 0 || i == first)) ahead.AskForPages(call, i);
    const float* const row = table + indices[i] * stride;
    const float* const next = table + indices[i + rows < end ? i + rows : i] * stride;
    Parts<kLast>(dimension, [&](auto width, auto vectors, int64_t from,
                                int64_t last) __attribute__((always_inline)) {
      constexpr int N = decltype(width)::value, kVectors = decltype(vectors)::value;
      Sums<N, kVectors> sums(last);
      ahead.template Ask<N * kVectors>(next + from, last + N);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        sums.of[v] += read.template Row<N>(row + from + sums.At(v));
      }
      sums.PutInto(out + from, past_caches);
    });
  }
}

// How many ids a sample has, and whether their rows are multiplied.
enum class Ids { kOne, kAny, kWeighted };

template <Ids kIds, int kLast, class Read, class Ahead>
void Samples(const LookupCall& call, const Read& read, const Ahead& ahead) {
  if constexpr (kIds == Ids::kOne) {
    Singles<kLast>(call, read, ahead);
  } else {
    Bags<kIds == Ids::kWeighted, kLast>(call, read, ahead);
  }
}

template <Ids kIds, class Read, class Ahead, int... kLast>
void LookupAhead(const LookupCall& call, const Read& read, const Ahead& ahead,
                 std::integer_sequence<int, kLast...>) {
  if (call.dimension < kLanes) return Samples<kIds, -1>(call, read, ahead);
  static constexpr void (*kByLast[])(const LookupCall&, const Read&,
                                     const Ahead&) = {Samples<kIds, kLast, Read, Ahead>...};
  const int64_t rest = call.dimension % (OPWRIGHT_ACCUMULATORS * kLanes);
  kByLast[(rest + kLanes - 1) / kLanes](call, read, ahead);
}

template <Ids kIds, int kLevel, class Read>
void LookupFrom(const LookupCall& call, const Read& read, int64_t bytes, int64_t rows) {
  constexpr auto kLasts = std::make_integer_sequence<int, OPWRIGHT_ACCUMULATORS + 1>();
  const int64_t row_bytes = call.dimension * static_cast<int64_t>(sizeof(float));
  const int64_t ahead = RowsAhead(bytes, row_bytes, 8, rows);
  const int64_t ids_end = kIds == Ids::kOne ? call.end : call.offsets[call.end];
  // Others take longer to compute than to ask for a line twice.
  if constexpr (std::is_same_v<Read, Plain>) {
    if (Aligned(call.table, call.stride)) {
      return LookupAhead<kIds>(call, read, Ahead<kLevel, true>{ahead, ids_end}, kLasts);
    }
  }
  LookupAhead<kIds>(call, read, Ahead<kLevel, false>{ahead, ids_end}, kLasts);
}

template <Ids kIds, class Read>
void LookupIds(const LookupCall& call, const Read& read) {
  // What is in the second level already need not be asked for there.
  if (OPWRIGHT_AHEAD_LEVEL > 1 && call.near) {
    LookupFrom<kIds, 1>(call, read, 6 << 10, 32);
  } else {
    LookupFrom<kIds, OPWRIGHT_AHEAD_LEVEL>(call, read, OPWRIGHT_AHEAD_BYTES,
                                           OPWRIGHT_AHEAD_ROWS);
  }
}

template <class Read>
void LookupWith(const LookupCall& call, const Read& read) {
  if (!call.offsets) return LookupIds<Ids::kOne>(call, read);
  if (!call.per_sample_weights) return LookupIds<Ids::kAny>(call, read);
  LookupIds<Ids::kWeighted>(call, read);
}

// Whether all vectors of all outputs begin with a whole 16 bytes.
bool CanStream(const LookupCall& call) {
  return reinterpret_cast<uintptr_t>(call.out) % 16 == 0 && call.out_stride % 4 == 0 &&
         call.dimension % 4 == 0;
}

void Lookup(const LookupCall& given) {
  LookupCall call = given;
  call.past_caches = given.past_caches && CanStream(given);
  if (call.quantization) {
    LookupWith(call, Quantized(*call.quantization));
  } else {
    LookupWith(call, Plain());
  }
  if (call.past_caches) EndStreaming();
}

// N columns of a row, with the gradients g; slot i is `dimension` floats behind the one before.
template <class Rule, int N>
inline void Apply(const Step<Rule>& step, const typename Rule::F* g, float* weights,
                  float* slots, int64_t dimension) {
  using F = typename Rule::F;
  constexpr int kSlots = Rule::kSlots;
  F w[N], s[kSlots > 0 ? kSlots : 1][N];
  for (int k = 0; k < N; ++k) w[k] = weights[k];
  for (int i = 0; i < kSlots; ++i) {
    for (int k = 0; k < N; ++k) s[i][k] = slots[i * dimension + k];
  }
  for (int k = 0; k < N; ++k) {
    F of_column[kSlots > 0 ? kSlots : 1];
    for (int i = 0; i < kSlots; ++i) of_column[i] = s[i][k];
    step(g[k], w[k], of_column);
    for (int i = 0; i < kSlots; ++i) s[i][k] = of_column[i];
  }
  for (int k = 0; k < N; ++k) weights[k] = static_cast<float>(w[k]);
  for (int i = 0; i < kSlots; ++i) {
    for (int k = 0; k < N; ++k) slots[i * dimension + k] = static_cast<float>(s[i][k]);
  }
}

// Gradients of a row: `Take<N>(k, to)` writes those of columns k to k + N. Vectors are spelt
// out: GCC makes them of single values.
template <class F>
struct Scaled {
  F coefficient;
  const float* gradient;
  template <int N>
  void Take(int64_t k, F* to) const {
    if constexpr (std::is_same_v<F, float>) {
      const V<N> scaled = coefficient * Get<float, N>(gradient + k);
      Put<float, N>(to, scaled);
    } else {
      for (int i = 0; i < N; ++i) to[i] = coefficient * static_cast<F>(gradient[k + i]);
    }
  }
};
template <class F>
struct Summed {
  const double* sum;
  template <int N>
  void Take(int64_t k, F* to) const {
    for (int i = 0; i < N; ++i) to[i] = static_cast<F>(sum[k + i]);
  }
};
template <class F>
struct NoGradient {
  template <int N>
  void Take(int64_t, F* to) const {
    for (int i = 0; i < N; ++i) to[i] = 0;
  }
};

template <class Rule, class Gradient>
inline void ApplyRow(const Step<Rule>& step, const TableRows& table, int64_t row,
                     const Gradient& gradient) {
  float* const weights = table.weights + row * table.stride;
  float* const slots = table.slots + row * table.slots_stride;
  Columns<kLanes>(0, table.dimension, [&](auto width, int64_t from) {
    constexpr int N = decltype(width)::value;
    typename Rule::F g[N];
    gradient.template Take<N>(from, g);
    Apply<Rule, N>(step, g, weights + from, slots + from, table.dimension);
  });
}

// What one row of an update is made of in memory: its weights and its slots, which may follow
// them, and the first of its gradients.
struct UpdateLines {
  explicit UpdateLines(const UpdateCall& from, int64_t slots_size)
      : call(from),
        table(from.table),
        row_bytes((table.dimension + slots_size) * static_cast<int64_t>(sizeof(float))),
        together(table.slots == table.weights + table.dimension),
        weights(LinesOf(table.dimension + (together ? slots_size : 0),
                        Aligned(table.weights, table.stride))),
        slots(together ? 0 : LinesOf(slots_size, Aligned(table.slots, table.slots_stride))),
        gradient(LinesOf(table.dimension, true)) {}

  void AskForPages(int64_t i) const {
    PrefetchLines<1>(WeightsOf(i), 1);
    if (slots > 0) PrefetchLines<1>(SlotsOf(i), 1);
  }
  template <int kLevel>
  void AskForAll(int64_t i) const {
    PrefetchLines<kLevel>(WeightsOf(i), weights);
    PrefetchLines<kLevel>(SlotsOf(i), slots);
    PrefetchLines<kLevel>(call.contributions[call.offsets[i]].gradient, gradient);
  }

  const float* WeightsOf(int64_t i) const {
    return table.weights + call.rows[i] * table.stride;
  }
  const float* SlotsOf(int64_t i) const {
    return table.slots + call.rows[i] * table.slots_stride;
  }

  const UpdateCall& call;
  const TableRows& table;
  const int64_t row_bytes;
  const bool together;
  const int64_t weights, slots, gradient;
};

// Asks for the rows of an update ahead of it. Those of one line have nothing left to ask for
// row by row: they come in blocks everywhere.
class UpdateAhead {
 public:
  explicit UpdateAhead(const UpdateLines& lines)
      : lines_(lines),
        in_blocks_(!kWaitsForPages || lines.row_bytes <= kLine),
        rows_(in_blocks_ ? RowsAhead(64 << 10, lines.row_bytes, 8, 256)
                         : RowsAhead(8 << 10, lines.row_bytes, 4, kAtOnce)) {}

  // Before the update of row i.
  void operator()(int64_t i) {
    const int64_t count = lines_.call.count;
    if (in_blocks_) {
      // Into the second level, and nothing is updated before all of a block is asked for.
      if (i == asked_) AskUntil<2>(Min(count, i + rows_));
      return;
    }
    // A few rows ahead, into the first level: memory works while rows are updated.
    if (i % kAtOnce == 0) {
      const int64_t end = Min(count, i + 2 * kAtOnce);
      for (int64_t next = i == 0 ? 0 : i + kAtOnce; next < end; ++next) {
        lines_.AskForPages(next);
      }
    }
    AskUntil<1>(Min(count, i + rows_));
  }

 private:
  static constexpr int64_t kAtOnce = 32;  // Rows, of whose pages.

  template <int kLevel>
  void AskUntil(int64_t until) {
    for (; asked_ < until; ++asked_) lines_.AskForAll<kLevel>(asked_);
  }

  const UpdateLines& lines_;
  const bool in_blocks_;
  const int64_t rows_;
  int64_t asked_ = 0;
};

template <class Rule>
void Update(const UpdateCall& call) {
  using F = typename Rule::F;
  const Step<Rule> step(*call.hyper);
  const TableRows& table = call.table;
  const int64_t dimension = table.dimension;
  const UpdateLines lines(call, Rule::kSlots * dimension);
  UpdateAhead ask(lines);
  for (int64_t i = 0; i < call.count; ++i) {
    ask(i);
    const int64_t row = call.rows[i];
    const Contribution* const first = call.contributions + call.offsets[i];
    const Contribution* const end = call.contributions + call.offsets[i + 1];
    if (end - first == 1 || !call.accumulate) {
      for (const Contribution* one = first; one != end; ++one) {
        ApplyRow(step, table, row, Scaled<F>{static_cast<F>(one->coefficient), one->gradient});
      }
      continue;
    }
    double* const sum = call.sum;
    for (int64_t k = 0; k < dimension; ++k) sum[k] = 0;
    for (const Contribution* one = first; one != end; ++one) {
      const double coefficient = one->coefficient;
      const float* const gradient = one->gradient;
      for (int64_t k = 0; k < dimension; ++k) sum[k] += coefficient * gradient[k];
    }
    ApplyRow(step, table, row, Summed<F>{sum});
  }
}

template <class Rule>
void Rest(const RestCall& call) {
  using F = typename Rule::F;
  const Step<Rule> step(*call.hyper);
  for (int64_t i = call.first; i < call.end; ++i) {
    if (call.touched[i / 64] >> (i % 64) & 1) continue;
    ApplyRow(step, call.table, i, NoGradient<F>{});
  }
}

template <Range kRange>
bool WithinRange(int64_t rows, int64_t stride, int64_t width, const float* values) {
  int32_t bad = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const float* const from = values + row * stride;
    for (int64_t i = 0; i < width; ++i) bad |= !Within(kRange, BitsOf(from[i]));
  }
  return !bad;
}

bool Within(Range range, int64_t rows, int64_t stride, int64_t width, const float* values) {
  switch (range) {
    case Range::kNotNegative:
      return WithinRange<Range::kNotNegative>(rows, stride, width, values);
    case Range::kClear: return WithinRange<Range::kClear>(rows, stride, width, values);
    default: return WithinRange<Range::kFinite>(rows, stride, width, values);
  }
}

constexpr RowKernels MakeRowKernels() {
  RowKernels kernels{};
  kernels.lookup = Lookup;
  kernels.within = Within;
  for (int i = 0; i < kOptimizers; ++i) {
    VisitRule(static_cast<Optimizer>(i), [&](auto tag) {
      using Rule = typename decltype(tag)::type;
      kernels.update[i] = Update<Rule>;
      kernels.rest[i] = Rest<Rule>;
    });
  }
  return kernels;
}

}  // namespace
}  // namespace opwright::embedding
