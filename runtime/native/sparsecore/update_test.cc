#include "sparsecore/update.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/testing/pool.h"
#include "base/testing/testing.h"
#include "embedding/testing/elements.h"
#include "sparsecore/testing/triples.h"

namespace opwright::sparsecore {

using embedding::Hyper;
using embedding::Optimizer;
using embedding::Range;

namespace {

// Compares every optimizer with its rule on sums in double. The triples are in any order.
TEST(Update, UpdatesMatchTheRules) {
  Pool pool(3);
  embedding::ForEachIsa([&] {
    PoolContext exec(pool);
    Random random{testing::Seed()};
    for (const Optimizer optimizer : embedding::WithElementRules()) {
      constexpr int64_t kRows = 40, kSamples = 15;
      const int64_t width = 1 + random.Below(40);
      const size_t parts = 1 + embedding::TraitsOf(optimizer).slot_count();
      std::vector<Reals> tables(parts, Reals(kRows * width));
      for (size_t p = 0; p < parts; ++p) {
        for (float& x : tables[p]) x = static_cast<float>(random.Uniform() + (p > 0));
      }
      std::vector<Reals> model = tables;
      Reals gradients(kSamples * width);
      for (float& g : gradients) g = static_cast<float>(random.Uniform());
      Triples triples;
      std::vector<std::vector<double>> sums(kRows);
      for (int i = 0; i < 60; ++i) {
        const int64_t sample = random.Below(kSamples), row = random.Below(kRows);
        const float gain = static_cast<float>(random.Uniform() + 1);
        triples.Add(static_cast<int32_t>(sample), static_cast<int32_t>(row), gain);
        sums[row].resize(width);
        for (int64_t k = 0; k < width; ++k) {
          sums[row][k] += static_cast<double>(gain) * gradients[sample * width + k];
        }
      }
      const Hyper hyper = embedding::SomeHyper(optimizer);
      std::vector<float*> pointers;
      for (Reals& table : tables) pointers.push_back(table.data());
      EXPECT(!UpdateRows(triples, gradients.data(), width, optimizer, hyper, pointers.data(),
                         exec));
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t k = 0; k < width; ++k) {
          float* element[5];
          for (size_t p = 0; p < parts; ++p) element[p] = &model[p][row * width + k];
          if (!sums[row].empty()) {
            embedding::UpdateElement(optimizer, hyper, sums[row][k], element);
          }
          for (size_t p = 0; p < parts; ++p) {
            EXPECT_NEAR(tables[p][row * width + k], *element[p],
                        1e-5 * (1 + std::abs(*element[p])));
          }
        }
      }
    }
  });
}

TEST(Update, ValuesOutOfRangeAreReported) {
  Pool pool(2);
  PoolContext exec(pool);
  Reals table(12, 1.f), accumulator(12, 1.f), gradients(3, 1.f);
  float* const tables[] = {table.data(), accumulator.data()};
  accumulator[2 * 3 + 1] = -0.5f;
  Hyper hyper;
  const auto update = [&](int32_t row) {
    return UpdateRows(Triples{{0}, {row}, {1}}, gradients.data(), 3, Optimizer::kAdagrad, hyper,
                      tables, exec);
  };
  EXPECT(!update(1));  // Rows that are not updated may contain any value.
  const auto wrong = update(2);
  EXPECT(wrong.has_value());
  EXPECT(wrong->table == 1 && wrong->row == 2 && wrong->column == 1);
  EXPECT_EQ(wrong->value, -0.5f);
  EXPECT_EQ(wrong->range, Range::kNotNegative);
}

TEST(Update, LastOfEqualIndicesCounts) {
  const Ints indices = {4, 2, 4, 0, 2};
  Triples triples;
  EXPECT_OK(RowsToTriples(indices.data(), 5, 5, &triples));
  ExpectTriples(triples, {3, 4, 2}, {0, 2, 4}, {1, 1, 1});
  for (const int32_t bad : {-1, 5}) {
    const Ints broken = {0, bad};
    EXPECT_ERROR(RowsToTriples(broken.data(), 2, 5, &triples), kInvalid,
                 "the one at position 1 is " + std::to_string(bad));
  }
}

}  // namespace
}  // namespace opwright::sparsecore
