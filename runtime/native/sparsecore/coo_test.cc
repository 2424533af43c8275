// Tests each form of a feature, the stacking of features, and the refusal of invalid arguments.
#include "sparsecore/coo.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <vector>

#include "base/testing/pool.h"
#include "base/testing/testing.h"
#include "sparsecore/testing/triples.h"

namespace opwright::sparsecore {

using embedding::Combiner;

namespace {

// The data that a CooFeature refers to.
struct Feature {
  CooFeature::Form form;
  Ints indices, ids;
  Reals weights;  // One weight for all ids, or one weight for each id.
  int64_t samples;

  CooFeature View() const {
    CooFeature feature;
    feature.form = form;
    feature.indices = indices.data();
    feature.ids = ids.data();
    feature.id_count = static_cast<int64_t>(ids.size());
    feature.weights = weights.data();
    feature.one_weight = weights.size() == 1;
    feature.sample_count = samples;
    return feature;
  }
};

Triples TriplesOf(const Feature& feature, Combiner combiner = Combiner::kSum) {
  Triples triples;
  EXPECT_OK(FeatureToTriples(feature.View(), combiner, &triples));
  return triples;
}

TEST(Coo, DenseFeatures) {
  ExpectTriples(TriplesOf({CooFeature::kDense, {}, {7, 7, 2}, {0.5f}, 3}), {0, 1, 2}, {7, 7, 2},
                {0.5f, 0.5f, 0.5f});
}

TEST(Coo, SparseFeatures) {
  ExpectTriples(TriplesOf({CooFeature::kSparse, {0, 0, 2, 0, 2, 1}, {7, 3, 2}, {1, 2, 3}, 4}),
                {0, 2, 2}, {7, 3, 2}, {1, 2, 3});
}

TEST(Coo, RaggedFeatures) {
  ExpectTriples(TriplesOf({CooFeature::kRagged, {0, 2, 2, 3}, {7, 3, 2}, {1, 2, 3}, 3}),
                {0, 0, 2}, {7, 3, 2}, {1, 2, 3});
}

TEST(Coo, EqualNeighboursBecomeOneTriple) {
  const Feature feature{CooFeature::kRagged, {0, 4, 5}, {7, 7, 3, 7, 7}, {1, 2, 4, 8, 1}, 2};
  ExpectTriples(TriplesOf(feature), {0, 0, 0, 1}, {7, 3, 7, 7}, {3, 4, 8, 1});
  // The denominators of mean and sqrtn count each of the equal ids.
  const float root = std::sqrt(85.f);
  ExpectTriples(TriplesOf(feature, Combiner::kMean), {0, 0, 0, 1}, {7, 3, 7, 7},
                {3 / 15.f, 4 / 15.f, 8 / 15.f, 1});
  ExpectTriples(TriplesOf(feature, Combiner::kSqrtN), {0, 0, 0, 1}, {7, 3, 7, 7},
                {3 / root, 4 / root, 8 / root, 1});
}

TEST(Coo, WeightsThatSumToZeroGiveZeroGains) {
  const Feature feature{CooFeature::kRagged, {0, 2}, {7, 3}, {1, -1}, 1};
  ExpectTriples(TriplesOf(feature, Combiner::kMean), {0, 0}, {7, 3}, {0, 0});
}

TEST(Coo, InvalidFeaturesAreRefused) {
  const auto refuse = [](const Feature& feature, const char* words,
                         Combiner combiner = Combiner::kSum) {
    Triples triples;
    EXPECT_ERROR(FeatureToTriples(feature.View(), combiner, &triples), kInvalid, words);
  };
  refuse({CooFeature::kDense, {}, {1, -1}, {1}, 2},
         "values: ids must not be negative; the one at position 1 is -1");
  refuse({CooFeature::kSparse, {1, 0, 0, 0}, {1, 2}, {1}, 2},
         "the one at position 1 is 0 after 1");
  refuse({CooFeature::kSparse, {0, 0, 2, 0}, {1, 2}, {1}, 2}, "the one at position 1 is 2");
  refuse({CooFeature::kSparse, {-1, 0}, {1}, {1}, 2}, "the one at position 0 is -1");
  refuse({CooFeature::kRagged, {1, 1}, {1}, {1}, 1}, "the one at position 0 is 1");
  refuse({CooFeature::kRagged, {0, 2}, {1}, {1}, 1}, "the one at position 1 is 2");
  refuse({CooFeature::kRagged, {0, 1, 0, 1}, {1}, {1}, 3}, "the one at position 2 is 0");
  refuse({CooFeature::kRagged, {0, 2, 1}, {1}, {1}, 2}, "the one at position 1 is 2");
  refuse({CooFeature::kDense, {}, {1, 2}, {1, NAN}, 2},
         "weights: must be finite; the one at position 1");
  refuse({CooFeature::kRagged, {0, 2}, {1, 1}, {FLT_MAX, FLT_MAX}, 1},
         "must combine to finite gains in float32");
  refuse({CooFeature::kRagged, {0, 3}, {1, 2, 3}, {1e30f, -1e30f, 1e-10f}, 1},
         "those of sample 0 and id 1 do not", Combiner::kMean);
  refuse({CooFeature::kDense, {}, {}, {1}, int64_t{1} << 31}, "sample_count: must be at least");
}

CooStacking Stacking() { return {8, 2, 4, 100, 3, 4, 16}; }

TEST(Coo, StackingsAreChecked) {
  EXPECT_OK(CheckStacking(Stacking()));
  const struct {
    int64_t CooStacking::* member;
    int64_t value;
    const char* words;
  } cases[] = {{&CooStacking::sample_count, 0, "sample_count: must be at least 1"},
               {&CooStacking::sc_per_chip, 0, "num_sc_per_chip: must be at least 1"},
               {&CooStacking::row_offset, -1, "row_offset: must be at least 0"},
               {&CooStacking::col_offset, int64_t{1} << 31, "col_offset: must be at least 0"},
               {&CooStacking::col_shift, INT64_MIN, "col_shift: must be at least -2147483648"},
               {&CooStacking::shards, 3, "num_sc_shards: must be a power of two, is 3"},
               {&CooStacking::stacked_samples, -1, "stacked_table_sample_count: must be"},
               {&CooStacking::stacked_samples, INT32_MAX, "it must fit in int32"},
               {&CooStacking::sc_per_chip, 3, "must be a multiple of num_sc_per_chip"}};
  for (const auto& [member, value, words] : cases) {
    CooStacking stacking = Stacking();
    stacking.*member = value;
    EXPECT_ERROR(CheckStacking(stacking), kInvalid, words);
  }
}

// Each SparseCore has half of the samples. Rows rotate within their group of shards.
TEST(Coo, TriplesAreStacked) {
  Triples triples;
  for (const int32_t sample : {0, 3, 3, 4, 7}) triples.Add(sample, 4 + sample, 1);
  std::vector<int64_t> begins;
  EXPECT_OK(StackTriples(Stacking(), &triples, &begins));
  EXPECT(begins == std::vector<int64_t>({0, 3, 5}));
  // row_offset 4 and stacked_samples 16 are for two SparseCores. Each SparseCore therefore has
  // row_offset 2 and 8 samples.
  ExpectTriples(triples, {2, 5, 5, 10, 13}, {107, 106, 106, 111, 110}, {1, 1, 1, 1, 1});
  Triples large;
  large.Add(0, INT32_MAX, 1);
  EXPECT_ERROR(StackTriples(Stacking(), &large, &begins), kInvalid, "does not fit in int32");
}

// Draws arbitrary positions of a feature. CheckStacking or StackTriples refuses them, or the
// positions of the triples fit into int32.
void StackingIsChecked(Random& random) {
  constexpr int64_t kOdd[] = {INT64_MIN, INT32_MIN, -8, -1,        0,         1,
                              2,         8,         64, INT32_MAX, 1LL << 31, INT64_MAX};
  CooStacking stacking{4, 2, 0, 0, 0, 4, 8};
  int64_t* const parts[] = {&stacking.sample_count,   &stacking.sc_per_chip,
                            &stacking.row_offset,     &stacking.col_offset,
                            &stacking.col_shift,      &stacking.shards,
                            &stacking.stacked_samples};
  const int changes = static_cast<int>(random.Below(3));
  for (int i = 0; i < changes; ++i) {
    *parts[random.Below(std::size(parts))] = kOdd[random.Below(std::size(kOdd))];
  }
  const Status status = CheckStacking(stacking);
  if (changes == 0) EXPECT_OK(status);
  // Memory is proportional to the number of SparseCores, so larger numbers are not tried.
  if (!status.ok() || stacking.sc_per_chip > 1 << 10) return;
  Triples triples;
  const int64_t last = stacking.sample_count - 1;
  for (const int64_t sample : {int64_t{0}, last / 2, last}) {
    const int64_t row = kOdd[3 + random.Below(7)] & INT32_MAX;
    triples.Add(static_cast<int32_t>(sample), static_cast<int32_t>(row), 1);
  }
  std::vector<int64_t> begins;
  if (!StackTriples(stacking, &triples, &begins).ok()) return;
  for (int64_t i = 0; i < triples.size(); ++i) {
    EXPECT(triples.samples[i] >= 0 && triples.rows[i] >= 0);
  }
  EXPECT(std::is_sorted(begins.begin(), begins.end()) && begins.back() == triples.size());
}

TEST(Coo, RandomStackingsAreRefusedOrFitInt32) {
  Random random{testing::Seed()};
  for (int64_t round = 0; round < testing::Rounds(5000); ++round) StackingIsChecked(random);
}

}  // namespace
}  // namespace opwright::sparsecore
