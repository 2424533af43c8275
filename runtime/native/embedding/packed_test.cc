// Tests lookups of packed bags: the activations are compared with lookups of each feature in
// float64. Also tests that wrong inputs are refused.
#include "embedding/packed.h"

#include <cmath>

#include "base/checked.h"
#include "embedding/cpu/lookups.h"
#include "embedding/testing/steps.h"

namespace opwright::embedding {
namespace {

// Random packed bags with ids of 32 or 64 bits, and the same ids as one Input for each feature.
struct Packed {
  Packed(Random& random, const Configuration& from, bool split) : configuration(from) {
    bags.samples = random.Below(8) ? random.Below(60) : 0;
    const bool weighted = random.Below(2), wide = random.Below(2);
    for (int64_t i = random.Below(2) * static_cast<int64_t>(from.tables.size()); i > 0; --i) {
      bags.combiners.push_back(static_cast<Combiner>(random.Below(3)));
    }
    splits.push_back(0);
    for (size_t f = 0; f < from.features.size(); ++f) {
      configuration.features[f].shape = {bags.samples};
      const int64_t table = from.features[f].table;
      Input& input = inputs.emplace_back();
      input.splits.push_back(0);
      for (int64_t s = 0; s < bags.samples; ++s) {
        for (int64_t n = split ? random.Below(6) : 1; n > 0; --n) {
          input.ids.push_back(random.Below(At(from.tables, table).rows));
          if (weighted) input.weights.push_back(random.Uniform() + 0.75);
        }
        input.splits.push_back(static_cast<int64_t>(input.ids.size()));
      }
      for (size_t s = 1; s < input.splits.size(); ++s) {
        splits.push_back(static_cast<int64_t>(ids.size()) + input.splits[s]);
      }
      ids.insert(ids.end(), input.ids.begin(), input.ids.end());
      for (double& weight : input.weights) {
        weights.push_back(static_cast<float>(weight));
        weight = weights.back();
      }
      columns += At(from.tables, table).dimension;
    }
    narrow_ids.assign(ids.begin(), ids.end());
    narrow_splits.assign(splits.begin(), splits.end());
    const int64_t count = static_cast<int64_t>(ids.size());
    bags.ids = wide ? Ints{ids.data(), true, count} : Ints{narrow_ids.data(), false, count};
    if (split) {
      const int64_t size = static_cast<int64_t>(splits.size());
      bags.row_splits = random.Below(2) ? Ints{splits.data(), true, size}
                                        : Ints{narrow_splits.data(), false, size};
    }
    if (weighted) bags.weights = weights.data();
  }

  Configuration configuration;  // Each feature has `bags.samples` samples.
  PackedBags bags;
  std::vector<Input> inputs;
  int64_t columns = 0;

 private:
  std::vector<int64_t> splits, ids;
  std::vector<int32_t> narrow_splits, narrow_ids;
  std::vector<float> weights;
};

TEST(Packed, ActivationsOfFeaturesAreSideBySide) {
  Random random{testing::Seed()};
  Pool pool(3);
  for (int64_t round = 0; round < testing::Rounds(60); ++round) {
    PoolContext exec(pool);
    Configuration configuration = DrawConfiguration(random);
    // Without quantization, because a value at the edge of a bucket may be rounded either way.
    for (TableConfig& table : configuration.tables) table.quantization = {};
    const auto store = MakeCpuTableStore(random.Below(2) * kFewLookupBytes);
    EXPECT_OK(store->Allocate(configuration));
    const Packed packed(random, configuration, random.Below(3) != 0);
    Model model(packed.configuration);
    for (int64_t t = 0; t < static_cast<int64_t>(configuration.tables.size()); ++t) {
      const TableConfig& table = At(configuration.tables, t);
      std::vector<float> values(static_cast<size_t>(table.rows * table.dimension));
      for (float& value : values) value = static_cast<float>(random.Uniform());
      std::copy(values.begin(), values.end(), model.At(t, -1, 0));
      EXPECT_OK(store->Write(&exec, t, -1, {table.rows, 0, 1}, values.data()));
    }
    PackedBags bags = packed.bags;
    if (bags.samples > 0 || bags.row_splits.size > 0) {
      const int64_t samples = bags.samples;
      bags.samples = -1;
      const int64_t weights = bags.weights ? bags.ids.size : 0;
      EXPECT_OK(CountSamples(configuration, weights, &bags));
      EXPECT_EQ(bags.samples, samples);
    }
    std::vector<float> out(static_cast<size_t>(bags.samples * packed.columns), NAN);
    EXPECT_OK(store->LookUpPacked(&exec, bags, out.data()));
    int64_t first = 0;
    for (int64_t f = 0; f < static_cast<int64_t>(configuration.features.size()); ++f) {
      const int64_t t = At(configuration.features, f).table;
      const int64_t dimension = At(configuration.tables, t).dimension;
      const Combiner combiner = bags.combiner(t);
      const Bags alone =
          Value(MakeBags(packed.configuration, f, At(packed.inputs, f).View(), combiner));
      const std::vector<float> expected = model.Lookup(f, alone);
      for (int64_t s = 0; s < bags.samples; ++s) {
        for (int64_t k = 0; k < dimension; ++k) {
          EXPECT(
              Near(At(expected, s * dimension + k), At(out, s * packed.columns + first + k)));
        }
      }
      first += dimension;
    }
  }
}

// Packed bags of two features with two samples each. The tables have 5 and 7 rows.
struct Small {
  Small() {
    configuration.tables.resize(2);
    configuration.tables[0].name = "t";
    configuration.tables[0].rows = 5;
    configuration.tables[0].dimension = 1;
    configuration.tables[1].name = "u";
    configuration.tables[1].rows = 7;
    configuration.tables[1].dimension = 2;
    configuration.features = {{"f", 0, {9}}, {"g", 1, {9}}};
    configuration.mode = Mode::kInference;
    EXPECT_OK(Complete(&configuration));
    store = MakeCpuTableStore();
    EXPECT_OK(store->Allocate(configuration));
  }

  Status LookUp() {
    PackedBags bags;
    bags.row_splits = {splits.data(), true, static_cast<int64_t>(splits.size())};
    bags.ids = {ids.data(), true, static_cast<int64_t>(ids.size())};
    if (!weights.empty()) bags.weights = weights.data();
    bags.combiners = combiners;
    OPWRIGHT_RETURN_IF_ERROR(
        CountSamples(configuration, static_cast<int64_t>(weights.size()), &bags));
    std::vector<float> out(static_cast<size_t>(bags.samples * 3));
    return store->LookUpPacked(&exec, bags, out.data());
  }

  Pool pool{2};
  PoolContext exec{pool};
  Configuration configuration;
  std::unique_ptr<TableStore> store;
  std::vector<int64_t> splits{0, 1, 3, 3, 4}, ids{4, 0, 1, 6};
  std::vector<float> weights;
  std::vector<Combiner> combiners;
};

TEST(Packed, WrongInputsAreDescribed) {
  EXPECT_OK(Small().LookUp());
  const auto refuse = [](const std::function<void(Small&)>& change, const std::string& words) {
    Small small;
    change(small);
    EXPECT_ERROR(small.LookUp(), StatusCode::kInvalidArgument, words);
  };
  constexpr int64_t kFar = int64_t{1} << 62;
  refuse([](Small& s) { s.ids[3] = 7; },
         "feature 1 ('g') of table 1 ('u'): id at position 0 is 7; ids must be in [0, 7)");
  refuse([](Small& s) { s.ids[2] = -1; },
         "feature 0 ('f') of table 0 ('t'): id at position 2 is -1; ids must be in [0, 5)");
  refuse([](Small& s) { s.ids.push_back(0); },
         "row_splits: the last one must be the number of ids, 5, is 4");
  refuse([](Small& s) { s.splits[0] = 1; }, "row_splits: must begin with 0, begin with 1");
  refuse([](Small& s) { s.splits[1] = 4; },
         "row_splits: must not descend, the one at position 2 is 3 after 4");
  for (const int64_t wild : {kFar, -kFar, INT64_MIN, INT64_MAX}) {
    for (size_t i = 0; i < 5; ++i) {
      refuse([=](Small& s) { s.splits[i] = wild; }, "row_splits: ");
    }
  }
  refuse([](Small& s) { s.splits.pop_back(); },
         "row_splits: must be one more than a multiple of the 2 features of the configuration, "
         "are 4");
  refuse([](Small& s) { s.splits = {0}; }, "row_splits: of no samples");
  refuse([](Small& s) { s.splits.clear(), s.ids.push_back(0); },
         "ids: must be a multiple of the 2 features of the configuration, are 5");
  refuse([](Small& s) { s.weights = {1, 1, 1}; },
         "weights: must be as many as ids, 4, or none, are 3");
  refuse(
      [](Small& s) { s.weights = {1, 1, NAN, 1}; },
      "feature 0 ('f') of table 0 ('t'): weight at position 2 is nan; weights must be finite");
  refuse([](Small& s) { s.combiners = {Combiner::kMean}; },
         "combiners: must be one for each of the 2 tables or none, are 1");
  refuse(
      [](Small& s) {
        s.weights = {1, 1e-45f, 0, 1};
        s.combiners = {Combiner::kMean, Combiner::kSum};
      },
      "feature 0 ('f') of table 0 ('t'): the weights of sample 1 combine to");
}

// Threads should begin with features that are not neighbours, because neighbours share cache
// lines of the output.
TEST(LookupPlan, NeighboursAreNotConsecutiveAndAllSamplesAreCovered) {
  Random random{testing::Seed()};
  for (int64_t round = 0; round < testing::Rounds(200); ++round) {
    const int64_t count = random.Below(40), threads = 1 + random.Below(20);
    std::vector<LookupPlan::Feature> features;
    std::vector<int64_t> done;
    for (int64_t f = 0; f < count; ++f) {
      const int64_t samples = 1 + random.Below(5000);
      features.push_back({samples, samples * random.Below(30), 1 + random.Below(300)});
      done.push_back(0);
    }
    const LookupPlan plan(features, threads);
    std::vector<int64_t> begun;  // The features in the order in which threads begin them.
    for (const LookupPart& part : plan.parts()) {
      int64_t& end = At(done, part.feature);
      EXPECT_EQ(part.first, end);
      EXPECT_EQ(part.first < part.end, true);
      end = part.end;
      if (part.first == 0) begun.push_back(part.feature);
    }
    for (int64_t f = 0; f < count; ++f) EXPECT_EQ(At(done, f), At(features, f).samples);
    const int64_t interval = (count + threads - 1) / threads;
    for (int64_t i = 0; i * interval < count; ++i) EXPECT_EQ(At(begun, i), i * interval);
  }
}

}  // namespace
}  // namespace opwright::embedding
