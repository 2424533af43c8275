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

// The rows of three devices are in separate arrays, and so are the gradients of two of them.
TEST(Update, RowsInSeveralArraysAreUpdatedLikeThoseInOne) {
  Pool pool(3);
  PoolContext exec(pool);
  Random random{testing::Seed()};
  constexpr int64_t kRows = 12, kSamples = 6, kWidth = 5;
  std::vector<Reals> whole(3, Reals(kRows * kWidth));
  for (Reals& table : whole) {
    for (float& x : table) x = static_cast<float>(random.Uniform() + 1);
  }
  Reals gradients(kSamples * kWidth);
  for (float& g : gradients) g = static_cast<float>(random.Uniform());
  Triples triples;
  for (int i = 0; i < 30; ++i) {
    triples.Add(static_cast<int32_t>(random.Below(kSamples)),
                static_cast<int32_t>(random.Below(kRows)), 0.5f);
  }
  std::vector<std::vector<Reals>> parts(3);
  std::vector<RowArrays<float>> arrays;
  for (size_t p = 0; p < 3; ++p) {
    std::vector<float*> pointers;
    for (int64_t device = 0; device < 3; ++device) {
      const auto begin = whole[p].begin() + device * kRows / 3 * kWidth;
      parts[p].emplace_back(begin, begin + kRows / 3 * kWidth);
    }
    for (Reals& part : parts[p]) pointers.push_back(part.data());
    arrays.push_back({pointers, kRows / 3, kWidth});
  }
  const Reals halves[] = {Reals(gradients.begin(), gradients.begin() + 15),
                          Reals(gradients.begin() + 15, gradients.end())};
  const Hyper hyper = embedding::SomeHyper(Optimizer::kAdam);
  const TableStep step(triples, {{halves[0].data(), halves[1].data()}, kSamples / 2, kWidth},
                       Optimizer::kAdam, hyper, arrays, exec);
  EXPECT(!step.FindError(exec));
  step.ApplyChecked(exec);
  float* const tables[] = {whole[0].data(), whole[1].data(), whole[2].data()};
  EXPECT(!UpdateRows(triples, gradients.data(), kWidth, Optimizer::kAdam, hyper, tables, exec));
  for (size_t p = 0; p < 3; ++p) {
    for (int64_t i = 0; i < kRows * kWidth; ++i) {
      EXPECT_EQ(arrays[p].row(i / kWidth)[i % kWidth], whole[p][i]);
    }
  }
}

TEST(Update, ErrorsAreFoundBeforeRowsChange) {
  Pool pool(3);
  PoolContext exec(pool);
  constexpr int64_t kRows = 300, kWidth = 4;
  Reals table(kRows * kWidth, 1.f), gradients(kWidth, 1.f);
  table[299 * kWidth + 3] = NAN;
  Triples triples;
  for (int32_t row = 0; row < kRows; ++row) triples.Add(0, row, 1);
  const TableStep step(triples, {{gradients.data()}, 1, kWidth}, Optimizer::kSgd, Hyper{},
                       {{{table.data()}, kRows, kWidth}}, exec);
  const auto wrong = step.FindError(exec);
  EXPECT(wrong.has_value());
  EXPECT(wrong->table == 0 && wrong->row == 299 && wrong->column == 3);
  for (int64_t i = 0; i < 299 * kWidth; ++i) EXPECT_EQ(table[i], 1.f);
}

TEST(Update, LastOfEqualIndicesCounts) {
  Pool pool(2);
  PoolContext exec(pool);
  const Ints indices = {4, 2, 4, 0, 2};
  Triples triples;
  EXPECT_OK(RowsToTriples(indices.data(), 5, 5, &triples, exec));
  ExpectTriples(triples, {3, 4, 2}, {0, 2, 4}, {1, 1, 1});
  for (const int32_t bad : {-1, 5}) {
    const Ints broken = {0, bad};
    EXPECT_ERROR(RowsToTriples(broken.data(), 2, 5, &triples, exec), kInvalid,
                 "the one at position 1 is " + std::to_string(bad));
  }
}

}  // namespace
}  // namespace opwright::sparsecore
