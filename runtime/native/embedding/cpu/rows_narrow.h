// How loops read and write rows of narrow dtypes. rows_body.h includes this file.
#include "embedding/cpu/narrow.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace opwright::embedding {
namespace {

// A vector of N integers, which has as many bytes as V<N> if Integer has 32 bits.
template <class Integer, int N>
struct IntegersOf {
  typedef Integer Type __attribute__((vector_size(N * sizeof(Integer))));
};
template <class Integer, int N>
using Integers = typename IntegersOf<Integer, N>::Type;

template <class Integer, int N>
inline Integers<Integer, N> GetIntegers(const void* from) {
  Integers<Integer, N> value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

// Reads N unsigned integers of 8 or 16 bits. GCC converts vectors that fill a register in many
// steps, where one instruction does.
template <int N, class Integer>
inline Integers<int32_t, N> Extended(const Integer* from) {
  const auto integers = GetIntegers<Integer, N>(from);
  [[maybe_unused]] constexpr bool kBytes = sizeof(Integer) == 1;
#if defined(__AVX512F__)
  if constexpr (N == 16 && kBytes) {
    return (Integers<int32_t, N>)_mm512_maskz_cvtepu8_epi32(0xffff, (__m128i)integers);
  } else if constexpr (N == 16) {
    return (Integers<int32_t, N>)_mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)integers);
  }
#endif
#if defined(__AVX2__)
  if constexpr (N == 8 && kBytes) {
    const auto* const low = reinterpret_cast<const __m128i*>(from);
    return (Integers<int32_t, N>)_mm256_cvtepu8_epi32(_mm_loadl_epi64(low));
  } else if constexpr (N == 8) {
    return (Integers<int32_t, N>)_mm256_cvtepu16_epi32((__m128i)integers);
  }
#endif
  return __builtin_convertvector(integers, Integers<int32_t, N>);
}

// Reads N elements as float32. GCC has no vectors of one lane.
template <int N>
inline V<N> Widened(const BFloat16* from) {
  if constexpr (N == 1) {
    return Load(*from);
  } else {
    return (V<N>)(Extended<N>(&from->bits) << 16);
  }
}

template <int N>
inline V<N> Widened(const Half* from) {
  if constexpr (N == 1) {
    return Load(*from);
#if defined(__F16C__)
#if defined(__AVX512F__)
  } else if constexpr (N == 16) {
    // GCC warns of _mm512_cvtph_ps, which uses an uninitialized vector.
    return (V<N>)_mm512_maskz_cvtph_ps(0xffff, (__m256i)GetIntegers<uint16_t, N>(from));
#endif
  } else if constexpr (N == 8) {
    return (V<N>)_mm256_cvtph_ps((__m128i)GetIntegers<uint16_t, N>(from));
  } else if constexpr (N == 4) {
    return (V<N>)_mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
#elif defined(__aarch64__)
  } else if constexpr (N == 4) {
    return GetFour(from);
#endif
  } else {
    V<N> value;
    for (int i = 0; i < N; ++i) value[i] = Load(from[i]);
    return value;
  }
}

template <int N>
inline V<N> Widened(const uint8_t* from) {
  if constexpr (N == 1) {
    return *from;
  } else {
    return __builtin_convertvector(Extended<N>(from), V<N>);
  }
}

// The readers of rows of narrow dtypes, as Plain is for float32.
template <class T>
struct Floats16 {
  using Element = T;
  static constexpr int64_t kHeader = 0;
  const Floats16& Of(const T*) const { return *this; }
  template <int N>
  V<N> Row(const T* from) const {
    return Widened<N>(from);
  }
};

struct Codes {
  using Element = uint8_t;
  static constexpr int64_t kHeader = kInt8HeaderBytes;
  float scale = 0, offset = 0;
  Codes Of(const uint8_t* row) const {
    Codes codes;
    __builtin_memcpy(&codes.scale, row, 4);
    __builtin_memcpy(&codes.offset, row + 4, 4);
    return codes;
  }
  template <int N>
  V<N> Row(const uint8_t* from) const {
    return Widened<N>(from) * scale + offset;
  }
};

// Calls visit(reader) with the reader of a narrow dtype.
template <class Visit>
inline void VisitReader(RowDtype dtype, Visit&& visit) {
  switch (dtype) {
    case RowDtype::kFloat16: return visit(Floats16<Half>());
    case RowDtype::kBfloat16: return visit(Floats16<BFloat16>());
    default: return visit(Codes());
  }
}

// Reads `count` weights of a row, from column `first` on.
__attribute__((noinline)) void Widen(RowDtype dtype, const float* row, int64_t first,
                                     int64_t count, float* to) {
  VisitReader(dtype, [&](const auto& any) {
    using Element = typename std::decay_t<decltype(any)>::Element;
    const Element* const elements = reinterpret_cast<const Element*>(row);
    const auto read = any.Of(elements);
    Columns<kLanes>(0, count, [&](auto width, int64_t k) {
      constexpr int N = decltype(width)::value;
      Put<float, N>(to + k, read.template Row<N>(elements + read.kHeader + first + k));
    });
  });
}

// Writes the weights of a row, rounded at random.
__attribute__((noinline)) void Narrow(RowDtype dtype, int64_t dimension, const float* from,
                                      uint64_t key, float* row) {
  NarrowWith(dtype, dimension, from, row, AtRandom{key});
}

}  // namespace
}  // namespace opwright::embedding
