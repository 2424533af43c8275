// Tests sorting, with examples and against std::stable_sort. Also tests the partition by shard,
// and that invalid arguments are refused.
#include "sparsecore/sort.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/testing/pool.h"
#include "base/testing/testing.h"
#include "sparsecore/testing/triples.h"

namespace opwright::sparsecore {
namespace {

ShardedTriples Merged(const std::vector<Triples>& features, const Ints& offsets, int64_t shards,
                      int64_t vocabulary) {
  std::vector<TriplesView> views;
  for (const Triples& one : features) views.push_back(one.view());
  Pool pool(3);
  PoolContext exec(pool);
  ShardedTriples merged;
  EXPECT_OK(MergeFeatures(views, offsets, shards, vocabulary, &merged, exec));
  return merged;
}

// Triples are sorted by row. Equal rows keep their order, feature by feature.
TEST(Sort, FeaturesAreSortedByRow) {
  const Triples first = Triples{{0, 0, 1, 2}, {9, 3, 9, 3}, {1, 2, 3, 4}};
  const Triples second = Triples{{5, 4}, {3, 9}, {5, 6}};
  const ShardedTriples merged = Merged({first, second}, {0, 0}, 4, 10);
  ExpectTriples(merged.triples, {0, 2, 5, 0, 1, 4}, {3, 3, 3, 9, 9, 9}, {2, 4, 5, 1, 3, 6});
  EXPECT(merged.ids == Ints({0, 3, 0, 3}));
  EXPECT(merged.distinct_rows == Ints({0, 1, 0, 1}));
}

// Tables are sorted by column offset. The order of the features does not matter.
TEST(Sort, TablesAreInTheOrderOfTheirOffsets) {
  const Triples high = Triples{{0}, {8}, {1}}, low = Triples{{1}, {2}, {2}},
                again = Triples{{2}, {8}, {3}};
  const ShardedTriples merged = Merged({high, low, again}, {8, 0, 8}, 2, 10);
  ExpectTriples(merged.triples, {1, 0, 2}, {2, 8, 8}, {2, 1, 3});
}

// Triples of the same row and sample become one if no other triple is between them.
TEST(Sort, EqualNeighboursBecomeOneTriple) {
  const Triples first = Triples{{0, 1, 0}, {3, 3, 3}, {1, 2, 4}};
  const Triples second = Triples{{0, 0}, {3, 5}, {8, 16}};
  ExpectTriples(Merged({first, second}, {0, 0}, 1, 10).triples, {0, 1, 0, 0}, {3, 3, 3, 5},
                {1, 2, 12, 16});
}

// Compares with std::stable_sort for rows of up to 31 bits.
TEST(Sort, SortsAreStable) {
  Random random{testing::Seed()};
  for (int64_t round = 0; round < testing::Rounds(60); ++round) {
    const int64_t most = int64_t{1} << random.Below(31);
    Triples triples;
    // Several threads sort more than 16384 triples.
    const int64_t count = random.Below(round % 8 == 0 ? 50000 : 2000);
    for (int64_t i = 0; i < count; ++i) {
      triples.Add(static_cast<int32_t>(i), static_cast<int32_t>(random.Below(most)), 1);
    }
    UninitializedVector<int32_t> order(static_cast<size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return triples.rows[a] < triples.rows[b]; });
    const ShardedTriples merged = Merged({triples}, {0}, 8, most);
    EXPECT(merged.triples.samples == order);
    EXPECT_EQ(std::accumulate(merged.ids.begin(), merged.ids.end(), int64_t{0}), count);
  }
}

TEST(Sort, InvalidTriplesAreRefused) {
  Pool pool(2);
  PoolContext exec(pool);
  const auto refuse = [&](const Triples& triples, const char* words) {
    ShardedTriples merged;
    EXPECT_ERROR(MergeFeatures({triples.view(), triples.view()}, {0, 4}, 2, 10, &merged, exec),
                 kInvalid, words);
  };
  refuse(Triples{{0, -1}, {1, 1}, {1, 1}},
         "row_ids_list[0]: samples must not be negative; the one at position 1");
  refuse(Triples{{0, 0}, {1, 10}, {1, 1}},
         "col_ids_list[0]: rows must be at least 0 and below");
  refuse(Triples{{0}, {-1}, {1}}, "the one at position 0 is -1");
}

// Triples are in the order of shards, and within a shard in the order of the sort. Rows are
// positions in their shard.
TEST(Sort, TriplesArePartitionedByShard) {
  const ShardedTriples merged =
      Merged({Triples{{5, 4, 6, 7}, {0, 3, 2, 1}, {1, 2, 3, 4}}}, {0}, 2, 4);
  Ints counts(3), samples(4), rows(4);
  Reals gains(4);
  PartitionByShard(merged, 4, counts.data(), samples.data(), rows.data(), gains.data());
  EXPECT(counts == Ints({0, 2, 4}));
  EXPECT(samples == Ints({1, 2, 3, 0}));
  EXPECT(rows == Ints({0, 1, 0, 1}));
  EXPECT(gains == Reals({1, 3, 4, 2}));
}

}  // namespace
}  // namespace opwright::sparsecore
