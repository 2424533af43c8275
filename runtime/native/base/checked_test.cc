#include "base/checked.h"

#include <cstdint>
#include <iterator>
#include <limits>

#include "base/testing/pool.h"
#include "base/testing/testing.h"

namespace opwright {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// Compares sums and products of two numbers with 128-bit integers.
TEST(Checked, OverflowIsDetected) {
  constexpr int64_t kEdges[] = {
      kMin, kMin + 1,         -1,       0,           1, 2, 3, 4096, INT32_MAX,
      kMax, int64_t{1} << 31, kMax / 2, kMax / 2 + 1};
  Random random{testing::Seed()};
  for (int64_t i = 0; i < testing::Rounds(20000); ++i) {
    const int64_t a = kEdges[random.Below(std::size(kEdges))];
    const int64_t b = random.Below(2) ? kEdges[random.Below(std::size(kEdges))]
                                      : static_cast<int64_t>(random.Next());
    const auto check = [](const Checked& found, __int128 wanted) {
      EXPECT_EQ(found.overflowed(), wanted < kMin || wanted > kMax);
      if (!found.overflowed()) EXPECT_EQ(found.value(), static_cast<int64_t>(wanted));
    };
    check(Checked(a) + b, __int128{a} + b);
    check(Checked(a) * b, __int128{a} * b);
  }
}

TEST(Checked, OverflowIsRemembered) {
  Checked product = kMax;
  product *= 2;
  EXPECT(product.overflowed());
  product *= 0;
  EXPECT(product.overflowed());
  EXPECT((Checked(1) + product).overflowed());
  EXPECT(!product.AtMost(kMax));
  EXPECT(!product.fits());
}

TEST(Checked, FitsLeavesRoomForDerivedSizes) {
  EXPECT(Checked(kMax / 4096).fits());
  EXPECT(!Checked(kMax / 4096 + 1).fits());
  EXPECT(Checked(7).AtMost(7));
  EXPECT(!Checked(8).AtMost(7));
  Checked sum = 1;
  sum += 2;
  EXPECT_EQ(sum.value(), 3);
}

template <class To, class From>
void CheckNarrow(From from, bool wanted) {
  To to{};
  EXPECT_EQ(Narrow(from, &to), wanted);
  if (wanted) EXPECT_EQ(static_cast<__int128>(to) == static_cast<__int128>(from), true);
}

TEST(Checked, NarrowAcceptsRepresentableValues) {
  CheckNarrow<int32_t>(int64_t{INT32_MAX}, true);
  CheckNarrow<int32_t>(int64_t{INT32_MAX} + 1, false);
  CheckNarrow<int32_t>(int64_t{INT32_MIN}, true);
  CheckNarrow<int32_t>(int64_t{INT32_MIN} - 1, false);
  CheckNarrow<uint64_t>(int64_t{-1}, false);
  CheckNarrow<int64_t>(uint64_t{1} << 63, false);
  CheckNarrow<uint8_t>(int64_t{255}, true);
  CheckNarrow<uint8_t>(int64_t{256}, false);
}

TEST(Checked, AtAcceptsASignedIndex) {
  int items[] = {1, 2, 3};
  At(items, int64_t{2}) = 5;
  EXPECT_EQ(items[2], 5);
}

}  // namespace
}  // namespace opwright
