// Vectors of a fixed number of lanes, for inner loops that are compiled once for each
// instruction set. A type only determines the number of lanes. If a vector is wider than the
// registers of the instruction set, the compiler splits it.
#pragma once

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <cstdint>
#include <type_traits>

#include "base/float16.h"

namespace opwright {
namespace {

// All functions have internal linkage, for the reason in float16.h.

// S is float or double. Each type has its own specialization. In a template that depends on the
// number of lanes, GCC would drop may_alias from the unaligned type and cache stale values in
// registers.
template <class S, int kLanes>
struct Simd;
#define OPWRIGHT_SIMD(S, INTEGER, LANES)                                                \
  template <>                                                                           \
  struct Simd<S, LANES> {                                                               \
    typedef S V __attribute__((vector_size(LANES * sizeof(S))));                        \
    typedef S Unaligned                                                                 \
        __attribute__((vector_size(LANES * sizeof(S)), aligned(sizeof(S)), may_alias)); \
    typedef INTEGER I __attribute__((vector_size(LANES * sizeof(S))));                  \
  }
OPWRIGHT_SIMD(float, int32_t, 2);
OPWRIGHT_SIMD(float, int32_t, 4);
OPWRIGHT_SIMD(float, int32_t, 8);
OPWRIGHT_SIMD(float, int32_t, 16);
OPWRIGHT_SIMD(double, int64_t, 2);
OPWRIGHT_SIMD(double, int64_t, 4);
OPWRIGHT_SIMD(double, int64_t, 8);
#undef OPWRIGHT_SIMD
// A vector of one lane is a scalar.
template <>
struct Simd<float, 1> {
  typedef float V;
  typedef float Unaligned;
};

template <class S, int kLanes>
inline typename Simd<S, kLanes>::V Get(const S* from) {
  return *reinterpret_cast<const typename Simd<S, kLanes>::Unaligned*>(from);
}
template <class S, int kLanes>
inline void Put(S* to, typename Simd<S, kLanes>::V value) {
  *reinterpret_cast<typename Simd<S, kLanes>::Unaligned*>(to) = value;
}

// Stores a vector without going through the caches, if the processor has such streaming
// (non-temporal) stores. ARM processors notice by themselves that a program only writes. `to`
// must be aligned to 16 bytes. Other threads see the values only after EndStreaming.
template <int kLanes>
inline void Stream(float* to, typename Simd<float, kLanes>::V value) {
#if defined(__SSE__)
  if constexpr (kLanes % 4 == 0) {
    typename Simd<float, 4>::V parts[kLanes / 4];
    __builtin_memcpy(parts, &value, sizeof value);
#pragma GCC unroll 4
    for (int i = 0; i < kLanes / 4; ++i) {
#if defined(__clang__)
      __builtin_nontemporal_store(parts[i],
                                  reinterpret_cast<typename Simd<float, 4>::V*>(to + 4 * i));
#else
      __builtin_ia32_movntps(to + 4 * i, parts[i]);
#endif
    }
    return;
  }
#endif
  Put<float, kLanes>(to, value);
}
inline void EndStreaming() {
#if defined(__SSE__)
  __builtin_ia32_sfence();
#endif
}

#if defined(__aarch64__)
// GCC would convert the lanes one by one.
inline Simd<float, 4>::V GetFour(const Half* from) {
  float16x4_t halves;
  __builtin_memcpy(&halves, from, sizeof halves);
  return (Simd<float, 4>::V)vcvt_f32_f16(halves);
}
inline void PutFour(Half* to, Simd<float, 4>::V value) {
  const float16x4_t halves = vcvt_f16_f32((float32x4_t)value);
  __builtin_memcpy(to, &halves, sizeof halves);
}
#endif

// Get reads the first n lanes from an array of a storage type, and sets the other lanes to
// zero. Put writes only the first n lanes.
template <class T, int kLanes>
inline typename Simd<Compute<T>, kLanes>::V Get(const T* from, int64_t n) {
  using S = Compute<T>;
  if constexpr (sizeof(T) == sizeof(S)) {
    if (n >= kLanes) return Get<S, kLanes>(from);
  }
#if defined(__aarch64__)
  if constexpr (std::is_same_v<T, Half> && kLanes == 4) {
    if (n >= kLanes) return GetFour(from);
  }
#endif
  typename Simd<S, kLanes>::V value{};
  for (int i = 0; i < kLanes; ++i) {
    if (i < n) value[i] = Load(from[i]);
  }
  return value;
}
template <class T, int kLanes>
inline void Put(T* to, typename Simd<Compute<T>, kLanes>::V value, int64_t n) {
  using S = Compute<T>;
  if constexpr (sizeof(T) == sizeof(S)) {
    if (n >= kLanes) return Put<S, kLanes>(to, value);
  }
#if defined(__aarch64__)
  if constexpr (std::is_same_v<T, Half> && kLanes == 4) {
    if (n >= kLanes) return PutFour(to, value);
  }
#endif
  for (int i = 0; i < kLanes; ++i) {
    if (i < n) Store(value[i], to + i);
  }
}

}  // namespace
}  // namespace opwright
