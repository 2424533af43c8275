// Tests that a packed batch has the same ids, in as few bytes as the values need.
#include "embedding/cuda/packing.h"

#include "base/testing/pool.h"
#include "embedding/testing/steps.h"

namespace opwright::embedding::cuda {
namespace {

Configuration Tables(int64_t tables, int64_t rows, int64_t samples) {
  Configuration configuration;
  for (int64_t t = 0; t < tables; ++t) {
    TableConfig table;
    table.name = "t" + std::to_string(t);
    table.rows = rows;
    table.dimension = 8;
    configuration.tables.push_back(table);
    configuration.features.push_back({"f" + std::to_string(t), t, {samples}});
  }
  EXPECT_OK(Complete(&configuration));
  return configuration;
}

// Returns a batch with one id for each sample of each feature.
Batch Dense(const Configuration& configuration) {
  Batch batch;
  for (size_t f = 0; f < configuration.features.size(); ++f) {
    const std::vector<int32_t> ids(static_cast<size_t>(configuration.features[f].samples()), 3);
    Lookups lookups;
    lookups.ids = {ids.data(), false, static_cast<int64_t>(ids.size())};
    batch.features.push_back(
        Value(MakeBags(configuration, static_cast<int64_t>(f), lookups, Combiner::kSum)));
  }
  return batch;
}

TEST(Packing, BytesOfABatch) {
  // An id takes 4 bytes if each sample has one id, or 8 if row numbers need them.
  const Configuration small = Tables(26, 1 << 20, 65536);
  EXPECT_EQ(Packing(small, Dense(small)).bytes(), 26 * 65536 * 4);
  const Configuration large = Tables(2, int64_t{1} << 31, 1000);
  EXPECT_EQ(Packing(large, Dense(large)).bytes(), 2 * 4000);
  const Configuration larger = Tables(2, (int64_t{1} << 31) + 1, 1000);
  EXPECT_EQ(Packing(larger, Dense(larger)).bytes(), 2 * 8000);
}

TEST(Packing, RandomBatchesAreUnchanged) {
  Random random{testing::Seed()};
  Pool pool(2);
  PoolContext exec(pool);
  for (int64_t round = 0; round < testing::Rounds(50); ++round) {
    Configuration configuration = DrawConfiguration(random);
    for (TableConfig& table : configuration.tables) {
      if (random.Below(3) == 0) table.rows += int64_t{1} << 33;
    }
    Batch batch;
    for (size_t f = 0; f < configuration.features.size(); ++f) {
      const Input input = DrawInput(random, configuration, static_cast<int64_t>(f));
      AddBags(configuration, static_cast<int64_t>(f), input,
              static_cast<Combiner>(random.Below(3)), &batch);
    }
    const Packing packing(configuration, batch);
    std::vector<char> bytes(static_cast<size_t>(packing.bytes()));
    packing.CopyTo(&exec, bytes.data());
    const std::vector<Source> sources = packing.SourcesAt(bytes.data(), nullptr);
    for (size_t f = 0; f < sources.size(); ++f) {
      const Source& source = sources[f];
      const Bags& bags = batch.features[f];
      EXPECT(source.table == configuration.features[f].table);
      EXPECT(source.samples == bags.samples && source.count == bags.count());
      for (int64_t s = 0; s <= bags.samples; ++s) {
        EXPECT_EQ(source.offsets.data ? source.offsets[s] : s, bags.offsets[s]);
      }
      EXPECT(!source.per_sample_weights == !bags.per_sample_weights || source.count == 0);
      EXPECT(!source.scales == !bags.scales);
      for (int64_t i = 0; i < source.count; ++i) {
        EXPECT_EQ(source.indices[i], bags.indices[i]);
        if (bags.per_sample_weights) {
          EXPECT_EQ(source.per_sample_weights[i], bags.per_sample_weights[i]);
        }
      }
      for (int64_t s = 0; bags.scales && s < bags.samples; ++s) {
        EXPECT_EQ(source.scales[s], bags.scales[s]);
      }
    }
  }
}

}  // namespace
}  // namespace opwright::embedding::cuda
