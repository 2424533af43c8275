// Tests the cuts and the sorted triples of a chip, with examples and against triples that are
// sorted and counted one by one.
#include "sparsecore/minibatches.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "base/testing/pool.h"
#include "base/testing/testing.h"
#include "sparsecore/testing/triples.h"

namespace opwright::sparsecore {
namespace {

// The cuts of one shard, each of whose divisions has as many ids, of different rows.
std::vector<int64_t> CutsOf(const std::vector<int64_t>& ids, const CsrLimits& limits) {
  MinibatchCutter::Sums sums;
  for (int64_t i = 0; i < kDivisions; ++i) {
    sums.ids[i + 1] = sums.ids[i] + ids[static_cast<size_t>(i)];
    sums.distinct_rows[i + 1] = sums.ids[i + 1];
  }
  MinibatchCutter cutter(limits);
  cutter.Add(sums);
  std::vector<int64_t> ends = MinibatchEnds(cutter.splits());
  ends.pop_back();
  return ends;
}
std::vector<int64_t> Each(int64_t ids) { return std::vector<int64_t>(kDivisions, ids); }

using Cuts = std::vector<int64_t>;

TEST(Minibatches, CutsKeepToTheLimits) {
  EXPECT(CutsOf(Each(1), {}) == Cuts{});
  EXPECT(CutsOf(Each(1), {64, 64}) == Cuts{});
  EXPECT(CutsOf(Each(1), {63, 64}) == Cuts{32});
  EXPECT(CutsOf(Each(1), {64, 63}) == Cuts{32});
  EXPECT(CutsOf(Each(1), {31, 64}) == Cuts({16, 32, 48}));
  EXPECT_EQ(CutsOf(Each(1), {1, 64}).size(), 63u);
  EXPECT(CutsOf(Each(0), {1, 1}) == Cuts{});
}

// Only the half that is too large is halved again. Neighbours that fit are joined.
TEST(Minibatches, CutsAreWhereTheIdsAre) {
  std::vector<int64_t> ids = Each(0);
  ids[0] = ids[1] = 3;
  EXPECT(CutsOf(ids, {5, 5}) == Cuts{1});
  ids[40] = 2;
  EXPECT(CutsOf(ids, {5, 5}) == Cuts{1});
  ids[40] = 3;
  EXPECT(CutsOf(ids, {5, 5}) == Cuts({1, 32}));
}

TEST(Minibatches, DivisionBeyondTheLimitsIsAMinibatch) {
  std::vector<int64_t> ids = Each(0);
  ids[0] = 9;
  EXPECT(CutsOf(ids, {5, 5}) == Cuts{});
  ids[1] = 1;
  EXPECT(CutsOf(ids, {5, 5}) == Cuts{1});
  ids[63] = 9;
  EXPECT(CutsOf(ids, {5, 5}) == Cuts({1, 63}));
}

struct Written {
  Ints id_counts, samples, rows;
  Reals gains;
  ChipDemand demand;
};

Written Write(const ChipShape& shape, const Triples& triples, const CsrLimits& limits) {
  Pool pool(3);
  PoolContext exec(pool);
  std::vector<ShardedTriples> of_cores;
  EXPECT_OK(SortChip(shape, triples.view(), &of_cores, exec));
  Written written;
  written.id_counts.assign(static_cast<size_t>(shape.counts()), -1);
  int64_t size = 0;
  for (const ShardedTriples& one : of_cores) size += one.triples.size();
  written.samples.resize(static_cast<size_t>(size));
  written.rows = written.samples;
  written.gains.resize(static_cast<size_t>(size));
  written.demand = WriteChip(shape, of_cores, limits, written.id_counts.data(),
                             written.samples.data(), written.rows.data(), written.gains.data());
  return written;
}

TEST(Minibatches, EqualTriplesBecomeOne) {
  const ChipShape shape{4, 2, 2, 128};
  const Triples triples = Triples{{0, 0, 0, 1, 3}, {5, 4, 5, 5, 127}, {1, 2, 4, 8, 16}};
  const Written written = Write(shape, triples, {});
  EXPECT(written.samples == Ints({0, 0, 1, 1}));
  EXPECT(written.rows == Ints({2, 2, 2, 63}));
  EXPECT(written.gains == Reals({2, 5, 8, 16}));
  EXPECT_EQ(written.demand.splits, 0);
  EXPECT_EQ(written.demand.ids, 2);
  EXPECT_EQ(written.demand.distinct_rows, 1);
}

// The counts are those of std::map, and no minibatch is beyond the limits.
TEST(Minibatches, RandomBatchesMatchTheReference) {
  Random random{testing::Seed()};
  for (int64_t round = 0; round < testing::Rounds(60); ++round) {
    ChipShape shape{};
    shape.sparse_cores = 1 + random.Below(4);
    shape.shards = shape.sparse_cores * (1 + random.Below(4));
    shape.samples = shape.sparse_cores * (1 + random.Below(5));
    shape.vocabulary = 1 + random.Below(random.Below(2) ? 20 : 5000);
    Triples triples;
    // By SparseCore, shard, division, row and sample.
    std::map<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>, double> expected;
    for (int64_t sample = 0; sample < shape.samples; ++sample) {
      for (int64_t n = random.Below(12); n > 0; --n) {
        const int64_t row = random.Below(shape.vocabulary), gain = 1 + random.Below(9);
        triples.Add(static_cast<int32_t>(sample), static_cast<int32_t>(row),
                    static_cast<float>(gain));
        expected[{sample / shape.core_samples(), row % shape.shards,
                  row / ((shape.vocabulary + 63) / 64), row, sample}] +=
            static_cast<double>(gain);
      }
    }
    const CsrLimits limits{1 + random.Below(6), 1 + random.Below(6)};
    const Written written = Write(shape, triples, limits);
    EXPECT_EQ(written.rows.size(), expected.size());
    std::vector<int64_t> counts(static_cast<size_t>(shape.counts()));
    std::map<std::pair<int64_t, int64_t>, int64_t> ids;
    std::map<std::pair<int64_t, int64_t>, std::set<int64_t>> distinct;
    std::map<std::tuple<int64_t, int64_t, int64_t>, std::set<int64_t>> divisions, rows;
    std::map<std::tuple<int64_t, int64_t, int64_t>, int64_t> of_minibatches;
    const std::vector<int64_t> ends = MinibatchEnds(written.demand.splits);
    size_t i = 0;
    for (const auto& [key, gain] : expected) {
      const auto& [core, shard, division, row, sample] = key;
      EXPECT_EQ(written.samples[i], sample % shape.core_samples());
      EXPECT_EQ(written.rows[i], row / shape.shards);
      EXPECT_NEAR(written.gains[i], gain, 1e-3);
      ++i;
      ++counts[static_cast<size_t>((core * shape.shards + shard) * 64 + division + 1)];
      ++ids[{core, shard}];
      distinct[{core, shard}].insert(row);
      const int64_t batch = std::upper_bound(ends.begin(), ends.end(), division) - ends.begin();
      ++of_minibatches[{core, shard, batch}];
      divisions[{core, shard, batch}].insert(division);
      rows[{core, shard, batch}].insert(row);
    }
    for (size_t k = 1; k < counts.size(); ++k) counts[k] += counts[k - 1];
    EXPECT(std::equal(counts.begin(), counts.end(), written.id_counts.begin(),
                      written.id_counts.end()));
    int64_t most = 0, most_distinct = 0;
    for (const auto& [key, count] : ids) most = std::max(most, count);
    for (const auto& [key, set] : distinct) {
      most_distinct = std::max(most_distinct, static_cast<int64_t>(set.size()));
    }
    EXPECT_EQ(written.demand.ids, most);
    EXPECT_EQ(written.demand.distinct_rows, most_distinct);
    for (const auto& [key, count] : of_minibatches) {
      if (divisions[key].size() == 1) continue;
      EXPECT(count <= limits.ids);
      EXPECT(static_cast<int64_t>(rows[key].size()) <= limits.distinct_rows);
    }
  }
}

TEST(Minibatches, InvalidTriplesAreRefused) {
  Pool pool(2);
  PoolContext exec(pool);
  const auto refuse = [&](const Triples& triples, const char* words) {
    std::vector<ShardedTriples> of_cores;
    EXPECT_ERROR(SortChip({4, 2, 2, 10}, triples.view(), &of_cores, exec), kInvalid, words);
  };
  refuse(
      Triples{{0, 4}, {1, 1}, {1, 1}},
      "row_ids: must be at least 0 and below sample_count, which is 4; the one at position 1");
  refuse(Triples{{-1}, {1}, {1}}, "position 0 is -1");
  refuse(Triples{{0, 0}, {1, 10}, {1, 1}}, "col_ids: must be at least 0 and below");
  refuse(Triples{{1, 2, 1}, {1, 1, 1}, {1, 1, 1}}, "the one at position 2 is 1 after 2");
}

}  // namespace
}  // namespace opwright::sparsecore
