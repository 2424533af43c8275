// What libFuzzer draws, as arguments of the parts of core that read sizes and positions from
// outside: configurations, bags, and the formats of SparseCores. Sanitizers and the checks
// here say what is wrong.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "base/testing/pool.h"
#include "embedding/batch.h"
#include "embedding/spec.h"
#include "sparsecore/coo.h"
#include "sparsecore/csr.h"
#include "sparsecore/minibatches.h"
#include "sparsecore/sort.h"

namespace {

using namespace opwright;
using namespace opwright::embedding;
using namespace opwright::sparsecore;
using Bytes = FuzzedDataProvider;

void Expect(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "must hold: %s\n", what);
  std::abort();
}

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// Small, or a boundary, or anything.
int64_t Size(Bytes& bytes, int64_t least = std::numeric_limits<int64_t>::min()) {
  constexpr int64_t kBoundaries[] = {
      0,         -1,        1 << 20, (1ll << 31) - 1, 1ll << 31,    1ll << 32,   1ll << 56,
      1ll << 61, 1ll << 62, kMax,    kMax - 1,        -(1ll << 31), -(1ll << 62)};
  const int kind = bytes.ConsumeIntegralInRange(0, 7);
  const int64_t value = kind < 5   ? bytes.ConsumeIntegralInRange(0, 9)
                        : kind < 7 ? bytes.PickValueInArray(kBoundaries)
                                   : bytes.ConsumeIntegral<int64_t>();
  return std::max(value, least);
}

std::vector<int32_t> Ints(Bytes& bytes, size_t count) {
  std::vector<int32_t> values(count);
  for (int32_t& value : values) {
    value = bytes.ConsumeIntegralInRange(0, 7) ? bytes.ConsumeIntegralInRange(0, 9)
                                               : bytes.ConsumeIntegral<int32_t>();
  }
  return values;
}

std::vector<float> Floats(Bytes& bytes, size_t count) {
  std::vector<float> values(count);
  for (float& value : values) {
    value = bytes.ConsumeBool() ? 1.0f : bytes.ConsumeFloatingPoint<float>();
  }
  return values;
}

size_t Few(Bytes& bytes) { return bytes.ConsumeIntegralInRange<size_t>(0, 6); }

// ---- Configurations and bags.

Configuration DrawConfiguration(Bytes& bytes) {
  Configuration configuration;
  configuration.tables.resize(Few(bytes));
  for (size_t i = 0; i < configuration.tables.size(); ++i) {
    TableConfig& table = configuration.tables[i];
    table.name = std::to_string(i);
    table.rows = Size(bytes);
    table.dimension = Size(bytes);
    table.features = bytes.ConsumeIntegralInRange(0, 3) ? Size(bytes) : 0;
    table.dynamic_rate = bytes.ConsumeBool();
    table.tag = bytes.ConsumeIntegralInRange(-1, 3);
    if (bytes.ConsumeBool()) table.hyper.learning_rate = bytes.ConsumeFloatingPoint<float>();
  }
  if (bytes.ConsumeBool()) {
    configuration.features.resize(Few(bytes));
    for (FeatureConfig& feature : configuration.features) {
      feature.table = bytes.ConsumeIntegralInRange(-1, 6);
      feature.shape.resize(Few(bytes));
      for (int64_t& size : feature.shape) size = Size(bytes);
    }
  } else {
    configuration.batch = Size(bytes);
  }
  configuration.hosts = Size(bytes);
  configuration.cores = Size(bytes);
  return configuration;
}

Lookups DrawLookups(Bytes& bytes, std::vector<std::vector<int32_t>>* ints,
                    std::vector<std::vector<float>>* floats) {
  using Form = Lookups::Form;
  Lookups lookups;
  lookups.form =
      bytes.PickValueInArray({Form::kDense, Form::kIndices, Form::kSplits, Form::kSamples});
  const size_t count = bytes.ConsumeIntegralInRange<size_t>(0, 20);
  size_t where =
      lookups.form == Form::kSplits ? bytes.ConsumeIntegralInRange<size_t>(1, 20) : count;
  if (lookups.form == Form::kIndices) {
    lookups.rank = bytes.ConsumeIntegralInRange(0, 4);
    where *= static_cast<size_t>(lookups.rank);
  }
  if (lookups.form == Form::kDense) where = 0;
  ints->push_back(Ints(bytes, where));
  lookups.where = {ints->back().data(), false, static_cast<int64_t>(where)};
  ints->push_back(Ints(bytes, count));
  lookups.ids = {ints->back().data(), false, static_cast<int64_t>(count)};
  if (lookups.form != Form::kDense && bytes.ConsumeBool()) {
    floats->push_back(Floats(bytes, count));
    lookups.weights = {floats->back().data(), false, static_cast<int64_t>(count)};
  }
  return lookups;
}

void TryBags(Bytes& bytes) {
  Configuration configuration = DrawConfiguration(bytes);
  if (!Complete(&configuration).ok()) return;
  Expect(!configuration.features.empty(), "a good configuration has features");
  const int64_t feature =
      bytes.ConsumeIntegralInRange<int64_t>(0, configuration.features.size() - 1);
  if (configuration.features[feature].samples() > 1 << 16) return;  // Memory is another's.
  std::vector<std::vector<int32_t>> ints;
  std::vector<std::vector<float>> floats;
  ints.reserve(64);
  floats.reserve(64);
  const auto combiner =
      bytes.PickValueInArray({Combiner::kSum, Combiner::kMean, Combiner::kSqrtN});
  StatusOr<Bags> made = OkStatus();
  if (!configuration.by_num_features || bytes.ConsumeBool()) {
    const Lookups lookups = DrawLookups(bytes, &ints, &floats);
    made = MakeBags(configuration, feature, lookups, combiner);
  } else {
    // As the ops place them: side by side, as many features as the table has.
    const int64_t stride = configuration.tables[configuration.features[feature].table].features;
    std::vector<Lookups> inputs(1 + Few(bytes));
    std::vector<Placement> places(inputs.size());
    int64_t used = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = DrawLookups(bytes, &ints, &floats);
      Placement& place = places[i];
      place.stride = stride;
      place.first = used;
      const int64_t left = stride - used - static_cast<int64_t>(inputs.size() - i - 1);
      if (left < 1) return;
      const int64_t mine =
          i + 1 == inputs.size() ? left : bytes.ConsumeIntegralInRange<int64_t>(1, left);
      if (bytes.ConsumeBool()) place.sequence = mine;
      place.count = place.sequence ? 1 : mine;
      used += mine;
    }
    made = MakeBags(configuration, feature, inputs, places, combiner);
  }
  if (!made.ok()) return;
  const Bags& bags = *made;
  const int64_t rows = configuration.tables[configuration.features[feature].table].rows;
  Expect(bags.samples == configuration.features[feature].samples(), "bags of all samples");
  for (int64_t i = 0; i < bags.samples; ++i) {
    Expect(bags.offsets[i] <= bags.offsets[i + 1], "bags ascend");
  }
  for (int64_t i = 0; i < bags.count(); ++i) {
    Expect(bags.indices[i] >= 0 && bags.indices[i] < rows, "ids are rows");
  }
}

// ---- SparseCores.

Triples DrawTriples(Bytes& bytes) {
  Triples triples;
  const size_t count = bytes.ConsumeIntegralInRange<size_t>(0, 20);
  for (UninitializedVector<int32_t>* const numbers : {&triples.samples, &triples.rows}) {
    const std::vector<int32_t> drawn = Ints(bytes, count);
    numbers->assign(drawn.begin(), drawn.end());
  }
  const std::vector<float> gains = Floats(bytes, count);
  triples.gains.assign(gains.begin(), gains.end());
  return triples;
}

void TryFeature(Bytes& bytes) {
  const size_t count = bytes.ConsumeIntegralInRange<size_t>(0, 20);
  CooFeature feature{};
  feature.form =
      bytes.PickValueInArray({CooFeature::kDense, CooFeature::kSparse, CooFeature::kRagged});
  feature.sample_count = bytes.ConsumeIntegralInRange(1, 20);
  if (feature.form == CooFeature::kDense) feature.sample_count = std::max<size_t>(count, 1);
  const std::vector<int32_t> indices =
      Ints(bytes, feature.form == CooFeature::kSparse ? 2 * count : feature.sample_count + 1);
  const std::vector<int32_t> ids = Ints(bytes, count);
  const std::vector<float> weights = Floats(bytes, count + 1);
  feature.indices = indices.data();
  feature.ids = ids.data();
  feature.id_count = static_cast<int64_t>(count);
  feature.weights = weights.data();
  feature.one_weight = bytes.ConsumeBool();
  Triples triples;
  if (!FeatureToTriples(feature, bytes.PickValueInArray({Combiner::kSum, Combiner::kMean}),
                        &triples)
           .ok()) {
    return;
  }
  CooStacking stacking{};
  stacking.sample_count = feature.sample_count;
  stacking.sc_per_chip = bytes.ConsumeIntegralInRange(1, 8);
  stacking.row_offset = Size(bytes, 0);
  stacking.col_offset = Size(bytes, 0);
  stacking.col_shift = Size(bytes, 0);
  stacking.shards = Size(bytes, 1);
  stacking.stacked_samples = Size(bytes, 1);
  if (!CheckStacking(stacking).ok()) return;
  const UninitializedVector<int32_t> before = triples.rows;
  std::vector<int64_t> begins;
  if (!StackTriples(stacking, &triples, &begins).ok()) return;
  for (size_t i = 0; i < before.size(); ++i) {
    const __int128 id = before[i], shards = stacking.shards;
    const __int128 column =
        (id + stacking.col_shift) % shards + id - id % shards + stacking.col_offset;
    Expect(column == triples.rows[i], "columns are what integers without an end say");
  }
}

void TrySort(Bytes& bytes) {
  std::vector<Triples> drawn(1 + Few(bytes));
  std::vector<TriplesView> views;
  std::vector<int32_t> offsets;
  for (Triples& one : drawn) {
    one = DrawTriples(bytes);
    views.push_back(one.view());
    offsets.push_back(bytes.ConsumeIntegralInRange(0, 2));
  }
  const int64_t shards = int64_t{1} << bytes.ConsumeIntegralInRange(0, 6);
  ShardedTriples merged;
  Pool pool(1);
  PoolContext exec(pool);
  if (!MergeFeatures(views, offsets, shards, Size(bytes, 1), &merged, exec).ok()) return;
  const size_t size = static_cast<size_t>(merged.triples.size());
  std::vector<int32_t> counts(shards + 1), samples(size), rows(size);
  std::vector<float> gains(size);
  const int64_t own = bytes.ConsumeIntegralInRange(1, 50);
  PartitionByShard(merged, own, counts.data(), samples.data(), rows.data(), gains.data());
  Expect(counts.back() == static_cast<int32_t>(size), "all triples are dealt");
  for (const int32_t sample : samples) Expect(sample >= 0 && sample < own, "own samples");
}

void TryMinibatches(Bytes& bytes) {
  const Triples triples = DrawTriples(bytes);
  ChipShape shape{};
  shape.sparse_cores = bytes.ConsumeIntegralInRange(1, 3);
  shape.shards = shape.sparse_cores * bytes.ConsumeIntegralInRange(1, 3);
  shape.samples = shape.sparse_cores * bytes.ConsumeIntegralInRange(1, 5);
  shape.vocabulary = bytes.ConsumeBool() ? bytes.ConsumeIntegralInRange(1, 200) : kMaxInt32;
  Pool pool(1);
  PoolContext exec(pool);
  std::vector<ShardedTriples> of_cores;
  if (!SortChip(shape, triples.view(), &of_cores, exec).ok()) return;
  size_t size = 0;
  for (const ShardedTriples& one : of_cores) size += one.triples.samples.size();
  std::vector<int32_t> counts(shape.counts()), samples(size), rows(size);
  std::vector<float> gains(size);
  const CsrLimits limits{Size(bytes, 0), Size(bytes, 0)};
  const ChipDemand demand = WriteChip(shape, of_cores, limits, counts.data(), samples.data(),
                                      rows.data(), gains.data());
  Expect(demand.splits >= 0, "a mask has 63 bits");
  Expect(counts.back() == static_cast<int32_t>(size), "all triples are counted");
  for (const int32_t row : rows) Expect(row < shape.shard_rows(), "rows are a shard's");
}

void TryBuffers(Bytes& bytes) {
  CsrShape shape{};
  shape.shards = bytes.ConsumeIntegralInRange(1, 4);
  shape.max_minibatches = bytes.ConsumeIntegralInRange(1, 4);
  shape.capacity = bytes.ConsumeIntegralInRange(0, 64) * 4;
  std::vector<Triples> drawn(1 + bytes.ConsumeIntegralInRange(0, 3));
  std::vector<std::vector<int32_t>> counts;
  std::vector<CsrSource> sources;
  const bool divided = bytes.ConsumeBool();
  for (Triples& one : drawn) {
    one = DrawTriples(bytes);
    counts.emplace_back(shape.shards * (divided ? kDivisions : 1) + 1);
    int32_t last = 0;
    for (int32_t& count : counts.back()) {
      if (bytes.ConsumeIntegralInRange(0, 3) == 0) last += bytes.ConsumeIntegralInRange(-1, 5);
      count = last;
    }
  }
  for (size_t i = 0; i < drawn.size(); ++i) {
    sources.push_back(
        {drawn[i].view(), counts[i].data(), static_cast<int64_t>(counts[i].size())});
  }
  const int64_t splits = bytes.ConsumeBool() ? 0 : Size(bytes);
  if (!CheckCsrSources(shape, splits, sources).ok()) return;
  const size_t pointers = shape.max_minibatches * sources.size() * shape.stride();
  std::vector<int32_t> row_pointers(pointers), samples(shape.capacity), rows(shape.capacity);
  std::vector<float> gains(shape.capacity);
  CsrBuffers buffers{};
  buffers.row_pointers = row_pointers.data();
  buffers.samples = samples.data();
  buffers.rows = rows.data();
  buffers.gains = gains.data();
  PackCsr(shape, splits, sources, &buffers);
  Expect(buffers.ids_size <= shape.capacity, "what is used is there");
}

void TryLookup(Bytes& bytes) {
  const int64_t cores = int64_t{1} << bytes.ConsumeIntegralInRange(0, 3);
  const int64_t samples = cores * bytes.ConsumeIntegralInRange(0, 8);
  const int64_t table_rows = cores * bytes.ConsumeIntegralInRange(0, 8);
  const Triples triples = DrawTriples(bytes);
  const std::vector<int32_t> pointers =
      Ints(bytes, bytes.ConsumeIntegralInRange<size_t>(0, 64));
  CsrView csr{pointers.data(), static_cast<int64_t>(pointers.size()),
              triples.view(),  bytes.ConsumeIntegral<int32_t>() % 4,
              cores,           {}};
  if (bytes.ConsumeBool()) csr.minibatches = Size(bytes);
  if (bytes.ConsumeBool()) csr.limits = {Size(bytes), Size(bytes)};
  Triples read;
  Pool pool(1);
  PoolContext exec(pool);
  if (!ReadCsr(csr, samples, table_rows, &read, exec).ok()) return;
  for (int64_t i = 0; i < read.size(); ++i) {
    Expect(read.samples[i] >= 0 && read.samples[i] < samples, "samples are the device's");
    Expect(read.rows[i] >= 0 && read.rows[i] < table_rows, "rows are the table's");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes(data, size);
  constexpr void (*kTries[])(Bytes&) = {TryBags,    TryBags,   TryFeature,    TrySort,
                                        TryBuffers, TryLookup, TryMinibatches};
  try {
    bytes.PickValueInArray(kTries)(bytes);
  } catch (const std::bad_alloc&) {  // The ops' to tell.
  }
  return 0;
}
