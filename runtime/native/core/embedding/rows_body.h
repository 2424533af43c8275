// The bodies of RowKernels. Included by one file per instruction set, which is compiled with
// its flags: OPWRIGHT_VECTOR_BYTES is the width of its vectors, OPWRIGHT_ACCUMULATORS how
// many of them a sum may fill. All of it has internal linkage.
#include <utility>

#include "core/embedding/rows.h"

namespace opwright {
namespace embedding {
namespace {

constexpr int kLanes = OPWRIGHT_VECTOR_BYTES / 4;

template <int N>
struct Simd {
  typedef float V __attribute__((vector_size(N * 4)));
  typedef float U __attribute__((vector_size(N * 4), aligned(4), may_alias));
};
template <>
struct Simd<1> {
  typedef float V;
  typedef float U;
};
template <int N>
using V = typename Simd<N>::V;

template <int N>
inline V<N> Get(const float* from) {
  return *reinterpret_cast<const typename Simd<N>::U*>(from);
}
template <int N>
inline void Put(float* to, V<N> value) {
  *reinterpret_cast<typename Simd<N>::U*>(to) = value;
}

constexpr int64_t kLine = 64;

// Lines that hold a row, wherever it begins; fewer if rows begin with a line.
inline int64_t LinesOf(const float* table, int64_t row_bytes, int64_t stride_bytes) {
  const bool aligned = reinterpret_cast<uintptr_t>(table) % kLine == 0 && stride_bytes % kLine == 0;
  return (row_bytes + kLine - 1) / kLine + (aligned ? 0 : 1);
}

// Asks for the lines of a row, of a cache level.
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

// Rows are asked for in blocks, and worked with when the whole block has been asked for:
// requests between the stores of other rows are slower (Zen 4). Measured, and flat around
// these.
inline int64_t RowsInBlock(int64_t row_bytes) {
  const int64_t rows = (64 << 10) / row_bytes;
  return rows < 8 ? 8 : rows > 256 ? 256 : rows;
}

// The first level has no room for a block: how many rows ahead to ask for instead.
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
    return Get<N>(from);
  }
};

struct Quantized {
  float lower, upper, step;
  explicit Quantized(const Quantization& q)
      : lower(q.lower),
        upper(q.upper),
        step((q.upper - q.lower) / static_cast<float>(q.buckets - 1)) {}
  template <int N>
  V<N> Row(const float* from) const {
    float values[N];
    for (int i = 0; i < N; ++i) {
      const float x = rules::Min(rules::Max(from[i], lower), upper);
      values[i] = Floor((x - lower) / step + 0.5f) * step + lower;
    }
    return Get<N>(values);
  }
};

// One sample's columns `from` to `from + kVectors * N`.
template <int N, int kVectors, class Read>
inline void Bag(const LookupCall& call, const Read& read, int64_t sample, int64_t from) {
  V<N> sum[kVectors];
  for (int v = 0; v < kVectors; ++v) sum[v] = V<N>{};  // All at once would go through memory.
  const int64_t end = call.starts[sample + 1];
  for (int64_t i = call.starts[sample]; i < end; ++i) {
    const float* const row = call.table + call.ids[i] * call.stride + from;
    if (call.weights) {
      const float weight = call.weights[i];
      for (int v = 0; v < kVectors; ++v) sum[v] += weight * read.template Row<N>(row + v * N);
    } else {
      for (int v = 0; v < kVectors; ++v) sum[v] += read.template Row<N>(row + v * N);
    }
  }
  const float scale = call.scales ? call.scales[sample] : 1.f;
  float* const out = call.out + sample * call.dimension + from;
  for (int v = 0; v < kVectors; ++v) Put<N>(out + v * N, sum[v] * scale);
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
  constexpr int kMost = OPWRIGHT_ACCUMULATORS;
  const auto numbers = std::make_integer_sequence<int, kMost>();
  const int64_t vectors = call.dimension / kLanes;
  const int64_t full = vectors / kMost;
  const int last = static_cast<int>(vectors % kMost);
  const BagFunction<Read> full_bag = BagOf<Read>(kMost, numbers);
  const BagFunction<Read> last_bag = last ? BagOf<Read>(last, numbers) : nullptr;
  const int64_t row_bytes = call.dimension * static_cast<int64_t>(sizeof(float));
  const int64_t block = RowsInBlock(row_bytes);
  const int64_t stride_bytes = call.stride * static_cast<int64_t>(sizeof(float));
  const int64_t lines = LinesOf(call.table, row_bytes, stride_bytes);
  const bool first_level = PrefetchToFirstLevel(row_bytes, stride_bytes);
  const int64_t ids_end = call.starts[call.end];
  int64_t asked = call.starts[call.first];
  for (int64_t sample = call.first; sample < call.end; ++sample) {
    const int64_t needed = call.starts[sample + 1];
    int64_t until = asked;
    if (first_level) {
      until = needed + kRowsAhead;
    } else if (needed > asked) {
      until = needed > asked + block ? needed : asked + block;
    }
    for (; asked < until && asked < ids_end; ++asked) {
      const float* const row = call.table + call.ids[asked] * call.stride;
      first_level ? Prefetch<1>(row, lines) : Prefetch<2>(row, lines);
    }
    int64_t from = 0;
    for (int64_t i = 0; i < full; ++i, from += kMost * kLanes) {
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
  int64_t asked = 0;
  for (int64_t i = 0; i < call.count; ++i) {
    if (i == asked) {
      const int64_t until = call.count - i < block ? call.count : i + block;
      for (; asked < until; ++asked) {
        Prefetch<2>(call.table + call.rows[asked] * call.stride, lines);
        Prefetch<2>(call.contributions[call.starts[asked]].gradient, gradient_lines);
      }
    }
    float* const row = call.table + call.rows[i] * call.stride;
    const Contribution* const first = call.contributions + call.starts[i];
    const Contribution* const end = call.contributions + call.starts[i + 1];
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

bool Finite(int64_t count, const float* values) {
  int32_t bad = 0;
  for (int64_t i = 0; i < count; ++i) bad |= !(rules::Abs(values[i]) <= 3.40282347e+38f);
  return !bad;
}

constexpr RowKernels MakeRowKernels() {
  RowKernels kernels{};
  kernels.lookup = Lookup;
  kernels.finite = Finite;
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
}  // namespace embedding
}  // namespace opwright
