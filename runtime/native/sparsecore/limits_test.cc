// Tests what a batch requests, and the counts of dropped ids.
#include "sparsecore/limits.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/testing/testing.h"
#include "embedding/system_number.h"
#include "sparsecore/testing/triples.h"

namespace opwright::sparsecore {
namespace {

// Two SparseCores and two shards. The second core's run of shard 1 has three ids of two rows.
struct Chip {
  Ints rows[2] = {{0, 1, 3}, {5, 2, 2, 4}};
  std::vector<SortedRows> of_cores = {{rows[0].data(), 3, {0, 2, 3}},
                                      {rows[1].data(), 4, {0, 1, 4}}};
};

TEST(Limits, DemandIsThatOfTheFullestShard) {
  const Chip chip;
  EXPECT_OK(CheckSortedRows(chip.of_cores));
  const Demand demand = MeasureDemand(chip.of_cores);
  EXPECT_EQ(demand.ids.count, 3);
  EXPECT_EQ(demand.ids.core, 1);
  EXPECT_EQ(demand.ids.shard, 1);
  EXPECT_EQ(demand.distinct_rows.count, 2);
  EXPECT_EQ(demand.distinct_rows.core, 0);
  EXPECT_EQ(demand.distinct_rows.shard, 0);
  EXPECT_EQ(demand.capacity, 4 * 8);  // Each run begins at a multiple of 8.
}

TEST(Limits, CountsThatDoNotFitTheRowsAreRefused) {
  for (const Ints& counts : {Ints{0, 2, 4}, Ints{1, 2, 3}, Ints{0, 2, 1}, Ints{0, 3}, Ints{}}) {
    Chip chip;
    chip.of_cores[0].id_counts = counts;
    EXPECT(!CheckSortedRows(chip.of_cores).ok());
  }
}

TEST(Limits, PerSampleHasRoomAndIsAligned) {
  EXPECT_EQ(LeastPerSample(33, 8, 1), 5);
  EXPECT_EQ(LeastPerSample(32, 8, 1), 4);
  EXPECT_EQ(LeastPerSample(33, 4, 2), 10);
  EXPECT_EQ(LeastPerSample(33, 4, 64), 16);
  EXPECT_EQ(LeastPerSample(0, 4, 3), 1);
}

TEST(Limits, StatisticsAreTheMostOfTheSystem) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  embedding::BeginSystem();
  EXPECT_EQ(StatisticsOf("films").ids, kNone);
  EXPECT_OK(StoreStatistics("films", 5, 3));
  EXPECT_OK(StoreStatistics("films", 4, 4));
  EXPECT_OK(StoreStatistics("films", 0, 0));
  EXPECT_EQ(StatisticsOf("films").ids, 5);
  EXPECT_EQ(StatisticsOf("films").distinct_rows, 4);
  EXPECT_OK(StoreStatistics("people", 0, 2));
  EXPECT_EQ(StatisticsOf("people").ids, kNone);
  EXPECT_EQ(StatisticsOf("people").distinct_rows, 2);
  embedding::BeginSystem();
  EXPECT_EQ(StatisticsOf("films").ids, kNone);
}

TEST(Limits, StatisticsTakeAFewMegabytes) {
  embedding::BeginSystem();
  const std::string name(1 << 20, 'x');
  for (const char* const number : {"1", "2", "3"}) {
    EXPECT_OK(StoreStatistics(number + name, 1, 1));
  }
  EXPECT_ERROR(StoreStatistics("4" + name, 1, 1), StatusCode::kResourceExhausted,
               "ShutdownDistributedTPU forgets them");
  EXPECT_OK(StoreStatistics("3" + name, 2, 2));
  embedding::BeginSystem();
  EXPECT_OK(StoreStatistics("4" + name, 1, 1));
  embedding::BeginSystem();
}

TEST(Limits, DroppedIdsAreCountedByTable) {
  ForgetDroppedIds();
  EXPECT(AddDroppedIds("films", 3, 8));
  EXPECT(!AddDroppedIds("films", 2, 4));
  EXPECT(AddDroppedIds("people", 1, 2));
  const DroppedIds films = DroppedIdsOf("films");
  EXPECT_EQ(films.ids, 5);
  EXPECT_EQ(films.batches, 2);
  EXPECT_EQ(films.per_sample, 8);
  ForgetDroppedIds();
  EXPECT_EQ(DroppedIdsOf("films").ids, 0);
}

}  // namespace
}  // namespace opwright::sparsecore
