// The functions of RowKernels. One file for each instruction set includes this one and is
// compiled with the flags of that instruction set. All functions have internal linkage, so that
// the files do not share them. The including file defines:
//   OPWRIGHT_VECTOR_BYTES     The width of a vector.
//   OPWRIGHT_ACCUMULATORS     The most vectors that the sum of a sample may fill.
//   OPWRIGHT_PREFETCH_BYTES   Lookups prefetch rows this many bytes ahead of the sums,
//   OPWRIGHT_PREFETCH_ROWS    but at most this many rows ahead,
//   OPWRIGHT_PREFETCH_LEVEL   into this level of the cache.
//   OPWRIGHT_WAITS_FOR_PAGES  Whether a TLB miss stalls the processor. It then overlaps only
//                             misses of instructions that are close together. Loops then
//                             prefetch rows' first cache lines in groups.
#include <cfloat>
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

// Used in place of std::min and std::max. The linker might keep a copy of these that was
// compiled for another instruction set.
inline int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t Max(int64_t a, int64_t b) { return a > b ? a : b; }

// Whether every row begins at the start of a cache line.
inline bool Aligned(const float* table, int64_t stride) {
  return reinterpret_cast<uintptr_t>(table) % kLine == 0 && stride * 4 % kLine == 0;
}

// The most cache lines that this many floats can lie in. `aligned` is whether they begin at the
// start of a line.
inline int64_t CacheLinesOf(int64_t floats, bool aligned) {
  constexpr int64_t kFloats = kLine / sizeof(float);
  return aligned ? (floats + kFloats - 1) / kFloats : (floats + kFloats - 2) / kFloats + 1;
}

// Prefetches the cache line of an address into a level of the cache.
template <int kLevel>
inline void Prefetch(const void* at) {
  __builtin_prefetch(at, 0, 4 - kLevel);
  // Without this, GCC removes calls of functions that only prefetch, because it considers them
  // to have no effect.
  asm volatile("");
}

template <int kLevel>
inline void PrefetchLines(const float* from, int64_t lines) {
  const char* const data = reinterpret_cast<const char*>(from);
  for (int64_t i = 0; i < lines; ++i) Prefetch<kLevel>(data + i * kLine);
}

// The prefetch distance in rows, from a distance in bytes. It is long enough to keep memory
// busy. It is short enough for prefetched rows to be in the cache still when they are summed.
// The callers' distances come from measurements. Distances near them take about the same time.
inline int64_t PrefetchDistance(int64_t bytes, int64_t row_bytes, int64_t least, int64_t most) {
  return Min(most, Max(least, bytes / row_bytes));
}

// Calls visit(number of columns, first column) for all columns of a row, N columns at a time.
// The remaining columns are visited with smaller powers of 2.
template <int N, class Visit>
inline void Columns(int64_t from, int64_t dimension, Visit&& visit) {
  if constexpr (N > 0) {
    for (; from + N <= dimension; from += N) {
      visit(std::integral_constant<int, N>(), from);
    }
    Columns<N / 2>(from, dimension, visit);
  }
}

}  // namespace
}  // namespace opwright::embedding

#include "embedding/cpu/rows_lookup.h"

namespace opwright::embedding {
namespace {

// Updates N columns of a row with the gradients g. Slot i begins `i * dimension` floats after
// `slots`.
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

// The gradient of a row. `Take<N>(k, to)` writes the gradients of columns k to k + N - 1. The
// code uses a vector explicitly, because GCC otherwise assembles it from single values.
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

// Returns the mean of the squared gradient over the columns of a row. Computes kLanes sums at a
// time, so that GCC can use vectors.
template <class Rule, class Gradient>
inline double MeanSquare(const Step<Rule>& step, const Gradient& gradient, int64_t dimension) {
  double squares[kLanes] = {};
  Columns<kLanes>(0, dimension, [&](auto width, int64_t from) {
    constexpr int N = decltype(width)::value;
    typename Rule::F g[N];
    gradient.template Take<N>(from, g);
    for (int k = 0; k < N; ++k) {
      const double clipped = step.Clipped(g[k]);
      squares[k] += clipped * clipped;
    }
  });
  double sum = 0;
  for (const double square : squares) sum += square;
  return sum / static_cast<double>(dimension);
}

// Applies a row-wise rule to a row: first to the slots of the row, then to its weights.
template <class Rule, class Gradient>
inline void ApplyRowRule(const Step<Rule>& step, float* weights, float* slots,
                         int64_t dimension, const Gradient& gradient) {
  using F = typename Rule::F;
  F s[Rule::kSlots];
  for (int i = 0; i < Rule::kSlots; ++i) s[i] = slots[i];
  step.rule.UpdateSlots(MeanSquare(step, gradient, dimension), s);
  for (int i = 0; i < Rule::kSlots; ++i) s[i] = slots[i] = static_cast<float>(s[i]);
  Columns<kLanes>(0, dimension, [&](auto width, int64_t from) {
    constexpr int N = decltype(width)::value;
    F g[N], w[N];
    gradient.template Take<N>(from, g);
    for (int k = 0; k < N; ++k) w[k] = weights[from + k];
    for (int k = 0; k < N; ++k) step(g[k], w[k], s);
    for (int k = 0; k < N; ++k) weights[from + k] = static_cast<float>(w[k]);
  });
}

// A row while rules update it. The weights of a narrow row are in float32 meanwhile.
class OpenRow {
 public:
  OpenRow(const TableRows& table, const Rounding& rounding, float* wide, int64_t row)
      : table_(table),
        rounding_(rounding),
        row_(row),
        stored_(table.weights + row * table.stride),
        weights_(table.dtype == RowDtype::kFloat32 ? stored_ : wide) {
    if (weights_ != stored_) Widen(table.dtype, stored_, 0, table.dimension, weights_);
  }
  OpenRow(const OpenRow&) = delete;
  ~OpenRow() {
    if (weights_ == stored_) return;
    Narrow(table_.dtype, table_.dimension, weights_, KeyOfRow(rounding_, row_), stored_);
  }
  float* weights() const { return weights_; }
  float* slots() const { return table_.slots + row_ * table_.slots_stride; }
  int64_t dimension() const { return table_.dimension; }

 private:
  const TableRows& table_;
  const Rounding& rounding_;
  const int64_t row_;
  float* const stored_;
  float* const weights_;
};

template <class Rule, class Gradient>
inline void ApplyRow(const Step<Rule>& step, const OpenRow& row, const Gradient& gradient) {
  float* const weights = row.weights();
  float* const slots = row.slots();
  const int64_t dimension = row.dimension();
  if constexpr (kIsRowRule<Rule>) {
    ApplyRowRule(step, weights, slots, dimension, gradient);
  } else {
    Columns<kLanes>(0, dimension, [&](auto width, int64_t from) {
      constexpr int N = decltype(width)::value;
      typename Rule::F g[N];
      gradient.template Take<N>(from, g);
      Apply<Rule, N>(step, g, weights + from, slots + from, dimension);
    });
  }
}

// The cache lines that the update of one row needs: those of its weights, of its slots, and of
// the gradient of its first contribution. The slots may directly follow the weights
// (`interleaved`).
struct UpdateLines {
  explicit UpdateLines(const UpdateCall& from, int64_t slots_size)
      : call(from),
        table(from.table),
        row_words(RowWords(table.dtype, table.dimension)),
        row_bytes((row_words + slots_size) * static_cast<int64_t>(sizeof(float))),
        interleaved(table.slots == table.weights + row_words),
        weights(CacheLinesOf(row_words + (interleaved ? slots_size : 0),
                             Aligned(table.weights, table.stride))),
        slots(interleaved ? 0
                          : CacheLinesOf(slots_size, Aligned(table.slots, table.slots_stride))),
        gradient(CacheLinesOf(table.dimension, true)) {}

  void WarmTlb(int64_t i) const {
    PrefetchLines<1>(WeightsOf(i), 1);
    if (slots > 0) PrefetchLines<1>(SlotsOf(i), 1);
  }
  template <int kLevel>
  void PrefetchRow(int64_t i) const {
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
  const int64_t row_words, row_bytes;
  const bool interleaved;
  const int64_t weights, slots, gradient;
};

// Prefetches the rows of an update. They are prefetched in blocks if a TLB miss does not stall
// the processor, or if a row has one cache line at most.
class UpdatePrefetcher {
 public:
  explicit UpdatePrefetcher(const UpdateLines& lines)
      : lines_(lines),
        in_blocks_(!kWaitsForPages || lines.row_bytes <= kLine),
        rows_(in_blocks_ ? PrefetchDistance(64 << 10, lines.row_bytes, 8, 256)
                         : PrefetchDistance(8 << 10, lines.row_bytes, 4, kAtOnce)) {}

  // Must be called before the update of row i.
  void operator()(int64_t i) {
    const int64_t count = lines_.call.count;
    if (in_blocks_) {
      // Prefetches a block into L2 before the first of its rows is updated.
      if (i == prefetched_) PrefetchUntil<2>(Min(count, i + rows_));
      return;
    }
    // Prefetches a few rows ahead, into L1, so that memory is busy while rows are updated.
    if (i % kAtOnce == 0) {
      const int64_t end = Min(count, i + 2 * kAtOnce);
      for (int64_t next = i == 0 ? 0 : i + kAtOnce; next < end; ++next) {
        lines_.WarmTlb(next);
      }
    }
    PrefetchUntil<1>(Min(count, i + rows_));
  }

 private:
  static constexpr int64_t kAtOnce = 32;  // The number of rows whose pages are one group.

  template <int kLevel>
  void PrefetchUntil(int64_t until) {
    for (; prefetched_ < until; ++prefetched_) lines_.PrefetchRow<kLevel>(prefetched_);
  }

  const UpdateLines& lines_;
  const bool in_blocks_;
  const int64_t rows_;
  int64_t prefetched_ = 0;
};

template <class Rule>
void Update(const UpdateCall& call) {
  using F = typename Rule::F;
  const Step<Rule> step(*call.hyper);
  const TableRows& table = call.table;
  const int64_t dimension = table.dimension;
  const UpdateLines lines(call, Rule::kSlots * (kIsRowRule<Rule> ? 1 : dimension));
  UpdatePrefetcher prefetch(lines);
  for (int64_t i = 0; i < call.count; ++i) {
    prefetch(i);
    const OpenRow row(table, call.rounding, call.wide, call.rows[i]);
    const Contribution* const first = call.contributions + call.offsets[i];
    const Contribution* const end = call.contributions + call.offsets[i + 1];
    if (end - first == 1 || !call.accumulate) {
      for (const Contribution* one = first; one != end; ++one) {
        ApplyRow(step, row, Scaled<F>{static_cast<F>(one->coefficient), one->gradient});
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
    ApplyRow(step, row, Summed<F>{sum});
  }
}

template <class Rule>
void Rest(const RestCall& call) {
  using F = typename Rule::F;
  const Step<Rule> step(*call.hyper);
  for (int64_t i = call.first; i < call.end; ++i) {
    if (call.touched[i / 64] >> (i % 64) & 1) continue;
    ApplyRow(step, OpenRow(call.table, call.rounding, call.wide, i), NoGradient<F>{});
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
  kernels.widen = Widen;
  // Updates prefetch blocks of rows. Between neighboring rows, the processor would also
  // prefetch rows that nothing reads.
  kernels.spread_updates = !kWaitsForPages;
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
