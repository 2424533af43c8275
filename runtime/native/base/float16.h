// Storage types of 16 bits, and the type of computation of each storage type.
#pragma once

#include <cstdint>
#include <cstring>

namespace opwright {

struct Half {
  uint16_t bits;
};

struct BFloat16 {
  uint16_t bits;
};

template <class T>
struct ComputeOf {
  using Type = float;
};
template <>
struct ComputeOf<double> {
  using Type = double;
};
template <class T>
using Compute = typename ComputeOf<T>::Type;

// All functions have internal linkage, because files that are compiled for one instruction set
// include this header. Otherwise the linker could use the code of such a file in other files.

static inline uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

static inline float Load(float value) { return value; }
static inline double Load(double value) { return value; }

static inline float Load(BFloat16 value) {
  return FloatOf(static_cast<uint32_t>(value.bits) << 16);
}

#if defined(__aarch64__)
// Every such processor has instructions for these conversions.
static inline float Load(Half value) {
  __fp16 half;
  std::memcpy(&half, &value, sizeof half);
  return half;
}
#else
static inline float Load(Half value) {
  const uint32_t sign = (value.bits & 0x8000u) << 16;
  const uint32_t shifted = (value.bits & 0x7fffu) << 13;
  const uint32_t exponent = shifted & 0x0f800000u;
  uint32_t bits = shifted + (112u << 23);
  if (exponent == 0x0f800000u) {  // Infinity or NaN.
    bits += 112u << 23;
  } else if (exponent == 0) {  // Zero or a subnormal.
    bits = BitsOf(FloatOf(bits + (1u << 23)) - FloatOf(113u << 23));
  }
  return FloatOf(bits | sign);
}
#endif

static inline void Store(float value, float* to) { *to = value; }
static inline void Store(double value, double* to) { *to = value; }

// Both Store functions round to nearest, ties to even.
static inline void Store(float value, BFloat16* to) {
  uint32_t bits = BitsOf(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    bits |= 0x00400000u;  // A NaN stays a NaN.
  } else {
    bits += 0x7fffu + ((bits >> 16) & 1);
  }
  to->bits = static_cast<uint16_t>(bits >> 16);
}

#if defined(__aarch64__)
static inline void Store(float value, Half* to) {
  const __fp16 half = static_cast<__fp16>(value);
  std::memcpy(to, &half, sizeof half);
}
#else
static inline void Store(float value, Half* to) {
  const uint32_t bits = BitsOf(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  uint32_t rest = bits & 0x7fffffffu;
  if (rest >= 0x47800000u) {  // A value that is too large, infinity or NaN.
    rest = rest > 0x7f800000u ? 0x7e00u : 0x7c00u;
  } else if (rest < 0x38800000u) {  // The result is subnormal. The addition rounds it.
    rest = BitsOf(FloatOf(rest) + 0.5f) - BitsOf(0.5f);
  } else {
    rest = (rest + 0xc8000fffu + ((rest >> 13) & 1)) >> 13;
  }
  to->bits = static_cast<uint16_t>(sign | rest);
}
#endif

}  // namespace opwright
