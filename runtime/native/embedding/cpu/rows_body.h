// The bodies of RowKernels. Included by one file per instruction set, which is compiled with
// its flags: OPWRIGHT_VECTOR_BYTES is the width of its vectors, OPWRIGHT_ACCUMULATORS how
// many of them a sum may fill. All of it has internal linkage.
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

// Lines that hold a row, wherever it begins; fewer if rows begin with a line.
inline int64_t LinesOf(const float* table, int64_t row_bytes, int64_t stride_bytes) {
  const bool aligned =
      reinterpret_cast<uintptr_t>(table) % kLine == 0 && stride_bytes % kLine == 0;
  return (row_bytes + kLine - 1) / kLine + (aligned ? 0 : 1);
}

// Prefetches the lines of a row, into a level of the cache.
template <int kLevel>
inline void Prefetch(const float* from, int64_t lines) {
  const char* const data = reinterpret_cast<const char*>(from);
  for (int64_t i = 0; i < lines; ++i) __builtin_prefetch(data + i * kLine, 0, 4 - kLevel);
}

// The second level: the first one has room for fewer requests than it takes to keep memory
// busy. But if they are all for the first line of a pair and for none of the second ones, Zen 4
// drops requests for the second level.
inline bool PrefetchToFirstLevel(int64_t row_bytes, int64_t stride_bytes) {
  return row_bytes <= kLine && stride_bytes % (2 * kLine) == 0;
}

// Rows are prefetched in blocks, and worked with when the whole block has been:
// requests between the stores of other rows are slower (Zen 4). Measured, and flat around
// these.
inline int64_t RowsInBlock(int64_t row_bytes) {
  const int64_t rows = (64 << 10) / row_bytes;
  return rows < 8 ? 8 : rows > 256 ? 256 : rows;
}

// The first level has no room for a block: how many rows ahead to prefetch instead.
constexpr int64_t kRowsAhead = 64;

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

// One sample's columns `from` to `from + kVectors * N`.
template <int N, int kVectors, class Read>
inline void Bag(const LookupCall& call, const Read& read, int64_t sample, int64_t from) {
  V<N> sum[kVectors];
  for (int v = 0; v < kVectors; ++v) sum[v] = V<N>{};  // All at once would go through memory.
  const int64_t end = call.offsets[sample + 1];
  for (int64_t i = call.offsets[sample]; i < end; ++i) {
    const float* const row = call.table + call.indices[i] * call.stride + from;
    if (call.per_sample_weights) {
      const float weight = call.per_sample_weights[i];
      for (int v = 0; v < kVectors; ++v) sum[v] += weight * read.template Row<N>(row + v * N);
    } else {
      for (int v = 0; v < kVectors; ++v) sum[v] += read.template Row<N>(row + v * N);
    }
  }
  const float scale = call.scales ? call.scales[sample] : 1.f;
  float* const out = call.out + sample * call.dimension + from;
  for (int v = 0; v < kVectors; ++v) Put<float, N>(out + v * N, sum[v] * scale);
}

template <class Read>
using BagFunction = void (*)(const LookupCall&, const Read&, int64_t, int64_t);

template <class Read, int... kVectors>
inline BagFunction<Read> BagOf(int vectors, std::integer_sequence<int, kVectors...>) {
  static constexpr BagFunction<Read> kAll[] = {Bag<kLanes, kVectors + 1, Read>...};
  return kAll[vectors - 1];
}

// Columns that fill no vector, in halves.
template <int N, class Read>
inline void Narrow(const LookupCall& call, const Read& read, int64_t sample, int64_t from) {
  if constexpr (N > 0) {
    if (call.dimension - from >= N) {
      Bag<N, 1>(call, read, sample, from);
      from += N;
    }
    Narrow<N / 2>(call, read, sample, from);
  }
}

template <class Read>
void LookupWith(const LookupCall& call, const Read& read) {
  constexpr int kMax = OPWRIGHT_ACCUMULATORS;
  const auto numbers = std::make_integer_sequence<int, kMax>();
  const int64_t vectors = call.dimension / kLanes;
  const int64_t full = vectors / kMax;
  const int last = static_cast<int>(vectors % kMax);
  const BagFunction<Read> full_bag = BagOf<Read>(kMax, numbers);
  const BagFunction<Read> last_bag = last ? BagOf<Read>(last, numbers) : nullptr;
  const int64_t row_bytes = call.dimension * static_cast<int64_t>(sizeof(float));
  const int64_t block = RowsInBlock(row_bytes);
  const int64_t stride_bytes = call.stride * static_cast<int64_t>(sizeof(float));
  const int64_t lines = LinesOf(call.table, row_bytes, stride_bytes);
  const bool first_level = PrefetchToFirstLevel(row_bytes, stride_bytes);
  const int64_t ids_end = call.offsets[call.end];
  int64_t prefetched = call.offsets[call.first];
  for (int64_t sample = call.first; sample < call.end; ++sample) {
    const int64_t needed = call.offsets[sample + 1];
    int64_t until = prefetched;
    if (first_level) {
      until = needed + kRowsAhead;
    } else if (needed > prefetched) {
      until = needed > prefetched + block ? needed : prefetched + block;
    }
    for (; prefetched < until && prefetched < ids_end; ++prefetched) {
      const float* const row = call.table + call.indices[prefetched] * call.stride;
      first_level ? Prefetch<1>(row, lines) : Prefetch<2>(row, lines);
    }
    int64_t from = 0;
    for (int64_t i = 0; i < full; ++i, from += kMax * kLanes) {
      full_bag(call, read, sample, from);
    }
    if (last) last_bag(call, read, sample, from);
    Narrow<kLanes / 2>(call, read, sample, vectors * kLanes);
  }
}

void Lookup(const LookupCall& call) {
  if (call.quantization) {
    LookupWith(call, Quantized(*call.quantization));
  } else {
    LookupWith(call, Plain());
  }
}

// Columns `from` to `from + N` of a row, with the gradients g.
template <class Rule, int N>
inline void Apply(const Step<Rule>& step, const typename Rule::F* g, float* row,
                  int64_t dimension) {
  using F = typename Rule::F;
  constexpr int kSlots = Rule::kSlots;
  F w[N], s[kSlots > 0 ? kSlots : 1][N];
  for (int k = 0; k < N; ++k) w[k] = row[k];
  for (int i = 0; i < kSlots; ++i) {
    for (int k = 0; k < N; ++k) s[i][k] = row[(i + 1) * dimension + k];
  }
  for (int k = 0; k < N; ++k) {
    F slots[kSlots > 0 ? kSlots : 1];
    for (int i = 0; i < kSlots; ++i) slots[i] = s[i][k];
    step(g[k], w[k], slots);
    for (int i = 0; i < kSlots; ++i) s[i][k] = slots[i];
  }
  for (int k = 0; k < N; ++k) row[k] = static_cast<float>(w[k]);
  for (int i = 0; i < kSlots; ++i) {
    for (int k = 0; k < N; ++k) row[(i + 1) * dimension + k] = static_cast<float>(s[i][k]);
  }
}

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

// `gradient(k)` is the gradient of column k.
template <class Rule, class Gradient>
inline void ApplyRow(const Step<Rule>& step, float* row, int64_t dimension,
                     const Gradient& gradient) {
  Columns<kLanes>(0, dimension, [&](auto width, int64_t from) {
    constexpr int N = decltype(width)::value;
    typename Rule::F g[N];
    for (int k = 0; k < N; ++k) g[k] = gradient(from + k);
    Apply<Rule, N>(step, g, row + from, dimension);
  });
}

template <class Rule>
void Update(const UpdateCall& call) {
  using F = typename Rule::F;
  const Step<Rule> step(*call.hyper);
  const int64_t row_bytes = call.stride * static_cast<int64_t>(sizeof(float));
  const int64_t lines = LinesOf(call.table, row_bytes, row_bytes);
  const int64_t gradient_lines =
      (call.dimension * static_cast<int64_t>(sizeof(float)) + kLine - 1) / kLine;
  const int64_t block = RowsInBlock(row_bytes);
  int64_t prefetched = 0;
  for (int64_t i = 0; i < call.count; ++i) {
    if (i == prefetched) {
      const int64_t until = call.count - i < block ? call.count : i + block;
      for (; prefetched < until; ++prefetched) {
        Prefetch<2>(call.table + call.rows[prefetched] * call.stride, lines);
        Prefetch<2>(call.contributions[call.offsets[prefetched]].gradient, gradient_lines);
      }
    }
    float* const row = call.table + call.rows[i] * call.stride;
    const Contribution* const first = call.contributions + call.offsets[i];
    const Contribution* const end = call.contributions + call.offsets[i + 1];
    if (end - first == 1 || !call.accumulate) {
      for (const Contribution* one = first; one != end; ++one) {
        const F coefficient = one->coefficient;
        const float* const gradient = one->gradient;
        ApplyRow(step, row, call.dimension,
                 [=](int64_t k) { return coefficient * static_cast<F>(gradient[k]); });
      }
      continue;
    }
    double* const sum = call.sum;
    for (int64_t k = 0; k < call.dimension; ++k) sum[k] = 0;
    for (const Contribution* one = first; one != end; ++one) {
      const double coefficient = one->coefficient;
      const float* const gradient = one->gradient;
      for (int64_t k = 0; k < call.dimension; ++k) sum[k] += coefficient * gradient[k];
    }
    ApplyRow(step, row, call.dimension, [=](int64_t k) { return static_cast<F>(sum[k]); });
  }
}

template <class Rule>
void Rest(const RestCall& call) {
  using F = typename Rule::F;
  const Step<Rule> step(*call.hyper);
  for (int64_t i = call.first; i < call.end; ++i) {
    if (call.touched[i / 64] >> (i % 64) & 1) continue;
    ApplyRow(step, call.table + i * call.stride, call.dimension, [](int64_t) { return F(0); });
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
