// Tests the plans of the CUDA backend's calls for sizes that no test could allocate.
#include "embedding/cuda/plan.h"

#include "embedding/testing/elements.h"

namespace opwright::embedding::cuda {
namespace {

TEST(Plan, RowWiseOptimizersAreRefused) {
  for (const OptimizerTraits& traits : kOptimizerRegistry) {
    TableConfig table;
    table.name = "t";
    table.rows = table.dimension = 1;
    table.optimizer = traits.optimizer;
    if (!traits.row_wise) {
      EXPECT_OK(PlanChunks(table, 1 << 20));
      continue;
    }
    EXPECT_ERROR(PlanChunks(table, 1 << 20), StatusCode::kUnimplemented,
                 std::string(traits.field) + " has no kernels for GPUs");
  }
}

TEST(Plan, PlansOfRandomSizesAreValid) {
  Random random{testing::Seed()};
  const std::vector<Optimizer> optimizers = WithElementRules();
  for (int64_t round = 0; round < testing::Rounds(20000); ++round) {
    TableConfig table;
    table.name = "t";
    table.optimizer = OneOf(random, optimizers);
    table.rows = 1 + random.Below(int64_t{1} << 31) * 256 / (int64_t{1} << random.Below(39));
    table.dimension = 1 + random.Below(2000);
    const int64_t most = int64_t{1} << random.Below(40);
    const Chunks chunks = Value(PlanChunks(table, most));
    EXPECT(chunks.count >= 1 && chunks.count <= kMaxChunks);
    int64_t rows = 0;
    for (int i = 0; i < chunks.count; ++i) {
      EXPECT(chunks.rows_of(i) > 0);
      // A chunk is larger than requested only if there would be too many chunks.
      EXPECT(chunks.bytes_of(i) <= most || chunks.rows_of(i) == 1 ||
             chunks.count > kMaxChunks / 2);
      rows += chunks.rows_of(i);
    }
    EXPECT(rows == table.rows);
    EXPECT(((table.rows - 1) >> chunks.shift) == chunks.count - 1);
    const int bits = KeyBits(table.rows);
    EXPECT(bits >= 1 && ((table.rows - 1) >> bits) == 0);
    EXPECT(bits == 1 || ((table.rows - 1) >> (bits - 1)) != 0);

    const Shape shape = PlanShape(table.dimension);
    EXPECT(shape.lanes() <= kMaxLanes);
    EXPECT(shape.lanes() * kFloats * shape.blocks >= table.dimension);
    EXPECT(shape.lanes() * kFloats * (shape.blocks - 1) < table.dimension);

    // Plans an update of this table and of others.
    std::vector<TableConfig> tables(static_cast<size_t>(1 + random.Below(4)), table);
    std::vector<int64_t> ids;
    int64_t all = 0, rows_of_all = 0;
    for (TableConfig& one : tables) {
      one.rows = 1 + random.Below(table.rows);
      one.every_row = random.Below(2);
      ids.push_back(random.Below(kMaxIds / 4));
      all += ids.back();
      rows_of_all += one.rows;
    }
    const int64_t image = random.Below(5000);
    const Workspace w =
        Value(PlanUpdate(tables, ids, 1 << random.Below(20), image, random.Below(1000)));
    EXPECT(w.ids == all && w.key_bits == KeyBits(rows_of_all));
    const int64_t key = WideKeys(rows_of_all) ? 8 : 4;
    int64_t end = 0, first_id = 0, tiles = 0;
    // Expects that `bytes` bytes at `at` do not overlap what came before.
    const auto holds = [&](int64_t at, int64_t bytes) {
      EXPECT(at % 256 == 0 && at >= end);
      end = at + bytes;
    };
    holds(w.image, image);
    for (const int64_t keys : w.keys) holds(keys, all * key);
    for (const int64_t positions : w.positions) holds(positions, all * 4);
    holds(w.contributions, all * 16);
    EXPECT(w.touched % 256 == 0 && w.touched >= end);
    for (size_t t = 0; t < tables.size(); ++t) {
      const Workspace::Part& part = w.tables[t];
      holds(part.touched, part.touched_bytes);
      EXPECT(!tables[t].every_row || part.touched_bytes * 8 >= tables[t].rows);
    }
    EXPECT(end <= w.touched + w.touched_bytes);
    for (size_t t = 0; t < tables.size(); ++t) {
      const Workspace::Part& part = w.tables[t];
      EXPECT(part.ids == ids[t] && part.first_id == first_id);
      EXPECT(part.tiles * w.tile >= ids[t] && (part.tiles - 1) * w.tile < ids[t]);
      holds(part.partials, part.tiles * table.dimension * 16);
      first_id += ids[t];
      tiles += part.tiles;
    }
    EXPECT(w.tiles == tiles);
    holds(w.crossing, w.tiles * 4);
    holds(w.sort, w.sort_bytes);
    EXPECT(w.bytes >= end);
    EXPECT(GridOf(table.rows) >= 1 && GridOf(table.rows) < int64_t{1} << 31);
  }
}

TEST(Plan, SizesThatOverflowAreRefused) {
  constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;
  TableConfig table;
  table.name = "t";
  table.rows = int64_t{1} << 61;
  table.dimension = 8;
  EXPECT_ERROR(PlanChunks(table, 1 << 20), StatusCode::kResourceExhausted,
               "more bytes than 64 bits can count");
  table.rows = 0;
  EXPECT_ERROR(PlanChunks(table, 1 << 20), kInvalid, "must be at least 1");
  table.rows = 1;
  EXPECT_ERROR(PlanChunks(table, 0), kInvalid, "in chunks of 0 bytes");
  const auto plan = [&](const std::vector<int64_t>& ids) {
    return PlanUpdate(std::vector<TableConfig>(ids.size(), table), ids, 1, 0, 0);
  };
  EXPECT_ERROR(plan({kMaxIds + 1}), kInvalid, "has 2147483648 ids");
  EXPECT_ERROR(plan({-1}), kInvalid, "has -1 ids");
  EXPECT_ERROR(plan({5, kMaxIds - 4}), kInvalid, "2 tables, the first of them table 't'");
  EXPECT_ERROR(plan({5, kMaxIds - 4}), kInvalid, "has 2147483648 ids");
  table.rows = int64_t{1} << 62;
  EXPECT_ERROR(plan({1, 1, 1}), kInvalid, "more rows than 63 bits can count");
  table.rows = 1;
  table.dimension = int64_t{65536} * 128;
  EXPECT_ERROR(plan({1}), kInvalid, "columns can be updated");
}

}  // namespace
}  // namespace opwright::embedding::cuda
