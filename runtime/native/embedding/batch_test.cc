// Tests how ids in each form become bags, the scales of combiners, and all inputs that are
// refused.
#include "embedding/batch.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "embedding/testing/steps.h"

namespace opwright::embedding {
namespace {

constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;

// A configuration with a table of 10 rows, and a feature whose output has this shape.
Configuration Of(const std::vector<int64_t>& shape) {
  Configuration made;
  made.tables.resize(1);
  made.tables[0].name = "t";
  made.tables[0].rows = 10;
  made.tables[0].dimension = 1;
  made.features.push_back({"f", 0, shape});
  EXPECT_OK(Complete(&made));
  return made;
}

// The arrays that a Lookups object views.
struct Given {
  Lookups::Form form = Lookups::Form::kDense;
  std::vector<int64_t> where = {}, ids = {};
  std::vector<double> weights = {};
  int64_t rank = 0;

  Lookups View() const {
    Lookups lookups;
    lookups.form = form;
    lookups.where = {where.data(), true, static_cast<int64_t>(where.size())};
    lookups.rank = rank;
    lookups.ids = {ids.data(), true, static_cast<int64_t>(ids.size())};
    lookups.weights = {weights.data(), true, static_cast<int64_t>(weights.size())};
    return lookups;
  }
};
constexpr auto kDense = Lookups::Form::kDense, kIndices = Lookups::Form::kIndices,
               kSamples = Lookups::Form::kSamples, kSplits = Lookups::Form::kSplits;

StatusOr<Bags> Make(const Configuration& configuration, const Given& given,
                    Combiner combiner = Combiner::kSum) {
  return MakeBags(configuration, 0, given.View(), combiner);
}
Bags Made(const Configuration& configuration, const Given& given,
          Combiner combiner = Combiner::kSum) {
  return Value(Make(configuration, given, combiner));
}

void IdsAre(const Bags& bags, const std::vector<std::vector<int64_t>>& expected) {
  EXPECT_EQ(bags.samples, static_cast<int64_t>(expected.size()));
  EXPECT_EQ(bags.offsets[0], 0);
  for (size_t s = 0; s < expected.size(); ++s) {
    const std::vector<int64_t> found(bags.indices.get() + bags.offsets[s],
                                     bags.indices.get() + bags.offsets[s + 1]);
    EXPECT(found == expected[s]);
  }
}

TEST(Batch, DenseIds) {
  const Bags bags = Made(Of({3}), {kDense, {}, {4, 9, 0}});
  IdsAre(bags, {{4}, {9}, {0}});
  EXPECT(!bags.per_sample_weights && !bags.scales);
}

TEST(Batch, NarrowIdsAndWeights) {
  const int32_t ids[] = {1, 9}, where[] = {1, 0};
  const float weights[] = {0.5f, 2};
  Lookups lookups;
  lookups.form = kSamples;
  lookups.where = {where, false, 2};
  lookups.ids = {ids, false, 2};
  lookups.weights = {weights, false, 2};
  const Bags bags = Value(MakeBags(Of({3}), 0, lookups, Combiner::kSum));
  IdsAre(bags, {{9}, {1}, {}});
  EXPECT(bags.per_sample_weights[0] == 2 && bags.per_sample_weights[1] == 0.5f);
}

// The ids of a sample keep their order.
TEST(Batch, IdsOfSamples) {
  const Bags bags =
      Made(Of({4}), {kSamples, {2, 0, 2, 0, 2}, {5, 6, 7, 8, 9}, {1, 2, 3, 4, 5}});
  IdsAre(bags, {{6, 8}, {}, {5, 7, 9}, {}});
  const float weights[] = {2, 4, 1, 3, 5};
  EXPECT(std::equal(weights, weights + 5, bags.per_sample_weights.get()));
}

TEST(Batch, IdsOfRowSplits) {
  IdsAre(Made(Of({3}), {kSplits, {0, 2, 2, 3}, {5, 6, 7}}), {{5, 6}, {}, {7}});
  // Each row is a sequence. Its ids become the samples of the sequence. Ids beyond the end of
  // the sequence are dropped.
  IdsAre(Made(Of({2, 2}), {kSplits, {0, 3, 4}, {5, 6, 7, 8}}), {{5}, {6}, {8}, {}});
  IdsAre(Made(Of({2, 2}), {kSplits, {0, 3, 3, 4, 4}, {5, 6, 7, 8}}), {{5, 6, 7}, {}, {8}, {}});
}

TEST(Batch, IdsOfIndices) {
  IdsAre(Made(Of({3}), {kIndices, {2, 0, 2}, {5, 6, 7}, {}, 1}), {{6}, {}, {5, 7}});
  // A column beyond the output's shape is the position within a sample.
  IdsAre(Made(Of({3}), {kIndices, {2, 9, 0, 7, 2, 1}, {5, 6, 7}, {}, 2}), {{6}, {}, {5, 7}});
  // If there are several dimensions, the last one is the length of a sequence.
  IdsAre(Made(Of({2, 2}), {kIndices, {1, 1, 0, 2, 0, 0}, {5, 6, 7}, {}, 2}),
         {{7}, {}, {}, {5}});
}

TEST(Batch, Combiners) {
  const Given given{kSplits, {0, 2, 2, 3}, {5, 6, 7}, {1, 3, 0.5}};
  const Bags mean = Made(Of({3}), given, Combiner::kMean);
  EXPECT_EQ(mean.scales[0], 0.25f);
  EXPECT_EQ(mean.scales[1], 0.f);  // The sample has no ids.
  EXPECT_EQ(mean.scales[2], 2.f);
  const Bags root = Made(Of({3}), given, Combiner::kSqrtN);
  EXPECT_EQ(root.scales[0], static_cast<float>(1 / std::sqrt(10.)));
  EXPECT_EQ(root.scales[1], 0.f);
  EXPECT_EQ(root.scales[2], 2.f);
  EXPECT(!Made(Of({3}), given, Combiner::kSum).scales);
  const Given ones{kSplits, {0, 2, 2, 3}, {5, 6, 7}};
  EXPECT_EQ(Made(Of({3}), ones, Combiner::kMean).scales[0], 0.5f);
  EXPECT_EQ(Made(Of({3}), ones, Combiner::kSqrtN).scales[0],
            static_cast<float>(1 / std::sqrt(2.)));
  // The weights of a sample have a sum of 0.
  const Given zero{kSplits, {0, 2, 2, 3}, {5, 6, 7}, {1, -1, 0}};
  EXPECT_EQ(Made(Of({3}), zero, Combiner::kMean).scales[0], 0.f);
  EXPECT_EQ(Made(Of({3}), zero, Combiner::kSqrtN).scales[2], 0.f);
}

TEST(Batch, ThreadsShareManyIds) {
  Pool pool(3);
  PoolContext exec(pool);
  Random random{testing::Seed()};
  const int64_t count = 50000;
  const Configuration configuration = Of({count});
  for (const bool wide : {true, false}) {
    std::vector<int64_t> ids(static_cast<size_t>(count));
    for (int64_t& id : ids) id = random.Below(10);
    std::vector<int32_t> narrow(ids.begin(), ids.end());
    Lookups lookups;
    lookups.ids = {wide ? static_cast<const void*>(ids.data()) : narrow.data(), wide, count};
    const Bags bags = Value(MakeBags(configuration, 0, lookups, Combiner::kSum, &exec));
    EXPECT(std::equal(ids.begin(), ids.end(), bags.indices.get()));
    const int64_t at = random.Below(count);
    ids[static_cast<size_t>(at)] = 10;
    narrow[static_cast<size_t>(at)] = -1;
    EXPECT_ERROR(MakeBags(configuration, 0, lookups, Combiner::kSum, &exec), kInvalid,
                 "id at position " + std::to_string(at) + " is " + (wide ? "10;" : "-1;"));
  }
}

TEST(Batch, BrokenIdsAreRefused) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  const std::vector<int64_t> wide{int64_t{1} << 32, INT64_MAX, kMin, -1, 10};
  for (const int64_t bad : wide) {
    EXPECT_ERROR(Make(Of({3}), {kDense, {}, {0, 9, bad}}, Combiner::kSum), kInvalid,
                 "feature 0 ('f') of table 0 ('t'): id at position 2 is " +
                     std::to_string(bad) + "; ids must be in [0, 10), the rows of the table");
  }
  const int32_t ids[] = {10, 3};
  Lookups lookups;
  lookups.ids = {ids, false, 2};
  EXPECT_ERROR(MakeBags(Of({2}), 0, lookups, Combiner::kSum), kInvalid,
               "id at position 0 is 10");
}

struct Refused {
  std::vector<int64_t> shape;
  Given given;
  const char* words;
};

TEST(Batch, BrokenFormsAreRefused) {
  const Refused cases[] = {
      {{3}, {kDense, {}, {1, 2}}, "of shape [3] must have 3 ids, has 2. A smaller last batch"},
      {{3}, {kSplits, {}, {1}}, "row splits must begin with 0, are empty"},
      {{3}, {kSplits, {1, 1, 1, 1}, {1}}, "begin with 1"},
      {{3}, {kSplits, {0, 2, 1, 3}, {1, 2, 3}}, "row split at position 2 is 1 after 2"},
      {{3},
       {kSplits, {0, 1, 1, 1}, {1, 2}},
       "the last row split must be the number of ids, 2, is 1"},
      {{3}, {kSplits, {0, 1, 2}, {1, 2}}, "of shape [3] must have 3 rows, has 2"},
      {{2, 2}, {kSplits, {0, 1, 2, 2}, {1, 2}}, "4 rows, or 2 of sequences, has 3"},
      {{3}, {kIndices, {3}, {1}, {}, 1}, "index 0 has the coordinate 3 in dimension 0"},
      {{3}, {kIndices, {0, -1}, {1, 2}, {}, 1}, "index 1 has the coordinate -1"},
      {{2, 2}, {kIndices, {0, -1}, {1}, {}, 2}, "coordinate -1 in dimension 1"},
      {{3}, {kIndices, {0, 0, 0}, {1}, {}, 3}, "must have 1 or 2 columns, have 3"},
      {{3}, {kIndices, {0, 0, 0}, {1, 2}, {}, 1}, "the place of each of the 2 ids"},
      {{3}, {kIndices, {0}, {1, 2}, {}, INT64_MAX}, "the place of each of the 2 ids"},
      {{3},
       {kSamples, {0, 3}, {1, 2}},
       "sample index at position 1 is 3; sample indices must be in [0, 3)"},
      {{3}, {kSamples, {-1}, {1}}, "sample index at position 0 is -1"},
      {{3}, {kSamples, {0}, {1, 2}}, "the place of each of the 2 ids"}};
  for (const Refused& one : cases) {
    EXPECT_ERROR(Make(Of(one.shape), one.given, Combiner::kSum), kInvalid, one.words);
  }
}

TEST(Batch, BrokenWeightsAreRefused) {
  const auto refuse = [](const std::vector<double>& weights, Combiner combiner,
                         const char* words) {
    EXPECT_ERROR(Make(Of({1}), {kSplits, {0, 3}, {1, 2, 3}, weights}, combiner), kInvalid,
                 words);
  };
  refuse({1}, Combiner::kSum, "there are 1 weights and 3 ids");
  refuse({1, 1, NAN}, Combiner::kSum, "weight at position 2 is nan; weights must be finite");
  refuse({HUGE_VAL, 1, 1}, Combiner::kSum, "weight at position 0 is inf");
  // 1e39 is infinite in float32.
  refuse({1, 1e39, 1}, Combiner::kSum, "weight at position 1 is inf");
  // The divisors are so small that the quotients are not finite.
  refuse({1e30, -1e30, 1e-10}, Combiner::kMean, "the weights of sample 0 combine to 1.0000");
  refuse({1e-45, 0, 0}, Combiner::kMean, "the weights of sample 0 combine to 1.4");
}

// A num_features configuration. Its table has `features` features in each row, which several
// inputs may fill.
Configuration Legacy(int64_t batch, int64_t features) {
  Configuration made;
  made.tables.resize(1);
  made.tables[0].name = "t";
  made.tables[0].rows = 10;
  made.tables[0].dimension = 1;
  made.tables[0].features = features;
  made.batch = batch;
  EXPECT_OK(Complete(&made));
  return made;
}

TEST(Batch, InputsAreMerged) {
  // Two rows of this input belong to each row of the batch.
  const Given first{kSplits, {0, 1, 2, 2, 4}, {1, 2, 3, 4}};
  const Given sequence{kIndices, {0, 0, 0, 1, 0, 2, 1, 1}, {5, 6, 7, 8}, {}, 2};
  const Given dense{kDense, {}, {9, 0}, {0.5, 0.25}};
  const std::vector<Lookups> inputs = {first.View(), sequence.View(), dense.View()};
  std::vector<Placement> placements(3);
  for (Placement& one : placements) one.stride = 5;
  placements[0].count = 2;
  placements[1].first = 2;
  placements[1].sequence = 2;
  placements[2].first = 4;
  const Bags bags = Value(MakeBags(Legacy(2, 5), 0, inputs, placements, Combiner::kSum));
  // The third id of the first sequence is beyond its end.
  IdsAre(bags, {{1}, {2}, {5}, {6}, {9}, {}, {3, 4}, {}, {8}, {0}});
  // If some inputs have weights, the weights of the other inputs are 1.
  const float weights[] = {1, 1, 1, 1, 0.5f, 1, 1, 1, 0.25f};
  EXPECT(std::equal(weights, weights + 9, bags.per_sample_weights.get()));
}

TEST(Batch, BrokenPlacementsAreRefused) {
  const Configuration configuration = Legacy(2, 3);
  const Given dense{kDense, {}, {1, 2}};
  const auto refuse = [&](const Given& given, const Placement& placement, const char* words) {
    EXPECT_ERROR(MakeBags(configuration, 0, {given.View()}, {placement}, Combiner::kSum),
                 kInvalid, words);
  };
  refuse(dense, {2, 3, 2, 0}, "input 0 has 2 features from 2 on, which do not lie within");
  refuse(dense, {1, 3, -1, 0}, "from -1 on");
  refuse(dense, {0, 3, 0, 0}, "has 0 features");
  refuse(dense, {1, 4, 0, 0}, "num_features, 4");
  refuse(dense, {2, 3, 0, 2}, "has 2 features");
  refuse(dense, {1, 3, 0, INT64_MAX}, "do not lie within");
  refuse({kDense, {}, {1}}, {1, 3, 0, 0}, "input 0 must have 2 rows, has 1");
  refuse({kSplits, {0, 1}, {1}}, {1, 3, 0, 0}, "input 0 must have 2 rows, has 1");
  refuse({kIndices, {0, 0, 0}, {1}, {}, 3}, {1, 3, 0, 0}, "1 or 2 columns, have 3");
  refuse({kIndices, {2, 0}, {1}, {}, 2}, {1, 3, 0, 0}, "index 0 has 2 and 0");
  refuse({kIndices, {0, -1}, {1}, {}, 2}, {1, 3, 0, 0}, "index 0 has 0 and -1");
  refuse({kSamples, {-1}, {1}}, {1, 3, 0, 0}, "index 0 has -1 and 0");
}

constexpr int64_t kOdd[] = {INT64_MIN, -1, 0, 1, 2, 3, 1 << 20, INT32_MAX, INT64_MAX};

// Random and damaged inputs are refused, or become bags that can be looked up safely.
TEST(Batch, DamagedInputsAreRefusedOrSafe) {
  Random random{testing::Seed()};
  int made = 0;
  for (int64_t round = 0; round < testing::Rounds(3000); ++round) {
    const Configuration configuration = DrawConfiguration(random);
    const int64_t f = random.Below(configuration.features.size());
    Input input = DrawInput(random, configuration, f);
    Lookups lookups = input.View();
    lookups.form = static_cast<Lookups::Form>(random.Below(4));
    std::vector<int64_t> where = input.splits;
    if (lookups.form == kIndices) {
      lookups.rank = 1 + random.Below(4);
      where.assign(input.ids.size() * lookups.rank, 0);
    } else if (lookups.form == kSamples) {
      where.assign(input.ids.size(), 0);
    }
    const bool damaged = random.Below(2);
    for (int64_t& x : where) {
      if ((damaged && random.Below(8) == 0) || lookups.form != kSplits) {
        x = random.Below(6) == 0 && damaged ? kOdd[random.Below(std::size(kOdd))]
                                            : random.Below(2);
      }
    }
    lookups.where = {where.data(), true, static_cast<int64_t>(where.size())};
    if (!input.ids.empty() && random.Below(4) == 0) {
      input.ids[random.Below(input.ids.size())] = kOdd[random.Below(std::size(kOdd))];
    }
    if (!input.weights.empty() && random.Below(8) == 0) input.weights[0] = NAN;
    const auto bags_or =
        MakeBags(configuration, f, lookups, static_cast<Combiner>(random.Below(3)));
    if (!bags_or.ok()) continue;
    const Bags& bags = *bags_or;
    ++made;
    EXPECT_EQ(bags.samples, configuration.features[f].samples());
    EXPECT_EQ(bags.offsets[0], 0);
    for (int64_t s = 0; s < bags.samples; ++s) EXPECT(bags.offsets[s] <= bags.offsets[s + 1]);
    for (int64_t j = 0; j < bags.count(); ++j) {
      EXPECT(bags.indices[j] >= 0 &&
             bags.indices[j] < configuration.tables[configuration.features[f].table].rows);
    }
  }
  EXPECT(made > 0);
}

// Random and damaged placements are refused, or give every id a sample.
TEST(Batch, DamagedPlacementsAreRefusedOrSafe) {
  Random random{testing::Seed()};
  constexpr int64_t kFar[] = {INT64_MIN, -1,        int64_t{1} << 62, (int64_t{1} << 62) + 4,
                              1 << 20,   INT32_MAX, INT64_MAX};
  int made = 0;
  for (int64_t round = 0; round < testing::Rounds(3000); ++round) {
    const Configuration configuration = Legacy(1 + random.Below(4), 1 + random.Below(4));
    Placement place;
    place.stride = configuration.tables[0].features;
    place.first = random.Below(place.stride);
    place.count = 1 + random.Below(place.stride);
    if (random.Below(2) == 0) {
      place.sequence = place.count;
      place.count = 1;
    }
    if (random.Below(2) == 0) {
      int64_t* const parts[] = {&place.count, &place.stride, &place.first, &place.sequence};
      *parts[random.Below(4)] = kFar[random.Below(std::size(kFar))];
    }
    const std::vector<int64_t> ids(random.Below(6), 3);
    std::vector<int64_t> where;
    Lookups lookups;
    lookups.form = random.Below(2) ? kIndices : kSamples;
    lookups.rank = lookups.form == kIndices ? 1 + random.Below(3) : 0;
    for (size_t j = 0; j < ids.size() * (lookups.rank ? lookups.rank : 1); ++j) {
      where.push_back(random.Below(9) == 0 ? kFar[random.Below(std::size(kFar))]
                                           : random.Below(configuration.batch));
    }
    if (!where.empty() && random.Below(9) == 0) where.pop_back();
    lookups.where = {where.data(), true, static_cast<int64_t>(where.size())};
    lookups.ids = {ids.data(), true, static_cast<int64_t>(ids.size())};
    const auto bags_or = MakeBags(configuration, 0, {lookups}, {place}, Combiner::kMean);
    if (!bags_or.ok()) continue;
    const Bags& bags = *bags_or;
    ++made;
    EXPECT_EQ(bags.samples, configuration.features[0].samples());
    for (int64_t s = 0; s < bags.samples; ++s) EXPECT(bags.offsets[s] <= bags.offsets[s + 1]);
    // Only ids beyond the end of a sequence are dropped.
    EXPECT(place.sequence > 0 || bags.count() == lookups.ids.size);
  }
  EXPECT(made > 0);
}

}  // namespace
}  // namespace opwright::embedding
