// The SparseCores' formats and lookups: each form and each sort by hand, everything that is
// refused, and random batches all the way to activations and updates, against the same done id
// by id; then the same with what lies in between damaged, which must be refused or do no harm.
// Arrays are exactly as long as they must be, so that a step outside is seen.
#include "sparsecore/formats.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <vector>

#include "embedding/testing/elements.h"

namespace opwright::sparsecore {
namespace {

constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;
using Ints = std::vector<int32_t>;
using Reals = std::vector<float>;

void TriplesAre(const Triples& triples, const Ints& samples, const Ints& rows,
                const Reals& gains) {
  EXPECT(triples.samples == samples);
  EXPECT(triples.rows == rows);
  EXPECT_EQ(triples.gains.size(), gains.size());
  for (size_t i = 0; i < gains.size(); ++i) EXPECT_NEAR(triples.gains[i], gains[i], 1e-6);
}

// ---- From a feature to triples.

// What a CooFeature views.
struct Feature {
  CooFeature::Form form;
  Ints indices, ids;
  Reals weights;  // One for all, or as many as ids.
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

TEST(Formats, DenseFeatures) {
  TriplesAre(TriplesOf({CooFeature::kDense, {}, {7, 7, 2}, {0.5f}, 3}), {0, 1, 2}, {7, 7, 2},
             {0.5f, 0.5f, 0.5f});
}

TEST(Formats, SparseFeatures) {
  TriplesAre(TriplesOf({CooFeature::kSparse, {0, 0, 2, 0, 2, 1}, {7, 3, 2}, {1, 2, 3}, 4}),
             {0, 2, 2}, {7, 3, 2}, {1, 2, 3});
}

TEST(Formats, RaggedFeatures) {
  TriplesAre(TriplesOf({CooFeature::kRagged, {0, 2, 2, 3}, {7, 3, 2}, {1, 2, 3}, 3}), {0, 0, 2},
             {7, 3, 2}, {1, 2, 3});
}

TEST(Formats, EqualIdsSideBySideBecomeOne) {
  const Feature feature{CooFeature::kRagged, {0, 4, 5}, {7, 7, 3, 7, 7}, {1, 2, 4, 8, 1}, 2};
  TriplesAre(TriplesOf(feature), {0, 0, 0, 1}, {7, 3, 7, 7}, {3, 4, 8, 1});
  // Denominators count them one by one.
  const float root = std::sqrt(85.f);
  TriplesAre(TriplesOf(feature, Combiner::kMean), {0, 0, 0, 1}, {7, 3, 7, 7},
             {3 / 15.f, 4 / 15.f, 8 / 15.f, 1});
  TriplesAre(TriplesOf(feature, Combiner::kSqrtN), {0, 0, 0, 1}, {7, 3, 7, 7},
             {3 / root, 4 / root, 8 / root, 1});
}

TEST(Formats, WeightsThatSumToNothing) {
  const Feature feature{CooFeature::kRagged, {0, 2}, {7, 3}, {1, -1}, 1};
  TriplesAre(TriplesOf(feature, Combiner::kMean), {0, 0}, {7, 3}, {0, 0});
}

TEST(Formats, BrokenFeaturesAreRefused) {
  const auto refuse = [](const Feature& feature, const char* words,
                         Combiner combiner = Combiner::kSum) {
    Triples triples;
    EXPECT_ERROR(FeatureToTriples(feature.View(), combiner, &triples), kInvalid, words);
  };
  refuse({CooFeature::kDense, {}, {1, -1}, {1}, 2},
         "values: ids must not be negative, number 1 is -1");
  refuse({CooFeature::kSparse, {1, 0, 0, 0}, {1, 2}, {1}, 2}, "that of id 1 is 0 after 1");
  refuse({CooFeature::kSparse, {0, 0, 2, 0}, {1, 2}, {1}, 2}, "that of id 1 is 2");
  refuse({CooFeature::kSparse, {-1, 0}, {1}, {1}, 2}, "that of id 0 is -1");
  refuse({CooFeature::kRagged, {1, 1}, {1}, {1}, 1}, "number 0 is 1");
  refuse({CooFeature::kRagged, {0, 2}, {1}, {1}, 1}, "number 1 is 2");
  refuse({CooFeature::kRagged, {0, 1, 0, 1}, {1}, {1}, 3}, "number 2 is 0");
  refuse({CooFeature::kRagged, {0, 2, 1}, {1}, {1}, 2}, "number 1 is 2");
  refuse({CooFeature::kDense, {}, {1, 2}, {1, NAN}, 2},
         "weights: must be finite, that of id 1");
  refuse({CooFeature::kRagged, {0, 2}, {1, 1}, {FLT_MAX, FLT_MAX}, 1},
         "must combine to finite gains in float32");
  refuse({CooFeature::kRagged, {0, 3}, {1, 2, 3}, {1e30f, -1e30f, 1e-10f}, 1},
         "those of sample 0 and id 1 do not", Combiner::kMean);
  refuse({CooFeature::kDense, {}, {}, {1}, int64_t{1} << 31}, "sample_count: must be at least");
}

CooStacking Stacking() { return {8, 2, 4, 100, 3, 4, 16}; }

TEST(Formats, StackingsAreChecked) {
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

// Each SparseCore has half of the samples; rows turn within their group of shards.
TEST(Formats, TriplesAreStacked) {
  Triples triples;
  for (const int32_t sample : {0, 3, 3, 4, 7}) triples.Add(sample, 4 + sample, 1);
  std::vector<int64_t> begins;
  EXPECT_OK(StackTriples(Stacking(), &triples, &begins));
  EXPECT(begins == std::vector<int64_t>({0, 3, 5}));
  // row_offset 4 and stacked_samples 16 of two SparseCores are 2 and 8 of each.
  TriplesAre(triples, {2, 5, 5, 10, 13}, {107, 106, 106, 111, 110}, {1, 1, 1, 1, 1});
  Triples large;
  large.Add(0, INT32_MAX, 1);
  EXPECT_ERROR(StackTriples(Stacking(), &large, &begins), kInvalid, "does not fit in int32");
}

// ---- From triples to the order of shards.

ShardedTriples Merged(const std::vector<Triples>& features, const Ints& offsets, int64_t shards,
                      int64_t vocabulary) {
  std::vector<TriplesView> views;
  for (const Triples& one : features) views.push_back(one.view());
  ShardedTriples merged;
  EXPECT_OK(MergeFeatures(views, offsets, shards, vocabulary, &merged));
  return merged;
}

Triples Of(const Ints& samples, const Ints& rows, const Reals& gains) {
  return {samples, rows, gains};
}

// By row; equal rows stay in the order in which they came, feature by feature.
TEST(Formats, FeaturesAreSortedByRow) {
  const Triples first = Of({0, 0, 1, 2}, {9, 3, 9, 3}, {1, 2, 3, 4});
  const Triples second = Of({5, 4}, {3, 9}, {5, 6});
  const ShardedTriples merged = Merged({first, second}, {0, 0}, 4, 10);
  TriplesAre(merged.triples, {0, 2, 5, 0, 1, 4}, {3, 3, 3, 9, 9, 9}, {2, 4, 5, 1, 3, 6});
  EXPECT(merged.ids == Ints({0, 3, 0, 3}));
  EXPECT(merged.distinct_rows == Ints({0, 1, 0, 1}));
}

// Table by table, by column offset, whatever order they came in.
TEST(Formats, TablesFollowTheirOffsets) {
  const Triples high = Of({0}, {8}, {1}), low = Of({1}, {2}, {2}), again = Of({2}, {8}, {3});
  const ShardedTriples merged = Merged({high, low, again}, {8, 0, 8}, 2, 10);
  TriplesAre(merged.triples, {1, 0, 2}, {2, 8, 8}, {2, 1, 3});
}

// The same row and sample, with nothing between them.
TEST(Formats, EqualTriplesSideBySideBecomeOne) {
  const Triples first = Of({0, 1, 0}, {3, 3, 3}, {1, 2, 4});
  const Triples second = Of({0, 0}, {3, 5}, {8, 16});
  TriplesAre(Merged({first, second}, {0, 0}, 1, 10).triples, {0, 1, 0, 0}, {3, 3, 3, 5},
             {1, 2, 12, 16});
}

// Rows of as many bits as there can be, against a stable sort.
TEST(Formats, SortsAreStable) {
  Random random{testing::Seed()};
  for (int64_t round = 0; round < testing::Rounds(60); ++round) {
    const int64_t most = int64_t{1} << random.Below(31);
    Triples triples;
    const int64_t count = random.Below(2000);
    for (int64_t i = 0; i < count; ++i) {
      triples.Add(static_cast<int32_t>(i), static_cast<int32_t>(random.Below(most)), 1);
    }
    std::vector<int32_t> order(static_cast<size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return triples.rows[a] < triples.rows[b]; });
    const ShardedTriples merged = Merged({triples}, {0}, 8, most);
    EXPECT(merged.triples.samples == order);
    EXPECT_EQ(std::accumulate(merged.ids.begin(), merged.ids.end(), int64_t{0}), count);
  }
}

TEST(Formats, BrokenTriplesAreRefused) {
  const auto refuse = [](const Triples& triples, const char* words) {
    ShardedTriples merged;
    EXPECT_ERROR(MergeFeatures({triples.view(), triples.view()}, {0, 4}, 2, 10, &merged),
                 kInvalid, words);
  };
  refuse(Of({0, -1}, {1, 1}, {1, 1}),
         "row_ids_list[0]: samples must not be negative, number 1");
  refuse(Of({0, 0}, {1, 10}, {1, 1}), "col_ids_list[0]: rows must be at least 0 and below");
  refuse(Of({0}, {-1}, {1}), "number 0 is -1");
}

// By shard, and in each in the order of the sort; rows are places in their shard.
TEST(Formats, TriplesAreDealtToShards) {
  const ShardedTriples merged =
      Merged({Of({5, 4, 6, 7}, {0, 3, 2, 1}, {1, 2, 3, 4})}, {0}, 2, 4);
  Ints counts(3), samples(4), rows(4);
  Reals gains(4);
  DealToShards(merged, 4, counts.data(), samples.data(), rows.data(), gains.data());
  EXPECT(counts == Ints({0, 2, 4}));
  EXPECT(samples == Ints({1, 2, 3, 0}));
  EXPECT(rows == Ints({0, 1, 0, 1}));
  EXPECT(gains == Reals({1, 3, 4, 2}));
}

// ---- Buffers.

TEST(Formats, MinibatchesEndWhereTheMaskSays) {
  EXPECT(MinibatchEnds(0) == std::vector<int64_t>({64}));
  EXPECT(MinibatchEnds(1) == std::vector<int64_t>({32, 64}));          // The root,
  EXPECT(MinibatchEnds(0b110) == std::vector<int64_t>({16, 48, 64}));  // and its children.
  EXPECT(MinibatchEnds(int64_t{1} << 62) == std::vector<int64_t>({63, 64}));
  EXPECT_EQ(MinibatchEnds(INT64_MAX).size(), 64u);
}

// Two SparseCores of two shards, without minibatches.
struct Packed {
  Packed() {
    sources = {{triples[0].view(), counts[0].data(), 3},
               {triples[1].view(), counts[1].data(), 3}};
  }
  Packed(const Packed&) = delete;

  Status Check() const { return CheckCsrSources(shape, splits, sources); }
  Status Pack(bool drop) {
    const int64_t all = 2 * shape.max_minibatches * shape.stride();
    pointers.assign(static_cast<size_t>(all), -1);
    samples.assign(static_cast<size_t>(shape.capacity), -1);
    rows = samples;
    gains.assign(static_cast<size_t>(shape.capacity), -1);
    buffers.row_pointers = pointers.data();
    buffers.samples = samples.data();
    buffers.rows = rows.data();
    buffers.gains = gains.data();
    return PackCsr(shape, splits, drop, sources, &buffers);
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
  Triples triples[2] = {Of({0, 1, 1}, {0, 0, 2}, {1, 2, 3}), Of({1}, {1}, {4})};
  Ints counts[2] = {{0, 2, 3}, {0, 0, 1}};
  std::vector<CsrSource> sources;
  CsrBuffers buffers{};
  CsrLimits limits;
  Ints pointers, samples, rows;
  Reals gains;
};

constexpr int32_t kPad = kSparseCorePad;

TEST(Formats, BuffersArePadded) {
  Packed packed;
  EXPECT_OK(packed.Check());
  EXPECT_OK(packed.Pack(false));
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
  // And read again, by device: rows of shard 1 come behind those of shard 0.
  Triples read;
  EXPECT_OK(ReadCsr(packed.View(), 4, 8, &read));
  TriplesAre(read, {0, 1, 1, 3}, {0, 0, 6, 5}, {1, 2, 3, 4});
}

TEST(Formats, WhatHasNoRoomIsDropped) {
  Packed packed;
  packed.shape.capacity = 16;
  EXPECT_ERROR(packed.Pack(false), kInvalid,
               "makes room for 16 triples, padding included; 1 of 4 do not fit");
  EXPECT_OK(packed.Pack(true));
  EXPECT_EQ(packed.buffers.dropped, 1);
}

// Divisions of each shard go to the minibatches that the mask makes of them.
TEST(Formats, Minibatches) {
  Packed packed;
  packed.splits = 1;
  packed.shape.max_minibatches = 3;
  packed.shape.capacity = 48;
  for (int core = 0; core < 2; ++core) {
    const Ints whole = packed.counts[core];
    Ints& divided = packed.counts[core];
    divided.assign(2 * kDivisions + 1, whole[2]);
    for (int64_t i = 0; i < 2 * kDivisions; ++i) {
      // One triple of each shard lies in its first half, the others in its last division.
      const int64_t shard = i / kDivisions, division = i % kDivisions;
      const int32_t first = whole[shard];
      divided[i] = division == 0 ? first : std::min(first + 1, whole[shard + 1]);
    }
    packed.sources[core] = {packed.triples[core].view(), divided.data(),
                            static_cast<int64_t>(divided.size())};
  }
  EXPECT_OK(packed.Check());
  EXPECT_OK(packed.Pack(false));
  EXPECT_EQ(packed.buffers.minibatches, 2);
  EXPECT(Ints(packed.pointers.begin(), packed.pointers.begin() + 2) == Ints({1, 9}));
  EXPECT(Ints(packed.pointers.begin() + 8, packed.pointers.begin() + 10) == Ints({17, 24}));
  EXPECT(Ints(packed.pointers.begin() + 16, packed.pointers.begin() + 18) == Ints({24, 25}));
  Triples read;
  EXPECT_OK(ReadCsr(packed.View(), 4, 8, &read));
  TriplesAre(read, {0, 1, 1, 3}, {0, 6, 0, 5}, {1, 3, 2, 4});
}

TEST(Formats, BrokenSourcesAreRefused) {
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
  refuse("number 1 is 4", [](Packed* p) { p->counts[0][1] = 4; });
  refuse("number 2 is 1", [](Packed* p) { p->counts[0][2] = 1; });
  refuse("number 0 is -1", [](Packed* p) { p->counts[0][0] = -1; });
}

TEST(Formats, BrokenBuffersAreRefused) {
  const auto refuse = [](const char* words, const auto& damage) {
    Packed packed;
    EXPECT_OK(packed.Pack(false));
    damage(&packed);
    Triples read;
    EXPECT_ERROR(ReadCsr(packed.View(), 4, 8, &read), kInvalid, words);
  };
  refuse("must be at least 1 and at most 1, ", [](Packed* p) { p->buffers.minibatches = 2; });
  refuse("is 0", [](Packed* p) { p->buffers.minibatches = 0; });
  refuse("number 1 is 7 after 8", [](Packed* p) { p->pointers[1] = 7; });
  refuse("number 9 is 33 after 16", [](Packed* p) { p->pointers[9] = 33; });
  refuse("number 2 belongs to shard 2, this device has 2",
         [](Packed* p) { p->pointers[2] = 17; });
  refuse("sorted_sample_ids: must be at least 0 and below a SparseCore's 2 samples; number 1",
         [](Packed* p) { p->samples[1] = 2; });
  refuse("sorted_token_ids: must be at least 0 and below a shard's 4 rows; number 16 is -1",
         [](Packed* p) { p->rows[16] = -1; });
  refuse("sorted_gains: must be finite, number 8", [](Packed* p) { p->gains[8] = NAN; });
  refuse("max_ids_per_sparse_core: is 1, SparseCore 0 asks shard 0 for 2 triples",
         [](Packed* p) { p->limits.ids = 1; });
  refuse("max_unique_ids_per_sparse_core: is 0, SparseCore 0 asks shard 0 for 1 rows",
         [](Packed* p) { p->limits.distinct_rows = 0; });
}

// ---- Lookups and updates.

TEST(Formats, SumsOfWholeNumbers) {
  Pool pool(2);
  PoolContext exec(pool);
  const Ints table = {1, 2, INT32_MAX, 4};
  const Triples triples = Of({0, 0, 2}, {0, 1, 1}, {2, -1, 1});
  Ints sums(6, 9);
  EXPECT_OK(SumRows(triples, table.data(), 2, 3, sums.data(), exec));
  EXPECT(sums == Ints({2 - INT32_MAX, 0, 0, 0, INT32_MAX, 4}));
  // They wrap around.
  EXPECT_OK(SumRows(Of({0, 0}, {1, 1}, {1, 1}), table.data(), 2, 1, sums.data(), exec));
  EXPECT_EQ(sums[0], -2);
  for (const float gain : {0.5f, 16777218.f, NAN}) {
    EXPECT_ERROR(SumRows(Of({0}, {0}, {gain}), table.data(), 2, 1, sums.data(), exec), kInvalid,
                 "must be whole numbers of at most 2^24");
  }
}

// Every optimizer, of triples in any order, against its rule on sums in double.
TEST(Formats, UpdatesFollowTheRules) {
  Pool pool(3);
  embedding::ForEachIsa([&] {
    PoolContext exec(pool);
    Random random{testing::Seed()};
    for (const Optimizer optimizer : embedding::WithRules()) {
      constexpr int64_t kRows = 40, kSamples = 15;
      const int64_t width = 1 + random.Below(40);
      const size_t parts = 1 + embedding::FactsOf(optimizer).slot_count();
      std::vector<Reals> tables(parts, Reals(kRows * width));
      for (size_t p = 0; p < parts; ++p) {
        for (float& x : tables[p]) x = static_cast<float>(random.Uniform() + (p > 0));
      }
      std::vector<Reals> model = tables;
      Reals gradients(kSamples * width);
      for (float& g : gradients) g = static_cast<float>(random.Uniform());
      Triples triples;
      std::vector<std::vector<double>> sums(kRows);
      for (int i = 0; i < 60; ++i) {
        const int64_t sample = random.Below(kSamples), row = random.Below(kRows);
        const float gain = static_cast<float>(random.Uniform() + 1);
        triples.Add(static_cast<int32_t>(sample), static_cast<int32_t>(row), gain);
        sums[row].resize(width);
        for (int64_t k = 0; k < width; ++k) {
          sums[row][k] += static_cast<double>(gain) * gradients[sample * width + k];
        }
      }
      const Hyper hyper = embedding::SomeHyper(optimizer);
      std::vector<float*> pointers;
      for (Reals& table : tables) pointers.push_back(table.data());
      EXPECT(!UpdateRows(triples, gradients.data(), width, optimizer, hyper, pointers.data(),
                         exec));
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t k = 0; k < width; ++k) {
          float* element[5];
          for (size_t p = 0; p < parts; ++p) element[p] = &model[p][row * width + k];
          if (!sums[row].empty()) {
            embedding::UpdateElement(optimizer, hyper, sums[row][k], element);
          }
          for (size_t p = 0; p < parts; ++p) {
            EXPECT_NEAR(tables[p][row * width + k], *element[p],
                        1e-5 * (1 + std::abs(*element[p])));
          }
        }
      }
    }
  });
}

TEST(Formats, WrongNumbersInTablesAreFound) {
  Pool pool(2);
  PoolContext exec(pool);
  Reals table(12, 1.f), accumulator(12, 1.f), gradients(3, 1.f);
  float* const tables[] = {table.data(), accumulator.data()};
  accumulator[2 * 3 + 1] = -0.5f;
  Hyper hyper;
  const auto update = [&](int32_t row) {
    return UpdateRows(Of({0}, {row}, {1}), gradients.data(), 3, Optimizer::kAdagrad, hyper,
                      tables, exec);
  };
  EXPECT(!update(1));  // Rows that are not updated may hold anything.
  const auto wrong = update(2);
  EXPECT(wrong.has_value());
  EXPECT(wrong->table == 1 && wrong->row == 2 && wrong->column == 1);
  EXPECT_EQ(wrong->value, -0.5f);
  EXPECT_EQ(wrong->range, Range::kNotNegative);
}

TEST(Formats, OfEqualIndicesTheLastOneCounts) {
  const Ints indices = {4, 2, 4, 0, 2};
  Triples triples;
  EXPECT_OK(RowsToTriples(indices.data(), 5, 5, &triples));
  TriplesAre(triples, {3, 4, 2}, {0, 2, 4}, {1, 1, 1});
  for (const int32_t bad : {-1, 5}) {
    const Ints broken = {0, bad};
    EXPECT_ERROR(RowsToTriples(broken.data(), 2, 5, &triples), kInvalid,
                 "number 1 is " + std::to_string(bad));
  }
}

// ---- All of it.

struct Case {
  int64_t cores, samples, rows, width;
  std::vector<int32_t> splits, ids;
  std::vector<float> weights, table, gradients;
  Combiner combiner;
};

Case Draw(Random& random) {
  Case c;
  c.cores = int64_t{1} << random.Below(4);
  c.samples = c.cores * (1 + random.Below(9));
  c.rows = c.cores * (1 + random.Below(random.Below(2) ? 3 : 400));
  c.width = random.Below(random.Below(2) ? 9 : 150);
  c.combiner = static_cast<Combiner>(random.Below(3));
  c.splits = {0};
  for (int64_t i = 0; i < c.samples; ++i) {
    for (int64_t n = random.Below(6); n > 0; --n) {
      c.ids.push_back(static_cast<int32_t>(random.Below(c.rows)));
      c.weights.push_back(static_cast<float>(random.Uniform() + 1));
    }
    c.splits.push_back(static_cast<int32_t>(c.ids.size()));
  }
  const auto fill = [&random](std::vector<float>* values, int64_t count) {
    values->resize(count);
    for (float& value : *values) value = static_cast<float>(random.Uniform());
  };
  fill(&c.table, c.rows * c.width);
  fill(&c.gradients, c.samples * c.width);
  return c;
}

CooFeature FeatureOf(const Case& c) {
  return {
      CooFeature::kRagged, c.splits.data(), c.ids.data(), static_cast<int64_t>(c.ids.size()),
      c.weights.data(),    false,           c.samples};
}

// Buffers that own what they hold.
struct Csr {
  std::vector<int32_t> pointers, samples, rows;
  std::vector<float> gains;
  int64_t minibatches;

  CsrView View(int64_t cores) const {
    return {pointers.data(),
            static_cast<int64_t>(pointers.size()),
            {samples.data(), rows.data(), gains.data(), static_cast<int64_t>(rows.size())},
            minibatches,
            cores,
            CsrLimits{}};
  }
};

// What one SparseCore's triples become. `counts` may be damaged on the way.
struct Sorted {
  std::vector<int32_t> samples, rows, counts;
  std::vector<float> gains;
};

Sorted Sort(const Case& c, const Triples& triples, int64_t begin, int64_t end) {
  const TriplesView all = triples.view();
  ShardedTriples merged;
  EXPECT_OK(
      MergeFeatures({{all.samples + begin, all.rows + begin, all.gains + begin, end - begin}},
                    {0}, c.cores, c.rows, &merged));
  Sorted sorted;
  const int64_t count = merged.triples.size();
  sorted.samples.resize(count);
  sorted.rows.resize(count);
  sorted.gains.resize(count);
  sorted.counts.resize(c.cores + 1);
  DealToShards(merged, c.samples / c.cores, sorted.counts.data(), sorted.samples.data(),
               sorted.rows.data(), sorted.gains.data());
  return sorted;
}

std::vector<CsrSource> SourcesOf(const std::vector<Sorted>& all) {
  std::vector<CsrSource> sources;
  for (const Sorted& one : all) {
    sources.push_back({{one.samples.data(), one.rows.data(), one.gains.data(),
                        static_cast<int64_t>(one.rows.size())},
                       one.counts.data(),
                       static_cast<int64_t>(one.counts.size())});
  }
  return sources;
}

Csr Room(const CsrShape& shape, int64_t cores, CsrBuffers* buffers) {
  Csr csr;
  csr.pointers.resize(shape.max_minibatches * cores * shape.stride());
  csr.samples.resize(shape.capacity);
  csr.rows.resize(shape.capacity);
  csr.gains.resize(shape.capacity);
  *buffers = {
      csr.pointers.data(), csr.samples.data(), csr.rows.data(), csr.gains.data(), 0, 0, 0, 0};
  return csr;
}

void IsClose(float got, double expected) {
  EXPECT_NEAR(got, expected, 1e-4 * (1 + std::abs(expected)));
}

// Activations and the table after a step of SGD, id by id.
void Compare(const Case& c, const Triples& triples, ExecutionContext& exec) {
  std::vector<float> activations(c.samples * c.width, 7.f);
  // Row r lies in shard r % cores at r / cores.
  const auto dealt = [&c](int64_t row) {
    return row % c.cores * (c.rows / c.cores) + row / c.cores;
  };
  std::vector<double> expected(activations.size()), updated(c.table.begin(), c.table.end());
  for (int64_t s = 0; s < c.samples; ++s) {
    double scale = 0;
    for (int32_t i = c.splits[s]; i < c.splits[s + 1]; ++i) {
      scale +=
          c.combiner == Combiner::kMean ? c.weights[i] : double{c.weights[i]} * c.weights[i];
    }
    if (c.combiner == Combiner::kSum) scale = 1;
    if (c.combiner == Combiner::kSqrtN) scale = std::sqrt(scale);
    for (int32_t i = c.splits[s]; i < c.splits[s + 1]; ++i) {
      const double gain = c.weights[i] / scale;
      const int64_t row = dealt(c.ids[i]);
      for (int64_t k = 0; k < c.width; ++k) {
        expected[s * c.width + k] += gain * c.table[row * c.width + k];
        updated[row * c.width + k] -= 0.5 * gain * c.gradients[s * c.width + k];
      }
    }
  }
  SumRows(triples, c.table.data(), c.width, Quantization{}, c.samples, activations.data(),
          exec);
  for (size_t i = 0; i < expected.size(); ++i) IsClose(activations[i], expected[i]);
  std::vector<float> table = c.table;
  float* const tables[] = {table.data()};
  Hyper hyper;
  hyper.learning_rate = 0.5f;
  EXPECT(
      !UpdateRows(triples, c.gradients.data(), c.width, Optimizer::kSgd, hyper, tables, exec));
  for (size_t i = 0; i < updated.size(); ++i) IsClose(table[i], updated[i]);
  // The others only have to stay inside.
  std::vector<float> first(c.table.size(), 0.5f), second(c.table.size(), 0.25f);
  float* const slots[] = {table.data(), first.data(), second.data()};
  for (const Optimizer optimizer : {Optimizer::kAdagrad, Optimizer::kAdam}) {
    EXPECT(!UpdateRows(triples, c.gradients.data(), c.width, optimizer, hyper, slots, exec));
  }
}

int32_t Wild(Random& random) {
  const int32_t values[] = {
      -1, 0, 1, 7, 8, 9, 100, 1 << 20, kSparseCorePad, std::numeric_limits<int32_t>::min()};
  return values[random.Below(std::size(values))];
}

void Damage(std::vector<int32_t>* values, Random& random) {
  if (values->empty()) return;
  if (random.Below(4) == 0) {
    values->resize(random.Below(static_cast<int64_t>(values->size()) + 1));
    values->shrink_to_fit();
  } else {
    (*values)[random.Below(static_cast<int64_t>(values->size()))] = Wild(random);
  }
}

// Whatever is damaged, what is not refused is inside.
void Break(Case c, const CsrShape& shape, std::vector<Sorted> sorted, Csr csr, Random& random,
           ExecutionContext& exec) {
  switch (random.Below(3)) {
    case 0: {
      std::vector<int32_t>& which = random.Below(2) ? c.splits : c.ids;
      if (!which.empty()) {
        which[random.Below(static_cast<int64_t>(which.size()))] = Wild(random);
      }
      Triples triples;
      const auto refused = FeatureToTriples(FeatureOf(c), c.combiner, &triples);
      for (int64_t i = 0; refused.ok() && i < triples.size(); ++i) {
        EXPECT(triples.samples[i] >= 0 && triples.samples[i] < c.samples);
      }
      return;
    }
    case 1: {
      Damage(&sorted[random.Below(c.cores)].counts, random);
      const int64_t splits = random.Below(3) ? 0 : static_cast<int64_t>(random.Next());
      const std::vector<CsrSource> sources = SourcesOf(sorted);
      if (!CheckCsrSources(shape, splits, sources).ok()) return;
      CsrBuffers buffers;
      const Csr room = Room(shape, c.cores, &buffers);
      static_cast<void>(PackCsr(shape, splits, random.Below(2), sources, &buffers));
      return;
    }
    default: {
      Damage(random.Below(2)   ? &csr.pointers
             : random.Below(2) ? &csr.samples
                               : &csr.rows,
             random);
      // Views of one length, as their kernel checks.
      const size_t size = std::min(csr.samples.size(), csr.rows.size());
      csr.samples.resize(size);
      csr.rows.resize(size);
      csr.gains.resize(size);
      if (random.Below(4) == 0) csr.minibatches = Wild(random);
      Triples triples;
      if (!ReadCsr(csr.View(c.cores), c.samples, c.rows, &triples).ok()) return;
      std::vector<float> activations(c.samples * c.width);
      SumRows(triples, c.table.data(), c.width, Quantization{true, -1, 1, 5}, c.samples,
              activations.data(), exec);
      return;
    }
  }
}

void Run(Random& random, Pool& pool) {
  const Case c = Draw(random);
  PoolContext exec(pool);
  Triples triples;
  EXPECT_OK(FeatureToTriples(FeatureOf(c), c.combiner, &triples));
  const CooStacking stacking{c.samples, c.cores, 0, 0, 0, c.cores, c.samples};
  EXPECT_OK(CheckStacking(stacking));
  std::vector<int64_t> begins;
  EXPECT_OK(StackTriples(stacking, &triples, &begins));
  std::vector<Sorted> sorted(c.cores);
  for (int64_t core = 0; core < c.cores; ++core) {
    sorted[core] = Sort(c, triples, begins[core], begins[core + 1]);
  }
  // Each of the runs may need padding.
  const int64_t most = triples.size() + 8 * c.cores * c.cores;
  const CsrShape shape{c.cores, 1 + random.Below(3), (most + 7) / 8 * 8};
  const std::vector<CsrSource> sources = SourcesOf(sorted);
  EXPECT_OK(CheckCsrSources(shape, 0, sources));
  CsrBuffers buffers;
  Csr csr = Room(shape, c.cores, &buffers);
  EXPECT_OK(PackCsr(shape, 0, false, sources, &buffers));
  EXPECT_EQ(buffers.dropped, 0);
  csr.minibatches = buffers.minibatches;
  Triples read;
  EXPECT_OK(ReadCsr(csr.View(c.cores), c.samples, c.rows, &read));
  Compare(c, read, exec);
  for (int i = 0; i < 20; ++i) Break(c, shape, sorted, csr, random, exec);
}

TEST(Formats, RandomBatches) {
  Pool pool(4);
  Random random{testing::Seed()};
  embedding::ForEachIsa([&] {
    for (int64_t round = 0; round < testing::Rounds(40); ++round) Run(random, pool);
  });
}

// Any numbers at all for where a feature lies: refused, or positions in int32.
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
  // What is kept of each SparseCore takes memory.
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

TEST(Formats, WhateverStackingComesIsChecked) {
  Random random{testing::Seed()};
  for (int64_t round = 0; round < testing::Rounds(5000); ++round) StackingIsChecked(random);
}

}  // namespace
}  // namespace opwright::sparsecore
