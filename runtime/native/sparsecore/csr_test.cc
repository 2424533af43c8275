// Tests the buffers and their padding, minibatches, and the refusal of invalid arguments.
#include "sparsecore/csr.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/testing/pool.h"
#include "base/testing/testing.h"
#include "sparsecore/testing/triples.h"

namespace opwright::sparsecore {
namespace {

TEST(Csr, MaskSetsTheMinibatchEnds) {
  EXPECT(MinibatchEnds(0) == std::vector<int64_t>({64}));
  EXPECT(MinibatchEnds(1) == std::vector<int64_t>({32, 64}));  // This mask splits the root.
  // This mask splits the root's children.
  EXPECT(MinibatchEnds(0b110) == std::vector<int64_t>({16, 48, 64}));
  EXPECT(MinibatchEnds(int64_t{1} << 62) == std::vector<int64_t>({63, 64}));
  EXPECT_EQ(MinibatchEnds(INT64_MAX).size(), 64u);
}

TEST(Csr, MaskOfTheCutsIsTheInverse) {
  EXPECT_EQ(MaskOfCuts({}), 0);
  EXPECT_EQ(MaskOfCuts({32}), 1);
  EXPECT_EQ(MaskOfCuts({48, 16}), 0b110);
  for (int bit = 0; bit < 63; ++bit) {
    const int64_t mask = int64_t{1} << bit;
    EXPECT_EQ(MaskOfCuts({MinibatchEnds(mask).front()}), mask);
  }
}

// Buffers of two SparseCores with two shards, without minibatches.
struct Packed {
  Packed() {
    sources = {{triples[0].view(), counts[0].data(), 3},
               {triples[1].view(), counts[1].data(), 3}};
  }
  Packed(const Packed&) = delete;

  Status Check() const { return CheckCsrSources(shape, splits, sources); }
  void Pack() {
    const int64_t all = 2 * shape.max_minibatches * shape.stride();
    pointers.assign(static_cast<size_t>(all), -1);
    samples.assign(static_cast<size_t>(shape.capacity), -1);
    rows = samples;
    gains.assign(static_cast<size_t>(shape.capacity), -1);
    buffers.row_pointers = pointers.data();
    buffers.samples = samples.data();
    buffers.rows = rows.data();
    buffers.gains = gains.data();
    PackCsr(shape, splits, sources, &buffers);
  }
  CsrView View() const {
    return {pointers.data(),
            static_cast<int64_t>(pointers.size()),
            {samples.data(), rows.data(), gains.data(), static_cast<int64_t>(rows.size())},
            buffers.minibatches,
            2,
            limits};
  }

  CsrShape shape{2, 1, 32};
  int64_t splits = 0;
  Triples triples[2] = {Triples{{0, 1, 1}, {0, 0, 2}, {1, 2, 3}}, Triples{{1}, {1}, {4}}};
  Ints counts[2] = {{0, 2, 3}, {0, 0, 1}};
  std::vector<CsrSource> sources;
  CsrBuffers buffers{};
  CsrLimits limits;
  Ints pointers, samples, rows;
  Reals gains;
};

constexpr int32_t kPad = kSparseCorePad;

// The sources of a chip may share the triples and the counts.
TEST(Csr, SourcesMayBeginAtAnyTriple) {
  Packed apart, joined;
  apart.Pack();
  joined.triples[0] = Triples{{0, 1, 1, 1}, {0, 0, 2, 1}, {1, 2, 3, 4}};
  joined.counts[0] = {0, 2, 3, 3, 4};
  joined.sources = {{joined.triples[0].view(), joined.counts[0].data(), 3},
                    {joined.triples[0].view(), joined.counts[0].data() + 2, 3}};
  EXPECT_OK(joined.Check());
  joined.Pack();
  EXPECT(joined.pointers == apart.pointers);
  EXPECT(joined.samples == apart.samples);
  EXPECT(joined.rows == apart.rows);
  EXPECT(joined.gains == apart.gains);
  EXPECT_EQ(joined.buffers.triples, 4);
  EXPECT_EQ(joined.buffers.dropped, 0);
}

TEST(Csr, BuffersArePadded) {
  Pool pool(2);
  PoolContext exec(pool);
  Packed packed;
  EXPECT_OK(packed.Check());
  packed.Pack();
  EXPECT(packed.pointers ==
         Ints({2, 9, 16, 16, 16, 16, 16, 16, 16, 17, 24, 24, 24, 24, 24, 24}));
  Ints samples(32, kPad), rows(32, kPad);
  samples[0] = 0, samples[1] = 1, samples[8] = 1, samples[16] = 1;
  rows[0] = 0, rows[1] = 0, rows[8] = 2, rows[16] = 1;
  EXPECT(packed.samples == samples);
  EXPECT(packed.rows == rows);
  EXPECT_EQ(packed.gains[16], 4.f);
  EXPECT_EQ(packed.gains[31], static_cast<float>(kPad));
  EXPECT_EQ(packed.buffers.row_pointers_size, 16);
  EXPECT_EQ(packed.buffers.ids_size, 24);
  EXPECT_EQ(packed.buffers.minibatches, 1);
  EXPECT_EQ(packed.buffers.dropped, 0);
  // ReadCsr returns rows of the device's table. The rows of shard 1 follow the rows of shard 0.
  Triples read;
  EXPECT_OK(ReadCsr(packed.View(), 4, 8, &read, exec));
  ExpectTriples(read, {0, 1, 1, 3}, {0, 0, 6, 5}, {1, 2, 3, 4});
}

TEST(Csr, TriplesBeyondTheCapacityAreDropped) {
  Packed packed;
  packed.shape.capacity = 16;
  packed.Pack();
  EXPECT_EQ(packed.buffers.triples, 4);
  EXPECT_EQ(packed.buffers.dropped, 1);
  EXPECT_EQ(packed.buffers.needed_size, 24);
}

// The mask assigns the divisions of each shard to minibatches.
TEST(Csr, MaskDividesShardsIntoMinibatches) {
  Pool pool(2);
  PoolContext exec(pool);
  Packed packed;
  packed.splits = 1;
  packed.shape.max_minibatches = 3;
  packed.shape.capacity = 48;
  for (int core = 0; core < 2; ++core) {
    const Ints undivided = packed.counts[core];
    Ints& divided = packed.counts[core];
    divided.assign(2 * kDivisions + 1, undivided[2]);
    for (int64_t i = 0; i < 2 * kDivisions; ++i) {
      // The first half of each shard has one triple. The last division has the others.
      const int64_t shard = i / kDivisions, division = i % kDivisions;
      const int32_t first = undivided[shard];
      divided[i] = division == 0 ? first : std::min(first + 1, undivided[shard + 1]);
    }
    packed.sources[core] = {packed.triples[core].view(), divided.data(),
                            static_cast<int64_t>(divided.size())};
  }
  EXPECT_OK(packed.Check());
  packed.Pack();
  EXPECT_EQ(packed.buffers.minibatches, 2);
  EXPECT(Ints(packed.pointers.begin(), packed.pointers.begin() + 2) == Ints({1, 9}));
  EXPECT(Ints(packed.pointers.begin() + 8, packed.pointers.begin() + 10) == Ints({17, 24}));
  EXPECT(Ints(packed.pointers.begin() + 16, packed.pointers.begin() + 18) == Ints({24, 25}));
  Triples read;
  EXPECT_OK(ReadCsr(packed.View(), 4, 8, &read, exec));
  ExpectTriples(read, {0, 1, 1, 3}, {0, 6, 0, 5}, {1, 3, 2, 4});
}

TEST(Csr, InvalidSourcesAreRefused) {
  const auto refuse = [](const char* words, const auto& damage) {
    Packed packed;
    damage(&packed);
    EXPECT_ERROR(packed.Check(), kInvalid, words);
  };
  refuse("must be a multiple of 8 that fits in int32, is 30",
         [](Packed* p) { p->shape.capacity = 30; });
  refuse("splits: must not be negative", [](Packed* p) { p->splits = -1; });
  refuse("make 2 minibatches, max_minibatches_per_sc is 1", [](Packed* p) { p->splits = 1; });
  refuse("id_counts_list[1]: must have 3 elements, or 129 with minibatches, has 2",
         [](Packed* p) { p->sources[1].id_counts_size = 2; });
  refuse("must have 129 elements for 2 minibatches", [](Packed* p) {
    p->splits = 1;
    p->shape.max_minibatches = 2;
  });
  refuse("the one at position 1 is 4", [](Packed* p) { p->counts[0][1] = 4; });
  refuse("the one at position 2 is 1", [](Packed* p) { p->counts[0][2] = 1; });
  refuse("the one at position 0 is -1", [](Packed* p) { p->counts[0][0] = -1; });
}

// The buffers have two SparseCores and two shards: one SparseCore of each of two devices.
TEST(Csr, ShardsOfSeveralDevicesAreRead) {
  Pool pool(2);
  PoolContext exec(pool);
  Packed packed;
  packed.Pack();
  CsrView csr = packed.View();
  csr.sparse_cores = 1;
  csr.devices = 2;
  csr.first_sample = 10;
  Triples read;
  EXPECT_OK(ReadCsr(csr, 2, 8, &read, exec));
  Triples all;
  EXPECT_OK(ReadCsr(packed.View(), 4, 8, &all, exec));
  int64_t of_first = 0;
  while (of_first < all.size() && all.samples[of_first] < 2) ++of_first;
  EXPECT_EQ(read.size(), of_first);
  for (int64_t i = 0; i < of_first; ++i) {
    EXPECT_EQ(read.samples[i], all.samples[i] + 10);
    EXPECT_EQ(read.rows[i], all.rows[i]);
  }
}

// Each run has more triples than one task reads. The error is that of the first bad triple.
TEST(Csr, LongRunsAreReadByThreads) {
  Pool pool(3);
  PoolContext exec(pool);
  constexpr int32_t kRun = 40000, kRuns = 4;
  Ints pointers(16), samples, rows;
  Reals gains;
  for (int32_t run = 0; run < kRuns; ++run) {
    for (int32_t i = 0; i < kRun; ++i) {
      samples.push_back(i % 3);
      rows.push_back(i / 8);
      gains.push_back(static_cast<float>(run));
    }
    // Runs end at multiples of 8, so they have no padding.
    pointers[run / 2 * 8 + run % 2] = (run + 1) * kRun;
    std::fill(pointers.begin() + run / 2 * 8 + run % 2 + 1, pointers.end(), (run + 1) * kRun);
  }
  const auto view = [&] {
    return CsrView{pointers.data(),
                   16,
                   {samples.data(), rows.data(), gains.data(), kRuns * kRun},
                   1,
                   2,
                   CsrLimits{kRun, kRun / 8}};
  };
  Triples read = Triples{{9}, {9}, {9}};
  EXPECT_OK(ReadCsr(view(), 6, 2 * kRun, &read, exec));
  EXPECT_EQ(read.size(), 1 + kRuns * kRun);
  EXPECT(read.samples[0] == 9 && read.rows[0] == 9 && read.gains[0] == 9);
  for (int32_t i = 0; i < kRuns * kRun; ++i) {
    const int32_t run = i / kRun, at = i % kRun;
    EXPECT_EQ(read.samples[1 + i], run / 2 * 3 + at % 3);
    EXPECT_EQ(read.rows[1 + i], run % 2 * kRun + at / 8);
    EXPECT_EQ(read.gains[1 + i], static_cast<float>(run));
  }
  samples[kRuns * kRun - 1] = samples[kRun + 7] = 3;
  EXPECT_ERROR(ReadCsr(view(), 6, 2 * kRun, &read, exec), kInvalid, "at position 40007 is 3");
}

TEST(Csr, InvalidBuffersAreRefused) {
  Pool pool(2);
  PoolContext exec(pool);
  const auto refuse = [&](const char* words, const auto& damage) {
    Packed packed;
    packed.Pack();
    damage(&packed);
    Triples read;
    EXPECT_ERROR(ReadCsr(packed.View(), 4, 8, &read, exec), kInvalid, words);
  };
  refuse("must be at least 1 and at most 1, ", [](Packed* p) { p->buffers.minibatches = 2; });
  refuse("is 0", [](Packed* p) { p->buffers.minibatches = 0; });
  refuse("the one at position 1 is 7 after 8", [](Packed* p) { p->pointers[1] = 7; });
  refuse("the one at position 9 is 33 after 16", [](Packed* p) { p->pointers[9] = 33; });
  refuse("number 2 belongs to shard 2, this device has 2",
         [](Packed* p) { p->pointers[2] = 17; });
  refuse(
      "sorted_sample_ids: must be at least 0 and below a SparseCore's 2 samples; the one at "
      "position 1",
      [](Packed* p) { p->samples[1] = 2; });
  refuse(
      "sorted_token_ids: must be at least 0 and below a shard's 4 rows; the one at position 16 "
      "is -1",
      [](Packed* p) { p->rows[16] = -1; });
  refuse("sorted_gains: must be finite; the one at position 8",
         [](Packed* p) { p->gains[8] = NAN; });
  refuse("max_ids_per_sparse_core: is 1, SparseCore 0 requests 2 triples of shard 0",
         [](Packed* p) { p->limits.ids = 1; });
  refuse("max_unique_ids_per_sparse_core: is 0, SparseCore 0 requests 1 rows of shard 0",
         [](Packed* p) { p->limits.distinct_rows = 0; });
}

}  // namespace
}  // namespace opwright::sparsecore
