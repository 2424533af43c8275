// Tests the CPU store: reads return what was written, and several threads compute the same as
// one.
#include "embedding/store.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "base/testing/huge_pages.h"
#include "embedding/testing/steps.h"

namespace opwright::embedding {
namespace {

Configuration TwoTables() {
  Configuration made;
  made.tables.resize(2);
  made.tables[0].name = "t";
  made.tables[0].rows = 11;
  made.tables[0].dimension = 5;
  made.tables[0].optimizer = Optimizer::kAdam;
  made.tables[0].hyper = SomeHyper(Optimizer::kAdam);
  made.tables[1].name = "u";
  made.tables[1].rows = 6;
  made.tables[1].dimension = 3;
  made.features = {{"f", 0, {2}}, {"g", 1, {4}}, {"h", 0, {3}}};
  made.mode = Mode::kTraining;
  EXPECT_OK(Complete(&made));
  return made;
}

// Writes and reads shards of weights and slots. The slots are next to the weights or in a
// separate array, depending on the optimizer, the dimension and the size of the tables.
void ShardsAndSlotsAreSeparate(Optimizer optimizer, int64_t dimension, bool cache_resident) {
  Pool pool(2);
  PoolContext exec(pool);
  Configuration configuration = TwoTables();
  configuration.tables[0].optimizer = optimizer;
  configuration.tables[0].dimension = dimension;
  if (!cache_resident) {
    configuration.tables.push_back(configuration.tables[1]);
    configuration.tables[2].rows = 8 << 20;  // They take no memory, as they are never written.
  }
  const auto store = MakeCpuTableStore();
  EXPECT_OK(store->Allocate(configuration));
  // A different number for each element.
  const auto value = [](int64_t t, int64_t slot, int64_t row, int64_t k) {
    return static_cast<float>(((t * 10 + slot + 1) * 100 + row) * 10 + k);
  };
  for (const bool writes : {true, false}) {
    for (int64_t t = 0; t < 2; ++t) {
      const TableConfig& table = configuration.tables[static_cast<size_t>(t)];
      for (int64_t slot = -1; slot < table.slots(); ++slot) {
        for (int64_t shard = 0; shard < 3; ++shard) {
          // Shards are written by remainder and read by division.
          const Shard rows = ShardOf(table.rows, 3, shard, writes);
          const int64_t d = table.columns(slot);
          std::vector<float> values(static_cast<size_t>(rows.count * d));
          if (!writes) EXPECT_OK(store->Read(&exec, t, slot, rows, values.data()));
          for (int64_t i = 0; i < rows.count * d; ++i) {
            const float one = value(t, slot, rows.first + i / d * rows.step, i % d);
            float& at = values[static_cast<size_t>(i)];
            if (writes) at = one;
            EXPECT_EQ(at, one);
          }
          if (writes) EXPECT_OK(store->Write(&exec, t, slot, rows, values.data()));
        }
      }
    }
  }
}

TEST(Store, ShardsAndSlotsAreSeparate) {
  for (const OptimizerTraits& traits : kOptimizerRegistry) {
    for (const int64_t dimension : {5, 80}) {
      for (const bool cache_resident : {true, false}) {
        ShardsAndSlotsAreSeparate(traits.optimizer, dimension, cache_resident);
      }
    }
  }
}

TEST(Store, WriteReplacesSmallPagesByHugeOnes) {
  if (!KernelReplacesSmallPages()) {
    std::puts("  not here: this kernel makes no huge page of small ones");
    return;
  }
  Pool pool(1);
  PoolContext exec(pool);
  Configuration configuration;
  configuration.tables.resize(1);
  TableConfig& table = configuration.tables[0];
  table.name = "t";
  table.rows = 8 * int64_t{kHugePage} / int64_t{sizeof(float)} / 64;
  table.dimension = 64;
  table.optimizer = Optimizer::kSgd;
  configuration.features = {{"f", 0, {1}}};
  configuration.mode = Mode::kTraining;
  EXPECT_OK(Complete(&configuration));
  const auto store = MakeCpuTableStore();
  EXPECT_OK(store->Allocate(configuration));
  const std::vector<float> values(static_cast<size_t>(table.rows * table.dimension), 1.f);
  const Shard all = ShardOf(table.rows, 1, 0, false);
  const int64_t before = BytesInHugePages();
  prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  const Status written = store->Write(&exec, 0, -1, all, values.data());
  const int64_t without = BytesInHugePages();
  prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
  EXPECT_OK(written);
  EXPECT_EQ(without, before);
  EXPECT_OK(store->Write(&exec, 0, -1, all, values.data()));
  EXPECT(BytesInHugePages() > before);
}

TEST(Store, NewTablesAreZero) {
  Pool pool(1);
  PoolContext exec(pool);
  const Configuration configuration = TwoTables();
  const auto store = MakeCpuTableStore();
  EXPECT_OK(store->Allocate(configuration));
  std::vector<float> values(11 * 5, 1.f);
  EXPECT_OK(store->Read(&exec, 0, 1, {11, 0, 1}, values.data()));
  for (const float x : values) EXPECT_EQ(x, 0.f);
}

TEST(Store, TooLargeATableIsRefused) {
  Configuration configuration = TwoTables();
  configuration.tables[1].rows = int64_t{1} << 44;
  EXPECT_ERROR(MakeCpuTableStore()->Allocate(configuration), StatusCode::kResourceExhausted,
               "table 1 ('u'): 17592186044416 rows of 3 float32 with 0 slots take 196608.000000"
               " GiB, more than there is");
}

TEST(Store, BadGradientsAreNamed) {
  Pool pool(2);
  PoolContext exec(pool);
  const Configuration configuration = TwoTables();
  const auto store = MakeCpuTableStore();
  EXPECT_OK(store->Allocate(configuration));
  std::vector<float> f(2 * 5, 1.f), g(4 * 3, 1.f), h(3 * 5, 1.f);
  const std::vector<const float*> gradients = {f.data(), g.data(), h.data()};
  EXPECT_OK(store->CheckGradients(&exec, gradients));
  g[7] = -HUGE_VALF;
  EXPECT_ERROR(store->CheckGradients(&exec, gradients), StatusCode::kInvalidArgument,
               "feature 1 ('g') of table 1 ('u'): gradients must be finite, that of sample 2, "
               "column 1 is -inf");
}

PreparedRef Prepared(TableStore& store, ExecutionContext& exec, const Batch& batch) {
  return Value(store.Prepare(&exec, std::make_shared<const Batch>(Clone(batch))));
}

// A batch with so many ids that several threads share it. Many of the ids are for the same row.
struct Large {
  explicit Large(Random& random, RowDtype dtype = RowDtype::kFloat32, bool every_row = false) {
    configuration.tables.resize(1);
    TableConfig& table = configuration.tables[0];
    table.name = "t";
    table.rows = 5000;
    table.dimension = 3;
    table.optimizer = Optimizer::kAdagrad;
    table.dtype = dtype;
    table.every_row = every_row;
    table.hyper.learning_rate = 0.1f;
    table.hyper.decay = 0.01f;
    table.accumulate = random.Below(2);
    configuration.features = {{"f", 0, {7000}}, {"g", 0, {500}}};
    configuration.mode = Mode::kTraining;
    EXPECT_OK(Complete(&configuration));
    for (int64_t f = 0; f < 2; ++f) {
      Input input = DrawInput(random, configuration, f);
      for (int64_t& id : input.ids) {
        if (random.Below(4) == 0) id = 17;
      }
      AddBags(configuration, f, input, Combiner::kSqrtN, &batch);
      gradients.emplace_back(static_cast<size_t>(configuration.features[f].samples() * 3));
      for (float& g : gradients.back()) g = static_cast<float>(random.Uniform());
    }
  }

  // The weights and slots of the table after an update, and then the outputs of a lookup.
  std::vector<float> Update(int threads) const {
    Pool pool(threads);
    PoolContext exec(pool);
    const auto store = MakeCpuTableStore();
    EXPECT_OK(store->Allocate(configuration));
    const Shard rows{5000, 0, 1};
    std::vector<float> ones(5000 * 3, 1.f);
    EXPECT_OK(store->Write(&exec, 0, 0, rows, ones.data()));
    const PreparedRef prepared = Prepared(*store, exec, batch);
    EXPECT_OK(store->Update(
        &exec, {{prepared.get(), {gradients[0].data(), gradients[1].data()}}}, {0.1f}));
    std::vector<float> all(2 * 5000 * 3 + 7500 * 3);
    EXPECT_OK(store->Read(&exec, 0, -1, rows, all.data()));
    EXPECT_OK(store->Read(&exec, 0, 0, rows, all.data() + 5000 * 3));
    float* const out = all.data() + 2 * 5000 * 3;
    float* const outputs[] = {out, out + 7000 * 3};
    EXPECT_OK(store->Lookup(&exec, prepared.get(), outputs));
    return all;
  }

  Configuration configuration;
  Batch batch;
  std::vector<std::vector<float>> gradients;
};

TEST(Store, NumberOfThreadsDoesNotChangeBits) {
  Random random{testing::Seed()};
  for (int64_t round = 0; round < testing::Rounds(3); ++round) {
    for (const RowDtype dtype : kRowDtypes) {
      const Large large(random, dtype, random.Below(2));
      const std::vector<float> alone = large.Update(1);
      for (const int threads : {2, 5}) EXPECT(large.Update(threads) == alone);
    }
  }
}

// Weights of narrow rows are read as they were stored, and stored again the same. Slots are not
// rounded.
TEST(Store, NarrowRowsAreReadAsStored) {
  Pool pool(2);
  PoolContext exec(pool);
  Random random{testing::Seed()};
  for (const RowDtype dtype : kRowDtypes) {
    for (const int64_t dimension : {1, 5, 80}) {
      for (const bool cache_resident : {true, false}) {
        Configuration configuration = TwoTables();
        configuration.tables[0].dimension = dimension;
        configuration.tables[0].dtype = dtype;
        if (!cache_resident) configuration.tables[1].rows = 8 << 20;
        const auto store = MakeCpuTableStore();
        EXPECT_OK(store->Allocate(configuration));
        const Shard shards[] = {{6, 0, 2}, {5, 1, 2}};
        for (int round = 0; round < 2; ++round) {
          for (const Shard& rows : shards) {
            std::vector<float> values[3], found(static_cast<size_t>(rows.count * dimension));
            for (int64_t slot = -1; slot < 2; ++slot) {
              std::vector<float>& one = values[slot + 1];
              one.resize(found.size());
              for (float& x : one) x = static_cast<float>(random.Uniform());
              EXPECT_OK(store->Write(&exec, 0, slot, rows, one.data()));
            }
            for (int64_t slot = -1; slot < 2; ++slot) {
              EXPECT_OK(store->Read(&exec, 0, slot, rows, found.data()));
              const float bound = slot >= 0 || dtype == RowDtype::kFloat32 ? 0 : 1 / 250.f;
              for (size_t i = 0; i < found.size(); ++i) {
                EXPECT_NEAR(found[i], values[slot + 1][i], bound);
              }
              if (slot >= 0) continue;
              std::vector<float> again(found.size());
              EXPECT_OK(store->Write(&exec, 0, slot, rows, found.data()));
              EXPECT_OK(store->Read(&exec, 0, slot, rows, again.data()));
              // The scale of an int8 row may differ in its last bits.
              const float same = dtype == RowDtype::kInt8 ? 1e-6f : 0;
              for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(again[i], found[i], same);
            }
          }
        }
      }
    }
  }
}

// A table of narrow rows that is too large for memory is described by its own bytes.
TEST(Store, TooLargeANarrowTableIsRefused) {
  Configuration configuration = TwoTables();
  configuration.tables[1].rows = int64_t{1} << 44;
  configuration.tables[1].dtype = RowDtype::kBfloat16;
  EXPECT_ERROR(MakeCpuTableStore()->Allocate(configuration), StatusCode::kResourceExhausted,
               "table 1 ('u'): 17592186044416 rows of 3 bfloat16 with 0 slots take "
               "131072.000000 GiB, more than there is");
}

TEST(Store, ManyIdsAreSummedByRow) {
  Random random{testing::Seed()};
  for (int64_t round = 0; round < testing::Rounds(2); ++round) {
    const Large large(random);
    Model model(large.configuration);
    std::fill_n(model.At(0, 0, 0), 5000 * 3, 1.f);
    model.Update<std::vector<float>>({&large.batch}, {large.gradients}, 0);
    const std::vector<float> found = large.Update(4);
    for (int64_t i = 0; i < 5000 * 3; ++i) {
      EXPECT(Near(model.At(0, -1, 0)[i], found[static_cast<size_t>(i)]));
      EXPECT(Near(model.At(0, 0, 0)[i], found[static_cast<size_t>(5000 * 3 + i)]));
    }
    const std::vector<float> out = model.Lookup(1, large.batch.features[1]);
    for (size_t i = 0; i < out.size(); ++i) {
      EXPECT(Near(out[i], found[2 * 5000 * 3 + 7000 * 3 + i]));
    }
  }
}

// A lookup that began ahead of a write is made again after the write. A lookup that began ahead
// is stopped if its batch is never received, or is received with other outputs.
TEST(Store, LookupsThatBeganAheadSeeLaterWrites) {
  Pool pool(3);
  PoolContext exec(pool);
  Random random{testing::Seed()};
  const Large large(random);
  for (int64_t round = 0; round < testing::Rounds(40); ++round) {
    auto store = MakeCpuTableStore(/*few_bytes=*/0);
    EXPECT_OK(store->Allocate(large.configuration));
    float value = 1;
    const auto write = [&] {
      const std::vector<float> values(5000 * 3, ++value);
      EXPECT_OK(store->Write(&exec, 0, -1, {5000, 0, 1}, values.data()));
    };
    std::vector<float> out(7500 * 3), other(7500 * 3);
    float* const others[] = {other.data(), other.data() + 7000 * 3};
    write();
    auto buffers = std::make_shared<const OutputBuffers>(
        std::vector<float*>{out.data(), out.data() + 7000 * 3});
    const std::weak_ptr<const OutputBuffers> released = buffers;
    const PreparedRef begun =
        store->LookUpAhead(&exec, std::make_shared<const Batch>(Clone(large.batch)),
                           [&] { return std::move(buffers); });
    EXPECT(begun != nullptr);
    const bool writes = random.Below(2), elsewhere = random.Below(3) == 0;
    if (writes) write();
    if (random.Below(8) == 0) {  // The store is destroyed before the batch is received.
      store.reset();
      continue;
    }
    const std::vector<float*> to =
        elsewhere ? std::vector<float*>{others[0], others[1]} : begun->outputs()->data();
    EXPECT_OK(store->Lookup(&exec, begun.get(), to.data()));
    EXPECT(begun->outputs() == nullptr);
    EXPECT(released.expired());
    for (int64_t f = 0; f < 2; ++f) {
      const Bags& bags = large.batch.features[static_cast<size_t>(f)];
      for (int64_t s = 0; s < bags.samples; ++s) {
        const double count = static_cast<double>(bags.offsets[s + 1] - bags.offsets[s]);
        double sum = 0;
        for (int64_t i = bags.offsets[s]; i < bags.offsets[s + 1]; ++i) {
          sum += bags.per_sample_weights ? bags.per_sample_weights[i] : 1.0;
        }
        const double scale = bags.scales ? bags.scales[s] : 1.0;
        const float found = to[static_cast<size_t>(f)][s * 3];
        EXPECT(count > 0 ? Near(static_cast<float>(value * sum * scale), found) : found == 0);
      }
    }
    // The second lookup of the batch is like that of any other batch.
    EXPECT_OK(store->Lookup(&exec, begun.get(), others));
    EXPECT_EQ(other[0], to[0][0]);
  }
}

// If every_row is set, rows that were not looked up are updated too.
TEST(Store, EveryRowUpdatesRowsWithoutLookups) {
  Pool pool(3);
  for (const bool every_row : {true, false}) {
    PoolContext exec(pool);
    Configuration configuration = TwoTables();
    configuration.tables[0].every_row = every_row;
    const auto store = MakeCpuTableStore();
    EXPECT_OK(store->Allocate(configuration));
    const Shard rows{11, 0, 1};
    std::vector<float> momenta(11 * 5, 1.f), found(11 * 5);
    EXPECT_OK(store->Write(&exec, 0, 0, rows, momenta.data()));
    const std::vector<std::vector<int64_t>> ids = {{3, 10}, {0, 1, 2, 3}, {3, 0, 3}};
    Batch batch;
    std::vector<std::vector<float>> zeros;
    std::vector<const float*> gradients;
    for (int64_t f = 0; f < 3; ++f) {
      Input input;
      input.ids = ids[static_cast<size_t>(f)];
      for (size_t i = 0; i <= input.ids.size(); ++i) {
        input.splits.push_back(static_cast<int64_t>(i));
      }
      AddBags(configuration, f, input, Combiner::kSum, &batch);
      zeros.emplace_back(input.ids.size() * 5);
    }
    for (const auto& one : zeros) gradients.push_back(one.data());
    const PreparedRef prepared = Prepared(*store, exec, batch);
    EXPECT_OK(store->Update(&exec, {{prepared.get(), gradients}}, {0.1f, 0.1f}));
    EXPECT_OK(store->Read(&exec, 0, 0, rows, found.data()));
    for (int64_t row = 0; row < 11; ++row) {
      const bool looked_up = row == 3 || row == 10 || row == 0;
      EXPECT_EQ(found[static_cast<size_t>(row * 5 + 2)], looked_up || every_row ? 0.5f : 1.f);
    }
  }
}

}  // namespace
}  // namespace opwright::embedding
