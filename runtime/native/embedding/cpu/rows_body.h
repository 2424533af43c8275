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

// floorf, written out so that it is inlined with every instruction set. Floats beyond the range
// of int32 have no fraction and are returned as they are.
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
      // Rounding may put the value of the last bucket above the upper limit.
      values[i] = rules::Min(upper, Floor((x - lower) / step + 0.5f) * step + lower);
    }
    return Get<float, N>(values);
  }
};

// Prefetches rows before they are summed. Memory is busiest if the requests are spread evenly
// over the time of the sums. Each step of a sum therefore prefetches the same columns of the
// row that is `rows` ids later. The processor overlaps the misses within a window of
// instructions. A row should therefore take few instructions, and no branches.
template <int kLevel, bool kAligned>
struct Prefetcher {
  static constexpr int64_t kAtOnce = 16;  // The number of rows whose pages are one group.
  int64_t rows, ids_end;

  // Loads the TLB entries of the next rows, by prefetching their first cache lines.
  void WarmTlb(const LookupCall& call, int64_t i) const {
    const int64_t end = Min(ids_end, i + rows + kAtOnce);
    for (int64_t next = i == call.first ? i : i + rows; next < end; ++next) {
      Prefetch<kLevel>(call.table + call.indices[next] * call.stride);
    }
  }

  template <int kFloats>
  static void PrefetchColumns(const float* from, int64_t end) {
    constexpr int kInLine = kLine / sizeof(float);
    for (int k = 0; k < kFloats; k += kInLine) Prefetch<kLevel>(from + k);
    if (!kAligned) Prefetch<kLevel>(from + end - 1);
  }
};

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

// kVectors sums of N columns each. The last vector begins at column `last`. It may share
// columns with the vector before it. The sums of these columns are then computed twice, with
// the same results. Loops over the sums are always unrolled. GCC keeps `of` in memory, not in
// registers, if even one loop is not unrolled.
template <int N, int kVectors>
struct Sums {
  V<N> of[kVectors];
  const int64_t last;

  explicit Sums(int64_t last) : last(last) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) of[v] = V<N>{};
  }

  int64_t At(int v) const { return v < kVectors - 1 ? v * N : last; }

  __attribute__((always_inline)) void PutInto(float* out, bool streaming) const {
    if (streaming) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) Stream<N>(out + At(v), of[v]);
    } else {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) Put<float, N>(out + At(v), of[v]);
    }
  }
};

// Calls visit(N, kVectors, first column, last) for all columns of a row. Each call but the last
// one has as many vectors as there are registers for sums. The last call has kLast vectors, all
// of them complete. kLast is negative if the row has fewer columns than a vector.
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

// Sums the columns of a sample from column `from` on. It is not inlined, because its loop needs
// all registers.
template <bool kWeighted, int N, int kVectors, class Read, class Prefetcher>
__attribute__((noinline)) void Bag(const LookupCall& call, const Read& read,
                                   const Prefetcher& prefetcher, int64_t sample, int64_t from,
                                   int64_t last) {
  Sums<N, kVectors> sums(last);
  const int64_t first = call.offsets[sample], end = call.offsets[sample + 1];
  const float* const table = call.table + from;
  const float* const table_last = table + last;
  const int64_t stride = call.stride, rows = prefetcher.rows;
  const int64_t* id = call.indices + first;
  const float* weight = kWeighted ? call.per_sample_weights + first : nullptr;
  const auto add = [&](auto prefetches, const int64_t* until) __attribute__((always_inline)) {
    for (; id < until; ++id) {
      const int64_t row = *id * stride;
      if constexpr (decltype(prefetches)::value) {
        prefetcher.template PrefetchColumns<N * kVectors>(table + id[rows] * stride, last + N);
      }
      const float factor = kWeighted ? *weight++ : 1.f;
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        // The address is a base that stays the same in the loop over ids, plus the row's
        // offset. One instruction can thus load from it.
        const auto value =
            read.template Row<N>((v < kVectors - 1 ? table + v * N : table_last) + row);
        sums.of[v] += kWeighted ? factor * value : value;
      }
    }
  };
  // The last ids have no later rows to prefetch.
  add(std::true_type(), call.indices + Max(first, Min(end, prefetcher.ids_end - rows)));
  add(std::false_type(), call.indices + end);
  const float scale = call.scales ? call.scales[sample] : 1.f;
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) sums.of[v] *= scale;
  sums.PutInto(call.out + sample * call.out_stride + from, call.streaming);
}

template <bool kWeighted, int kLast, class Read, class Prefetcher>
void Bags(const LookupCall& call, const Read& read, const Prefetcher& prefetcher) {
  for (int64_t sample = call.first; sample < call.end; ++sample) {
    Parts<kLast>(call.dimension, [&](auto width, auto vectors, int64_t from, int64_t last) {
      constexpr int N = decltype(width)::value, kVectors = decltype(vectors)::value;
      Bag<kWeighted, N, kVectors>(call, read, prefetcher, sample, from, last);
    });
  }
}

// Looks up samples that have one id each. Copies the members of `call` to variables. For many
// short rows, reading the members again for each row would be half of all instructions.
template <int kLast, class Read, class Prefetcher>
void Singles(const LookupCall& call, const Read& read, const Prefetcher& prefetcher) {
  const float* const table = call.table;
  const int64_t* const indices = call.indices;
  const int64_t stride = call.stride, dimension = call.dimension, out_stride = call.out_stride;
  const int64_t first = call.first, end = call.end, rows = prefetcher.rows;
  const bool streaming = call.streaming;
  // Rows of several cache lines keep memory busy without WarmTlb.
  const bool pages = kWaitsForPages && dimension * static_cast<int64_t>(sizeof(float)) <= kLine;
  float* out = call.out + first * out_stride;
  for (int64_t i = first; i < end; ++i, out += out_stride) {
    if (pages && (i % Prefetcher::kAtOnce == 0 || i == first)) prefetcher.WarmTlb(call, i);
    const float* const row = table + indices[i] * stride;
    const float* const next = table + indices[i + rows < end ? i + rows : i] * stride;
    Parts<kLast>(dimension, [&](auto width, auto vectors, int64_t from,
                                int64_t last) __attribute__((always_inline)) {
      constexpr int N = decltype(width)::value, kVectors = decltype(vectors)::value;
      Sums<N, kVectors> sums(last);
      prefetcher.template PrefetchColumns<N * kVectors>(next + from, last + N);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        sums.of[v] += read.template Row<N>(row + from + sums.At(v));
      }
      sums.PutInto(out + from, streaming);
    });
  }
}

// The number of ids of a sample, and whether they have weights.
enum class Ids { kOne, kAny, kWeighted };

template <Ids kIds, int kLast, class Read, class Prefetcher>
void Samples(const LookupCall& call, const Read& read, const Prefetcher& prefetcher) {
  if constexpr (kIds == Ids::kOne) {
    Singles<kLast>(call, read, prefetcher);
  } else {
    Bags<kIds == Ids::kWeighted, kLast>(call, read, prefetcher);
  }
}

template <Ids kIds, class Read, class Prefetcher, int... kLast>
void LookupWithPrefetch(const LookupCall& call, const Read& read, const Prefetcher& prefetcher,
                        std::integer_sequence<int, kLast...>) {
  if (call.dimension < kLanes) return Samples<kIds, -1>(call, read, prefetcher);
  static constexpr void (*kByLast[])(const LookupCall&, const Read&, const Prefetcher&) = {
      Samples<kIds, kLast, Read, Prefetcher>...};
  const int64_t rest = call.dimension % (OPWRIGHT_ACCUMULATORS * kLanes);
  kByLast[(rest + kLanes - 1) / kLanes](call, read, prefetcher);
}

template <Ids kIds, int kLevel, class Read>
void LookupFrom(const LookupCall& call, const Read& read, int64_t bytes, int64_t rows) {
  constexpr auto kLasts = std::make_integer_sequence<int, OPWRIGHT_ACCUMULATORS + 1>();
  const int64_t row_bytes = call.dimension * static_cast<int64_t>(sizeof(float));
  const int64_t distance = PrefetchDistance(bytes, row_bytes, 8, rows);
  const int64_t ids_end = kIds == Ids::kOne ? call.end : call.offsets[call.end];
  // Quantized rows do not need the aligned prefetcher. Without it, some cache lines are
  // prefetched twice, which takes less time than the quantization.
  if constexpr (std::is_same_v<Read, Plain>) {
    if (Aligned(call.table, call.stride)) {
      return LookupWithPrefetch<kIds>(call, read, Prefetcher<kLevel, true>{distance, ids_end},
                                      kLasts);
    }
  }
  LookupWithPrefetch<kIds>(call, read, Prefetcher<kLevel, false>{distance, ids_end}, kLasts);
}

template <Ids kIds, class Read>
void LookupIds(const LookupCall& call, const Read& read) {
  // The rows of cache resident tables are in L2 already, and are prefetched into L1 instead.
  if (OPWRIGHT_PREFETCH_LEVEL > 1 && call.cache_resident) {
    LookupFrom<kIds, 1>(call, read, 6 << 10, 32);
  } else {
    LookupFrom<kIds, OPWRIGHT_PREFETCH_LEVEL>(call, read, OPWRIGHT_PREFETCH_BYTES,
                                              OPWRIGHT_PREFETCH_ROWS);
  }
}

template <class Read>
void LookupWith(const LookupCall& call, const Read& read) {
  if (!call.offsets) return LookupIds<Ids::kOne>(call, read);
  if (!call.per_sample_weights) return LookupIds<Ids::kAny>(call, read);
  LookupIds<Ids::kWeighted>(call, read);
}

// Whether all vectors of all outputs are aligned to 16 bytes.
bool CanStream(const LookupCall& call) {
  return reinterpret_cast<uintptr_t>(call.out) % 16 == 0 && call.out_stride % 4 == 0 &&
         call.dimension % 4 == 0;
}

void Lookup(const LookupCall& given) {
  LookupCall call = given;
  call.streaming = given.streaming && CanStream(given);
  if (call.quantization) {
    LookupWith(call, Quantized(*call.quantization));
  } else {
    LookupWith(call, Plain());
  }
  if (call.streaming) EndStreaming();
}

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

template <class Rule, class Gradient>
inline void ApplyRow(const Step<Rule>& step, const TableRows& table, int64_t row,
                     const Gradient& gradient) {
  float* const weights = table.weights + row * table.stride;
  float* const slots = table.slots + row * table.slots_stride;
  if constexpr (kIsRowRule<Rule>) {
    ApplyRowRule(step, weights, slots, table.dimension, gradient);
  } else {
    Columns<kLanes>(0, table.dimension, [&](auto width, int64_t from) {
      constexpr int N = decltype(width)::value;
      typename Rule::F g[N];
      gradient.template Take<N>(from, g);
      Apply<Rule, N>(step, g, weights + from, slots + from, table.dimension);
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
        row_bytes((table.dimension + slots_size) * static_cast<int64_t>(sizeof(float))),
        interleaved(table.slots == table.weights + table.dimension),
        weights(CacheLinesOf(table.dimension + (interleaved ? slots_size : 0),
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
  const int64_t row_bytes;
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
