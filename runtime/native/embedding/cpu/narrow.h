// Weights of a row become a narrow dtype. All functions have internal linkage, because files
// that are compiled for one instruction set include this one.
#pragma once

#include <cfloat>
#include <cstdint>
#include <cstring>

#include "base/float16.h"
#include "embedding/optimizers.h"
#include "embedding/row_dtype.h"

namespace opwright::embedding {
namespace {

// What is too large for the dtype becomes its largest number. So does infinity; a NaN becomes
// the least number. (No weight that an op loads or a rule computes is either of them.)
inline float Clamped(float x, float most) { return x > -most ? (x < most ? x : most) : -most; }
constexpr float kMostOfHalf = 65504.f;
constexpr float kMostOfBFloat16 = 3.3895313892515355e38f;
// 2^126. The difference of two such numbers is finite, and so is each code * scale.
constexpr float kMostOfCodes = 8.507059173023462e37f;

// The random numbers of a row's columns.
struct AtRandom {
  uint64_t key;
  uint32_t Bits(int64_t column) const { return RandomBits(key, column); }
};
// Rounds to nearest, ties to even.
struct ToNearest {};

inline void NarrowTo(BFloat16* to, int64_t dimension, const float* from, ToNearest) {
  for (int64_t k = 0; k < dimension; ++k) Store(Clamped(from[k], kMostOfBFloat16), to + k);
}
inline void NarrowTo(BFloat16* to, int64_t dimension, const float* from, AtRandom random) {
  for (int64_t k = 0; k < dimension; ++k) {
    const uint32_t bits = BitsOf(Clamped(from[k], kMostOfBFloat16));
    to[k].bits = static_cast<uint16_t>((bits + (random.Bits(k) >> 16)) >> 16);
  }
}

inline void NarrowTo(Half* to, int64_t dimension, const float* from, ToNearest) {
  for (int64_t k = 0; k < dimension; ++k) Store(Clamped(from[k], kMostOfHalf), to + k);
}
inline void NarrowTo(Half* to, int64_t dimension, const float* from, AtRandom random) {
  constexpr uint32_t kLeastNormal = 0x38800000u;  // 2^-14.
  constexpr double kUnit = 1. / (1 << 24);        // The distance between smaller numbers.
  uint32_t small = 0;
  for (int64_t k = 0; k < dimension; ++k) {
    const uint32_t bits = BitsOf(Clamped(from[k], kMostOfHalf));
    const uint32_t rest = bits & 0x7fffffffu, sign = (bits >> 16) & 0x8000u;
    const uint32_t rounded = (rest + (random.Bits(k) >> 19)) >> 13;
    to[k].bits = static_cast<uint16_t>(sign | (rounded - (112u << 10)));
    small |= rest < kLeastNormal;
  }
  if (!small) return;
  for (int64_t k = 0; k < dimension; ++k) {
    const uint32_t bits = BitsOf(from[k]), rest = bits & 0x7fffffffu;
    if (rest >= kLeastNormal) continue;
    const double place = static_cast<double>(FloatOf(rest)) / kUnit;
    const auto rounded = static_cast<uint32_t>(place + random.Bits(k) * 0x1p-32);
    to[k].bits = static_cast<uint16_t>(((bits >> 16) & 0x8000u) | rounded);
  }
}

// How far a weight is above the offset, in scales. A load divides, so that a tie stays one. An
// update multiplies, which is faster.
inline double Place(double above, double scale, double, ToNearest) {
  return scale > 0 ? above / scale : 0.;
}
inline double Place(double above, double, double per_scale, AtRandom) {
  return above * per_scale;
}

inline double RoundedCode(double place, int64_t, ToNearest) {
  // Sums near 1.5 * 2^52 have no fraction.
  constexpr double kNoFraction = 6755399441055744.;
  return place + kNoFraction - kNoFraction;
}
inline double RoundedCode(double place, int64_t column, AtRandom random) {
  return place + random.Bits(column) * 0x1p-32;
}

template <class Rounds>
inline void NarrowTo(uint8_t* to, int64_t dimension, const float* from, Rounds rounds) {
  // The least and the largest weight of each eighth column, so that GCC can use vectors.
  float least[8], most[8];
  for (int i = 0; i < 8; ++i) {
    least[i] = kMostOfCodes;
    most[i] = -kMostOfCodes;
  }
  const auto visit = [&](int64_t i, int64_t k) {
    const float x = Clamped(from[k], kMostOfCodes);
    least[i] = rules::Min(least[i], x);
    most[i] = rules::Max(most[i], x);
  };
  const int64_t whole_eights = dimension / 8 * 8;
  for (int64_t k = 0; k < whole_eights; k += 8) {
    for (int i = 0; i < 8; ++i) visit(i, k + i);
  }
  for (int64_t k = whole_eights; k < dimension; ++k) visit(0, k);
  float low = least[0], high = most[0];
  for (int i = 1; i < 8; ++i) {
    low = rules::Min(low, least[i]);
    high = rules::Max(high, most[i]);
  }
  // A scale that is a denormal could count as 0.
  const float range = high - low;
  const float scale = range > 0 ? rules::Max(range / 255, FLT_MIN) : 0.f;
  const double per_scale = scale > 0 ? 1 / static_cast<double>(scale) : 0.;
  std::memcpy(to, &scale, 4);
  std::memcpy(to + 4, &low, 4);
  for (int64_t k = 0; k < dimension; ++k) {
    const double x = Clamped(from[k], kMostOfCodes), offset = low;
    const double code = RoundedCode(Place(x - offset, scale, per_scale, rounds), k, rounds);
    const auto whole = static_cast<int32_t>(code);
    to[kInt8HeaderBytes + k] = static_cast<uint8_t>(whole < 255 ? whole : 255);
  }
}

// Writes the weights of a row. `row` has RowWords floats.
template <class Rounds>
inline void NarrowWith(RowDtype dtype, int64_t dimension, const float* from, float* row,
                       Rounds rounds) {
  switch (dtype) {
    case RowDtype::kFloat16:
      return NarrowTo(reinterpret_cast<Half*>(row), dimension, from, rounds);
    case RowDtype::kBfloat16:
      return NarrowTo(reinterpret_cast<BFloat16*>(row), dimension, from, rounds);
    default: return NarrowTo(reinterpret_cast<uint8_t*>(row), dimension, from, rounds);
  }
}

}  // namespace
}  // namespace opwright::embedding
