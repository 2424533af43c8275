#include "base/float16.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "base/testing/pool.h"
#include "base/testing/testing.h"

namespace opwright {
namespace {

// The definition of a 16-bit type: `kMantissa` bits after the point, exponents from
// `kMinExponent` upwards, and subnormals below.
template <class T>
struct Format;
template <>
struct Format<Half> {
  static constexpr int kMantissa = 10, kMinExponent = -14, kBias = 15;
};
template <>
struct Format<BFloat16> {
  static constexpr int kMantissa = 7, kMinExponent = -126, kBias = 127;
};

template <class T>
uint16_t InfinityBits() {
  return static_cast<uint16_t>(0x7fff >> Format<T>::kMantissa << Format<T>::kMantissa);
}

// Returns the value of the bits, computed only by arithmetic.
template <class T>
double ValueOf(uint16_t bits) {
  using F = Format<T>;
  const int mantissa = bits & ((1 << F::kMantissa) - 1);
  const int exponent = (bits & 0x7fff) >> F::kMantissa;
  const double sign = bits & 0x8000 ? -1 : 1;
  if ((bits & 0x7fff) == InfinityBits<T>()) return sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(mantissa, F::kMinExponent - F::kMantissa);
  return sign * std::ldexp(mantissa + (1 << F::kMantissa), exponent - F::kBias - F::kMantissa);
}

template <class T>
bool IsNan(uint16_t bits) {
  return (bits & 0x7fff) > InfinityBits<T>();
}

// Returns the nearest value, ties to an even mantissa. Rounds in double to a multiple of the
// mantissa's last bit.
template <class T>
uint16_t Nearest(float value) {
  using F = Format<T>;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double size = std::abs(static_cast<double>(value));
  if (std::isinf(size)) return sign | InfinityBits<T>();
  if (size == 0) return sign;
  const int exponent = std::max(std::ilogb(size), F::kMinExponent);
  const double unit = std::ldexp(1.0, exponent - F::kMantissa);
  // `units` is at most 2^(kMantissa + 1). In `bits`, that number carries into the exponent and
  // gives the first value of the next one, as it should.
  const int64_t units = std::llrint(size / unit);
  const int64_t bits =
      units + (static_cast<int64_t>(exponent - F::kMinExponent) << F::kMantissa);
  return static_cast<uint16_t>(sign | std::min<int64_t>(bits, InfinityBits<T>()));
}

template <class T>
uint16_t Stored(float value) {
  T stored;
  Store(value, &stored);
  return stored.bits;
}

template <class T>
void EveryValueIsLoaded() {
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const float value = Load(T{static_cast<uint16_t>(bits)});
    if (IsNan<T>(static_cast<uint16_t>(bits))) {
      EXPECT(std::isnan(value));
      continue;
    }
    EXPECT_EQ(static_cast<double>(value), ValueOf<T>(static_cast<uint16_t>(bits)));
    EXPECT_EQ(std::signbit(value), (bits & 0x8000) != 0);
  }
}
TEST(Float16, EveryHalfIsLoaded) { EveryValueIsLoaded<Half>(); }
TEST(Float16, EveryBFloat16IsLoaded) { EveryValueIsLoaded<BFloat16>(); }

template <class T>
void EveryValueComesBack() {
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const uint16_t stored = Stored<T>(Load(T{static_cast<uint16_t>(bits)}));
    if (IsNan<T>(static_cast<uint16_t>(bits))) {
      EXPECT(IsNan<T>(stored));
      EXPECT_EQ(stored & 0x8000, bits & 0x8000);
    } else {
      EXPECT_EQ(stored, bits);
    }
  }
}
TEST(Float16, EveryHalfSurvivesARoundTrip) { EveryValueComesBack<Half>(); }
TEST(Float16, EveryBFloat16SurvivesARoundTrip) { EveryValueComesBack<BFloat16>(); }

// Tests the float halfway between each value and the next, where the nearest value is the even
// one. Also tests the next float on either side of it.
template <class T>
void HalfwayGoesToEven() {
  for (int bits = 0; bits < InfinityBits<T>(); ++bits) {
    const double below = ValueOf<T>(static_cast<uint16_t>(bits));
    const double unit = below - (bits ? ValueOf<T>(static_cast<uint16_t>(bits - 1)) : 0);
    const bool last = bits + 1 == InfinityBits<T>();
    const double above = last ? below + unit : ValueOf<T>(static_cast<uint16_t>(bits + 1));
    const float halfway = static_cast<float>((below + above) / 2);
    for (const float sign : {1.0f, -1.0f}) {
      const int sign_bit = sign < 0 ? 0x8000 : 0;
      EXPECT_EQ(Stored<T>(sign * halfway), sign_bit | (bits + bits % 2));
      EXPECT_EQ(Stored<T>(sign * std::nextafter(halfway, 0.0f)), sign_bit | bits);
      EXPECT_EQ(Stored<T>(sign * std::nextafter(halfway, HUGE_VALF)), sign_bit | (bits + 1));
    }
  }
}
TEST(Float16, HalfwayBetweenHalvesRoundsToEven) { HalfwayGoesToEven<Half>(); }
TEST(Float16, HalfwayBetweenBFloat16sRoundsToEven) { HalfwayGoesToEven<BFloat16>(); }

template <class T>
void AnyFloatGoesToTheNearest() {
  Random random{testing::Seed()};
  for (int64_t i = 0; i < testing::Rounds(400000); ++i) {
    const float value = FloatOf(static_cast<uint32_t>(random.Next() >> 32));
    if (std::isnan(value)) {
      EXPECT(IsNan<T>(Stored<T>(value)));
    } else {
      EXPECT_EQ(Stored<T>(value), Nearest<T>(value));
    }
  }
}
TEST(Float16, AnyFloatRoundsToTheNearestHalf) { AnyFloatGoesToTheNearest<Half>(); }
TEST(Float16, AnyFloatRoundsToTheNearestBFloat16) { AnyFloatGoesToTheNearest<BFloat16>(); }

TEST(Float16, WideTypesAreStoredUnchanged) {
  float single;
  Store(0.1f, &single);
  EXPECT_EQ(Load(single), 0.1f);
  double wide;
  Store(0.1, &wide);
  EXPECT_EQ(Load(wide), 0.1);
  EXPECT((std::is_same_v<Compute<Half>, float> && std::is_same_v<Compute<BFloat16>, float> &&
          std::is_same_v<Compute<double>, double>));
}

}  // namespace
}  // namespace opwright
