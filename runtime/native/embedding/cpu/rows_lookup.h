// The loops that look up rows. rows_body.h includes this file.
#include "embedding/cpu/rows_narrow.h"

namespace opwright::embedding {
namespace {

// floorf, written out so that it is inlined with every instruction set. Floats beyond the range
// of int32 have no fraction and are returned as they are.
inline float Floor(float x) {
  const float whole = static_cast<float>(static_cast<int32_t>(x));
  const float below = whole > x ? whole - 1 : whole;
  return x > -2147483000.f && x < 2147483000.f ? below : x;
}

// A reader of rows has the type of their elements, and how many elements come before those of
// the columns. Of() reads these first elements of a row. Row<N>() reads N columns.
struct Plain {
  using Element = float;
  static constexpr int64_t kHeader = 0;
  const Plain& Of(const float*) const { return *this; }
  template <int N>
  V<N> Row(const float* from) const {
    return Get<float, N>(from);
  }
};

struct Quantized {
  using Element = float;
  static constexpr int64_t kHeader = 0;
  float lower, upper, step;
  explicit Quantized(const Quantization& q) : lower(q.lower), upper(q.upper), step(q.step()) {}
  float operator()(float weight) const {
    const float x = rules::Between(lower, upper, weight);
    // Rounding may put the value of the last bucket above the upper limit.
    return rules::Min(upper, Floor((x - lower) / step + 0.5f) * step + lower);
  }
  const Quantized& Of(const float*) const { return *this; }
  template <int N>
  V<N> Row(const float* from) const {
    float values[N];
    for (int i = 0; i < N; ++i) values[i] = (*this)(from[i]);
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

  template <int kElements, class Element>
  static void PrefetchColumns(const Element* from, int64_t end) {
    constexpr int kInLine = kLine / sizeof(Element);
    for (int k = 0; k < kElements; k += kInLine) Prefetch<kLevel>(from + k);
    if (!kAligned) Prefetch<kLevel>(from + end - 1);
  }
};

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

// Calls visit for kVectors vectors at a time, and then for half as many, and so on.
template <int kVectors, class Visit>
inline void Halves(int64_t from, int64_t dimension, Visit&& visit) {
  using Whole = std::integral_constant<int, kLanes>;
  if constexpr (kVectors > 0) {
    for (; from + kVectors * kLanes <= dimension; from += kVectors * kLanes) {
      visit(Whole(), std::integral_constant<int, kVectors>(), from,
            int64_t{kVectors - 1} * kLanes);
    }
    Halves<kVectors / 2>(from, dimension, visit);
  } else if (from < dimension) {
    visit(Whole(), std::integral_constant<int, 1>(), dimension - kLanes, int64_t{0});
  }
}

// The row has fewer columns than a vector.
constexpr int kFewColumns = -1;
// The row has any other number of columns. Few specializations result, but ids of some widths
// are read several times.
constexpr int kInHalves = -2;

// Calls visit(N, kVectors, first column, last) for all columns of a row. Each call but the last
// one has as many vectors as there are registers for sums. The last call has kLast vectors, all
// of them complete. If kLast is negative, it is one of the constants above.
template <int kLast, class Visit>
inline void Parts(int64_t dimension, Visit&& visit) {
  using One = std::integral_constant<int, 1>;
  using Whole = std::integral_constant<int, kLanes>;
  if constexpr (kLast == kFewColumns) {
    Columns<kLanes / 2>(
        0, dimension, [&](auto width, int64_t from) { visit(width, One(), from, int64_t{0}); });
  } else if constexpr (kLast == kInHalves) {
    Halves<OPWRIGHT_ACCUMULATORS>(0, dimension, visit);
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

// The number of ids of a sample, and whether they have weights.
enum class Ids { kOne, kAny, kWeighted, kMaybeWeighted };

template <class Read>
inline int64_t RowBytes(int64_t dimension) {
  return (Read::kHeader + dimension) * static_cast<int64_t>(sizeof(typename Read::Element));
}
// The number of elements from one row to the next.
template <class Read>
inline int64_t StrideOf(const LookupCall& call) {
  return call.stride * static_cast<int64_t>(sizeof(float) / sizeof(typename Read::Element));
}

// Sums the columns of a sample from column `from` on. It is not inlined, because its loop needs
// all registers.
template <Ids kIds, int N, int kVectors, class Read, class Prefetcher>
__attribute__((noinline)) void Bag(const LookupCall& call, const Read& read,
                                   const Prefetcher& prefetcher, int64_t sample, int64_t from,
                                   int64_t last) {
  Sums<N, kVectors> sums(last);
  const int64_t first = call.offsets[sample], end = call.offsets[sample + 1];
  using Element = typename Read::Element;
  constexpr int64_t kHeader = Read::kHeader;
  const Element* const table_rows = reinterpret_cast<const Element*>(call.table);
  const Element* const table = table_rows + kHeader + from;
  const Element* const table_last = table + last;
  const int64_t stride = StrideOf<Read>(call), rows = prefetcher.rows;
  const int64_t* id = call.indices + first;
  constexpr bool kWeighted = kIds != Ids::kAny;
  // Without weights, each factor is the same 1.
  const bool weighted =
      kIds == Ids::kWeighted || (kIds == Ids::kMaybeWeighted && call.per_sample_weights);
  static constexpr float kOne = 1;
  const float* weight = weighted ? call.per_sample_weights + first : &kOne;
  const auto add = [&](auto prefetches, const int64_t* until) __attribute__((always_inline)) {
    for (; id < until; ++id) {
      const int64_t row = *id * stride;
      if constexpr (decltype(prefetches)::value) {
        prefetcher.template PrefetchColumns<N * kVectors>(table - kHeader + id[rows] * stride,
                                                          kHeader + last + N);
      }
      const float factor = kWeighted ? *weight : 1.f;
      weight += weighted;
      const auto& of_row = read.Of(table_rows + row);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        // The address is a base that stays the same in the loop over ids, plus the row's
        // offset. One instruction can thus load from it.
        const auto value =
            of_row.template Row<N>((v < kVectors - 1 ? table + v * N : table_last) + row);
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

template <Ids kIds, int kLast, class Read, class Prefetcher>
void Bags(const LookupCall& call, const Read& read, const Prefetcher& prefetcher) {
  for (int64_t sample = call.first; sample < call.end; ++sample) {
    Parts<kLast>(call.dimension, [&](auto width, auto vectors, int64_t from, int64_t last) {
      constexpr int N = decltype(width)::value, kVectors = decltype(vectors)::value;
      Bag<kIds, N, kVectors>(call, read, prefetcher, sample, from, last);
    });
  }
}

// Looks up samples that have one id each. Copies the members of `call` to variables. For many
// short rows, reading the members again for each row would be half of all instructions.
template <int kLast, class Read, class Prefetcher>
void Singles(const LookupCall& call, const Read& read, const Prefetcher& prefetcher) {
  using Element = typename Read::Element;
  constexpr int64_t kHeader = Read::kHeader;
  const Element* const table = reinterpret_cast<const Element*>(call.table);
  const int64_t* const indices = call.indices;
  const int64_t stride = StrideOf<Read>(call), dimension = call.dimension;
  const int64_t out_stride = call.out_stride;
  const int64_t first = call.first, end = call.end, rows = prefetcher.rows;
  const bool streaming = call.streaming;
  // Rows of several cache lines keep memory busy without WarmTlb.
  const bool pages = kWaitsForPages && RowBytes<Read>(dimension) <= kLine;
  float* out = call.out + first * out_stride;
  for (int64_t i = first; i < end; ++i, out += out_stride) {
    if (pages && (i % Prefetcher::kAtOnce == 0 || i == first)) prefetcher.WarmTlb(call, i);
    const Element* const row = table + indices[i] * stride;
    const Element* const next = table + indices[i + rows < end ? i + rows : i] * stride;
    const auto& of_row = read.Of(row);
    Parts<kLast>(dimension, [&](auto width, auto vectors, int64_t from,
                                int64_t last) __attribute__((always_inline)) {
      constexpr int N = decltype(width)::value, kVectors = decltype(vectors)::value;
      Sums<N, kVectors> sums(last);
      prefetcher.template PrefetchColumns<N * kVectors>(next + from, kHeader + last + N);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        sums.of[v] += of_row.template Row<N>(row + kHeader + from + sums.At(v));
      }
      sums.PutInto(out + from, streaming);
    });
  }
}

template <Ids kIds, int kLast, class Read, class Prefetcher>
void Samples(const LookupCall& call, const Read& read, const Prefetcher& prefetcher) {
  if constexpr (kIds == Ids::kOne) {
    Singles<kLast>(call, read, prefetcher);
  } else {
    Bags<kIds, kLast>(call, read, prefetcher);
  }
}

template <Ids kIds, class Read, class Prefetcher, int... kLast>
void LookupWithPrefetch(const LookupCall& call, const Read& read, const Prefetcher& prefetcher,
                        std::integer_sequence<int, kLast...>) {
  if (call.dimension < kLanes) return Samples<kIds, kFewColumns>(call, read, prefetcher);
  static constexpr void (*kByLast[])(const LookupCall&, const Read&, const Prefetcher&) = {
      Samples<kIds, kLast, Read, Prefetcher>...};
  const int64_t rest = call.dimension % (OPWRIGHT_ACCUMULATORS * kLanes);
  kByLast[(rest + kLanes - 1) / kLanes](call, read, prefetcher);
}

template <Ids kIds, int kLevel, class Read>
void LookupFrom(const LookupCall& call, const Read& read, int64_t bytes, int64_t rows) {
  constexpr auto kLasts = std::make_integer_sequence<int, OPWRIGHT_ACCUMULATORS + 1>();
  const int64_t distance = PrefetchDistance(bytes, RowBytes<Read>(call.dimension), 8, rows);
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

// Lookups of narrow rows have fewer specializations, because these make much of the library.
template <Ids kIds, class Read>
void LookupNarrowIds(const LookupCall& call, const Read& read, int64_t ids_end) {
  const int64_t distance = PrefetchDistance(
      OPWRIGHT_PREFETCH_BYTES, RowBytes<Read>(call.dimension), 8, OPWRIGHT_PREFETCH_ROWS);
  const Prefetcher<OPWRIGHT_PREFETCH_LEVEL, false> prefetcher{distance, ids_end};
  if (call.dimension < kLanes) return Samples<kIds, kFewColumns>(call, read, prefetcher);
  Samples<kIds, kInHalves>(call, read, prefetcher);
}

// Quantizes narrow rows. This takes more time than reading them, so it is not specialized.
void LookupQuantizedNarrow(const LookupCall& call) {
  constexpr int64_t kAtOnce = 64;  // Columns.
  const Quantized quantized(*call.quantization);
  for (int64_t sample = call.first; sample < call.end; ++sample) {
    const int64_t first = call.offsets ? call.offsets[sample] : sample;
    const int64_t end = call.offsets ? call.offsets[sample + 1] : sample + 1;
    const float scale = call.scales ? call.scales[sample] : 1.f;
    float* const out = call.out + sample * call.out_stride;
    for (int64_t from = 0; from < call.dimension; from += kAtOnce) {
      const int64_t columns = Min(kAtOnce, call.dimension - from);
      float sums[kAtOnce] = {}, weights[kAtOnce] = {};
      for (int64_t i = first; i < end; ++i) {
        Widen(call.dtype, call.table + call.indices[i] * call.stride, from, columns, weights);
        const float factor = call.per_sample_weights ? call.per_sample_weights[i] : 1.f;
        for (int64_t k = 0; k < kAtOnce; ++k) sums[k] += factor * quantized(weights[k]);
      }
      for (int64_t k = 0; k < columns; ++k) out[from + k] = scale * sums[k];
    }
  }
}

void LookupNarrow(const LookupCall& call) {
  if (call.quantization) return LookupQuantizedNarrow(call);
  VisitReader(call.dtype, [&](const auto& read) {
    if (!call.offsets) return LookupNarrowIds<Ids::kOne>(call, read, call.end);
    LookupNarrowIds<Ids::kMaybeWeighted>(call, read, call.offsets[call.end]);
  });
}

// Whether all vectors of all outputs are aligned to 16 bytes.
bool CanStream(const LookupCall& call) {
  return reinterpret_cast<uintptr_t>(call.out) % 16 == 0 && call.out_stride % 4 == 0 &&
         call.dimension % 4 == 0;
}

void Lookup(const LookupCall& given) {
  LookupCall call = given;
  call.streaming = given.streaming && CanStream(given);
  if (call.dtype != RowDtype::kFloat32) {
    LookupNarrow(call);
  } else if (call.quantization) {
    LookupWith(call, Quantized(*call.quantization));
  } else {
    LookupWith(call, Plain());
  }
  if (call.streaming) EndStreaming();
}

}  // namespace
}  // namespace opwright::embedding
