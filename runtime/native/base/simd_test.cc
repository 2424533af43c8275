#include "base/simd.h"

#include <cstdint>
#include <vector>

#include "base/testing/testing.h"

namespace opwright {
namespace {

template <class T>
T Stored(int64_t value) {
  T stored;
  Store(static_cast<Compute<T>>(value), &stored);
  return stored;
}

// Tests vectors at every element of arrays that end with the last lane.
template <class T, int kLanes>
void CheckLanes() {
  using S = Compute<T>;
  for (int64_t offset = 0; offset < 3; ++offset) {
    for (int64_t n = 0; n <= kLanes + 1; ++n) {
      const int64_t present = n < kLanes ? n : kLanes;
      std::vector<T> from(static_cast<size_t>(offset + present));
      for (int64_t i = 0; i < present; ++i) {
        from[static_cast<size_t>(offset + i)] = Stored<T>(i + 1);
      }
      const auto value = Get<T, kLanes>(from.data() + offset, n);
      for (int i = 0; i < kLanes; ++i) EXPECT_EQ(value[i], i < n ? S(i + 1) : S(0));

      std::vector<T> to(static_cast<size_t>(offset + kLanes), Stored<T>(-7));
      Put<T, kLanes>(to.data() + offset, value + S(1), n);
      for (int64_t i = 0; i < static_cast<int64_t>(to.size()); ++i) {
        const bool written = i >= offset && i - offset < n;
        EXPECT_EQ(Load(to[static_cast<size_t>(i)]), written ? S(i - offset + 2) : S(-7));
      }
    }
    if constexpr (sizeof(T) == sizeof(S)) {
      std::vector<S> whole(static_cast<size_t>(offset + kLanes), S(3));
      whole.back() = S(5);
      const auto value = Get<S, kLanes>(whole.data() + offset);
      EXPECT_EQ(value[0], S(3));
      EXPECT_EQ(value[kLanes - 1], S(5));
      Put<S, kLanes>(whole.data() + offset, value + value);
      EXPECT_EQ(whole[static_cast<size_t>(offset)], S(6));
      EXPECT_EQ(whole.back(), S(10));
    }
  }
}

TEST(Simd, LanesOfFloat) {
  CheckLanes<float, 4>();
  CheckLanes<float, 8>();
  CheckLanes<float, 16>();
}
TEST(Simd, LanesOfDouble) {
  CheckLanes<double, 2>();
  CheckLanes<double, 4>();
  CheckLanes<double, 8>();
}
TEST(Simd, LanesOfHalf) {
  CheckLanes<Half, 4>();
  CheckLanes<Half, 16>();
}
TEST(Simd, LanesOfBFloat16) {
  CheckLanes<BFloat16, 4>();
  CheckLanes<BFloat16, 16>();
}

TEST(Simd, OneLaneIsAScalar) {
  float value = 2;
  EXPECT_EQ((Get<float, 1>(&value)), 2.0f);
  Put<float, 1>(&value, 3.0f);
  EXPECT_EQ(value, 3.0f);
}

}  // namespace
}  // namespace opwright
