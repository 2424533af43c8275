#include "sparsecore/lookup.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/testing/pool.h"
#include "base/testing/testing.h"
#include "sparsecore/testing/triples.h"

namespace opwright::sparsecore {
namespace {

TEST(Lookup, RowsInSeveralArraysAreSummedLikeThoseInOne) {
  Pool pool(2);
  PoolContext exec(pool);
  Random random{testing::Seed()};
  for (const int64_t width : {1, 3, 16, 33}) {
    Reals table(8 * width);
    for (float& x : table) x = static_cast<float>(random.Uniform());
    // The arrays do not lie at a multiple of a row from each other.
    Reals first(1 + 4 * width), second(2 + 4 * width);
    std::copy_n(table.begin(), 4 * width, first.begin() + 1);
    std::copy_n(table.begin() + 4 * width, 4 * width, second.begin() + 2);
    Triples triples;
    for (int i = 0; i < 20; ++i) {
      triples.Add(static_cast<int32_t>(random.Below(5)), static_cast<int32_t>(random.Below(8)),
                  static_cast<float>(random.Uniform()));
    }
    for (const embedding::Quantization& quantization :
         {embedding::Quantization{}, embedding::Quantization{true, -1, 1, 5}}) {
      Reals expected(5 * width), sums(5 * width);
      SumRows(triples, table.data(), width, quantization, 5, expected.data(), exec);
      SumRows(triples, {{first.data() + 1, second.data() + 2}, 4, width}, quantization, 5,
              sums.data(), exec);
      EXPECT(sums == expected);
    }
  }
}

TEST(Lookup, SumsOfIntegersWrapAround) {
  Pool pool(2);
  PoolContext exec(pool);
  const Ints table = {1, 2, INT32_MAX, 4};
  const Triples triples = Triples{{0, 0, 2}, {0, 1, 1}, {2, -1, 1}};
  Ints sums(6, 9);
  EXPECT_OK(SumRows(triples, table.data(), 2, 3, sums.data(), exec));
  EXPECT(sums == Ints({2 - INT32_MAX, 0, 0, 0, INT32_MAX, 4}));
  // Integer sums wrap around.
  EXPECT_OK(SumRows(Triples{{0, 0}, {1, 1}, {1, 1}}, table.data(), 2, 1, sums.data(), exec));
  EXPECT_EQ(sums[0], -2);
  for (const float gain : {0.5f, 16777218.f, NAN}) {
    EXPECT_ERROR(SumRows(Triples{{0}, {0}, {gain}}, table.data(), 2, 1, sums.data(), exec),
                 kInvalid, "must be integers of at most 2^24");
  }
}

// The triples are as many as several threads sort by sample.
TEST(Lookup, ManyTriplesAreSummedInTheirOrder) {
  Pool pool(3);
  PoolContext exec(pool);
  Random random{testing::Seed()};
  constexpr int64_t kSamples = 500, kRows = 1000, kWidth = 5;
  Reals table(kRows * kWidth);
  for (float& x : table) x = static_cast<float>(random.Uniform());
  Triples triples;
  Reals expected(kSamples * kWidth);
  for (int i = 0; i < 40000; ++i) {
    const int64_t sample = random.Below(kSamples - 1), row = random.Below(kRows);
    triples.Add(static_cast<int32_t>(sample), static_cast<int32_t>(row), 0.5f);
    // Products with a power of two are exact, so that only the order of the sums counts.
    for (int64_t k = 0; k < kWidth; ++k) {
      expected[sample * kWidth + k] += 0.5f * table[row * kWidth + k];
    }
  }
  Reals sums(kSamples * kWidth, -1);
  SumRows(triples, table.data(), kWidth, {}, kSamples, sums.data(), exec);
  EXPECT(sums == expected);
}

}  // namespace
}  // namespace opwright::sparsecore
