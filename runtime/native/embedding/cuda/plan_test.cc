// The plans of the CUDA backend's calls, over sizes that no test could allocate.
#include "embedding/cuda/plan.h"

#include "embedding/testing/elements.h"

namespace opwright::embedding::cuda {
namespace {

TEST(Plan, SizesHold) {
  Random random{testing::Seed()};
  for (int64_t round = 0; round < testing::Rounds(20000); ++round) {
    TableConfig table;
    table.name = "t";
    table.optimizer = static_cast<Optimizer>(random.Below(13));
    table.rows = 1 + random.Below(int64_t{1} << 31) * 256 / (int64_t{1} << random.Below(39));
    table.dimension = 1 + random.Below(2000);
    const int64_t most = int64_t{1} << random.Below(40);
    const Chunks chunks = Value(PlanChunks(table, most));
    EXPECT(chunks.count >= 1 && chunks.count <= kMaxChunks);
    int64_t rows = 0;
    for (int i = 0; i < chunks.count; ++i) {
      EXPECT(chunks.rows_of(i) > 0);
      // Larger than asked for only where there would be too many.
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

    table.every_row = random.Below(2);
    const int64_t ids = random.Below(kMaxIds);
    const Workspace w =
        Value(PlanUpdate(table, ids, 1 << random.Below(20), random.Below(1000)));
    EXPECT(w.tiles * w.tile >= ids && (w.tiles - 1) * w.tile < ids);
    const int64_t key = WideKeys(table.rows) ? 8 : 4;
    const int64_t places[] = {w.keys[0],       w.keys[1],  w.positions[0], w.positions[1],
                              w.contributions, w.partials, w.crossing,     w.counters,
                              w.touched,       w.sort,     w.bytes};
    const int64_t sizes[] = {ids * key,   ids * key, ids * 4,
                             ids * 4,     ids * 16,  w.tiles * table.dimension * 16,
                             w.tiles * 4, 8,         w.touched_bytes,
                             w.sort_bytes};
    for (int i = 0; i < 10; ++i) {
      EXPECT(places[i] % 256 == 0 && places[i + 1] - places[i] >= sizes[i]);
    }
    EXPECT(!table.every_row || w.touched_bytes * 8 >= table.rows);
    EXPECT(GridOf(table.rows) >= 1 && GridOf(table.rows) < int64_t{1} << 31);
  }
}

TEST(Plan, WhatCannotBeCountedIsRefused) {
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
  EXPECT_ERROR(PlanUpdate(table, kMaxIds + 1, 1, 0), kInvalid, "has 2147483648 ids");
  EXPECT_ERROR(PlanUpdate(table, -1, 1, 0), kInvalid, "has -1 ids");
  table.dimension = int64_t{65536} * 128;
  EXPECT_ERROR(PlanUpdate(table, 1, 1, 0), kInvalid, "columns can be updated");
}

}  // namespace
}  // namespace opwright::embedding::cuda
