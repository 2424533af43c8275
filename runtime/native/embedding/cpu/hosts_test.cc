// Tests tables that are sharded over several hosts. They must be equal to the tables of one
// host that has the batches of all hosts.
#include "embedding/cpu/hosts.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "embedding/testing/hosts.h"
#include "embedding/testing/steps.h"
#include "embedding/testing/two_engines.h"

namespace opwright::embedding {
namespace {

struct Host {
  std::shared_ptr<ThreadExchange> exchange;
  std::unique_ptr<DistributedStore> store;
};

std::vector<Host> MakeHosts(const Configuration& configuration, int64_t count) {
  const auto mailboxes = std::make_shared<Mailboxes>();
  std::vector<Host> hosts;
  for (int64_t h = 0; h < count; ++h) {
    auto exchange = std::make_shared<ThreadExchange>(mailboxes, count, h);
    hosts.push_back({exchange, MakeHostsStore(exchange, MakeCpuTableStore())});
    EXPECT_OK(hosts.back().store->Allocate(configuration));
  }
  return hosts;
}

int64_t Elements(const Configuration& configuration, size_t t, int64_t slot) {
  return configuration.tables[t].rows * configuration.tables[t].columns(slot);
}

std::vector<float> ReadAll(TableStore* store, const Configuration& configuration, size_t t,
                           int64_t slot) {
  Pool pool(1);
  PoolContext exec(pool);
  std::vector<float> values(static_cast<size_t>(Elements(configuration, t, slot)));
  const Shard all{configuration.tables[t].rows, 0, 1};
  EXPECT_OK(store->Read(&exec, static_cast<int64_t>(t), slot, all, values.data()));
  return values;
}

void ExpectClose(const std::vector<float>& got, const std::vector<float>& wanted) {
  EXPECT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const float bound = 2e-5f * std::max(1.f, std::fabs(wanted[i]));
    EXPECT_NEAR(got[i], wanted[i], bound);
  }
}

// Random steps of several hosts, and the same steps of one host that has all tables.
class DrawnHostSteps {
 public:
  explicit DrawnHostSteps(uint64_t seed) : random_{seed} {
    configuration_ = DrawConfiguration(random_);
    count_ = 2 + random_.Below(3);
    configuration_.shard_by_remainder = random_.Below(2);
    for (TableConfig& table : configuration_.tables) table.rows += count_;
    EXPECT_OK(one_->Allocate(configuration_));
    hosts_ = MakeHosts(configuration_, count_);
    FillTables();
    for (size_t step = 0; step < kSteps; ++step) DrawStep(step);
  }

  // Each host prepares its next batch at random before the lookup of a step or after the step.
  void RunHosts() {
    OnEach(count_, [this](int64_t host) {
      const size_t h = static_cast<size_t>(host);
      Pool pool(2);
      DistributedStore& store = *hosts_[h].store;
      std::vector<PreparedRef> prepared;
      const auto prepare = [&](size_t step) {
        if (step == kSteps || prepared.size() > step) return;
        PoolContext exec(pool);
        prepared.push_back(Value(store.Prepare(&exec, batches_[step][h])));
      };
      for (size_t step = 0; step < kSteps; ++step) {
        prepare(step);
        if (ahead_[step][h]) prepare(step + 1);
        PoolContext exec(pool);
        PreparedBatch* const batch = prepared[step].get();
        const auto gradient = Pointers(gradients_[step][h]);
        EXPECT_OK(store.Lookup(&exec, batch, Pointers(outputs_[step][h]).data()));
        const std::vector<const float*> of_core(gradient.begin(), gradient.end());
        EXPECT_OK(store.Share(&exec, batch, {}, of_core, RatesOf(step)));
        EXPECT_OK(store.Update(&exec, {{batch, of_core}}, RatesOf(step)));
      }
    });
  }

  void CompareSteps() {
    Pool pool(1);
    for (size_t step = 0; step < kSteps; ++step) {
      PoolContext exec(pool);
      std::vector<PreparedRef> prepared;
      std::vector<CoreGradients> cores;
      for (size_t h = 0; h < hosts_.size(); ++h) {
        prepared.push_back(Value(one_->Prepare(&exec, batches_[step][h])));
        Values wanted = outputs_[step][h];
        EXPECT_OK(one_->Lookup(&exec, prepared[h].get(), Pointers(wanted).data()));
        for (size_t f = 0; f < wanted.size(); ++f) {
          ExpectClose(outputs_[step][h][f], wanted[f]);
        }
        const auto gradient = Pointers(gradients_[step][h]);
        cores.push_back({prepared[h].get(), {gradient.begin(), gradient.end()}});
      }
      EXPECT_OK(one_->Update(&exec, cores, RatesOf(step)));
    }
  }

  void CompareTables() {
    for (size_t t = 0; t < configuration_.tables.size(); ++t) {
      for (int64_t slot = -1; slot < configuration_.tables[t].slots(); ++slot) {
        const std::vector<float> wanted = ReadAll(one_.get(), configuration_, t, slot);
        OnEach(count_, [&](int64_t h) {
          TableStore* const store = hosts_[static_cast<size_t>(h)].store.get();
          ExpectClose(ReadAll(store, configuration_, t, slot), wanted);
        });
      }
    }
  }

 private:
  static constexpr size_t kSteps = 3;
  using Values = std::vector<std::vector<float>>;  // One array for each feature.

  static std::vector<float*> Pointers(Values& of) {
    std::vector<float*> made;
    for (std::vector<float>& values : of) made.push_back(values.data());
    return made;
  }

  std::vector<float> RatesOf(size_t step) const {
    const bool dynamic = configuration_.tables[0].dynamic_rate;
    return std::vector<float>(configuration_.tables.size(),
                              dynamic ? static_cast<float>(step + 1) : 0.05f);
  }

  void FillTables() {
    for (size_t t = 0; t < configuration_.tables.size(); ++t) {
      for (int64_t slot = -1; slot < configuration_.tables[t].slots(); ++slot) {
        std::vector<float> values(static_cast<size_t>(Elements(configuration_, t, slot)));
        for (float& value : values) {
          value = static_cast<float>(slot < 0 ? random_.Uniform() : random_.Uniform() + 1);
        }
        Pool pool(1);
        PoolContext exec(pool);
        const Shard all{configuration_.tables[t].rows, 0, 1};
        const int64_t table = static_cast<int64_t>(t);
        EXPECT_OK(one_->Write(&exec, table, slot, all, values.data()));
        for (const Host& host : hosts_) {
          EXPECT_OK(host.store->Write(&exec, table, slot, all, values.data()));
        }
      }
    }
  }

  void DrawStep(size_t step) {
    std::vector<Combiner> combiners;  // One for each feature. All hosts have the same.
    for (size_t f = 0; f < configuration_.features.size(); ++f) {
      combiners.push_back(static_cast<Combiner>(random_.Below(3)));
    }
    gradients_[step].resize(hosts_.size());
    outputs_[step].resize(hosts_.size());
    for (size_t h = 0; h < hosts_.size(); ++h) {
      Batch batch;
      batch.mode = Mode::kTraining;
      for (size_t f = 0; f < configuration_.features.size(); ++f) {
        const int64_t number = static_cast<int64_t>(f);
        const FeatureConfig& feature = configuration_.features[f];
        AddBags(configuration_, number, DrawInput(random_, configuration_, number),
                combiners[f], &batch);
        const size_t size = static_cast<size_t>(
            feature.samples() * At(configuration_.tables, feature.table).dimension);
        gradients_[step][h].emplace_back(size);
        outputs_[step][h].emplace_back(size);
        for (float& value : gradients_[step][h].back()) {
          value = static_cast<float>(random_.Uniform() - 0.5);
        }
      }
      batches_[step].push_back(std::make_shared<const Batch>(std::move(batch)));
      ahead_[step].push_back(random_.Below(2));
    }
  }

  Random random_;
  Configuration configuration_;
  int64_t count_ = 0;
  const std::unique_ptr<TableStore> one_ = MakeCpuTableStore();
  std::vector<Host> hosts_;
  // For each step, one element for each host.
  std::vector<std::shared_ptr<const Batch>> batches_[kSteps];
  std::vector<Values> gradients_[kSteps], outputs_[kSteps];
  std::vector<bool> ahead_[kSteps];
};

// The bytes of counts, ids, rows and gradients that the first of two hosts sends in a step.
// Both hosts look up samples with these ids. The table has 100 rows of 8 floats and is sharded
// by remainder.
std::vector<int64_t> BytesOfOneStep(const std::vector<std::vector<int64_t>>& samples,
                                    bool weighted, bool quantized) {
  Configuration configuration;
  TableConfig table;
  table.name = "table";
  table.rows = 100;
  table.dimension = 8;
  table.hyper = SomeHyper(table.optimizer);
  if (quantized) table.quantization = {true, -1, 1, 17};
  configuration.tables.push_back(table);
  configuration.features.push_back({"feature", 0, {static_cast<int64_t>(samples.size())}});
  configuration.mode = Mode::kTraining;
  configuration.shard_by_remainder = true;
  EXPECT_OK(Complete(&configuration));
  std::vector<Host> hosts = MakeHosts(configuration, 2);
  OnEach(2, [&](int64_t h) {
    Input input;
    input.splits.push_back(0);
    for (const std::vector<int64_t>& ids : samples) {
      for (const int64_t id : ids) {
        input.ids.push_back(id);
        if (weighted) input.weights.push_back(2);
      }
      input.splits.push_back(static_cast<int64_t>(input.ids.size()));
    }
    Batch batch;
    AddBags(configuration, 0, input, Combiner::kSum, &batch);
    Pool pool(1);
    PoolContext exec(pool);
    DistributedStore& store = *hosts[static_cast<size_t>(h)].store;
    std::vector<float> values(samples.size() * 8, 1.f);
    float* const pointer = values.data();
    const PreparedRef prepared =
        Value(store.Prepare(&exec, std::make_shared<const Batch>(std::move(batch))));
    EXPECT_OK(store.Lookup(&exec, prepared.get(), &pointer));
    EXPECT_OK(store.Share(&exec, prepared.get(), {}, {pointer}, {0.5f}));
    EXPECT_OK(store.Update(&exec, {{prepared.get(), {pointer}}}, {0.5f}));
  });
  const Exchange& first = *hosts[0].exchange;
  return {first.BytesSent(Channel::kCounts), first.BytesSent(Channel::kIds),
          first.BytesSent(Channel::kRows), first.BytesSent(Channel::kGradients)};
}

// Trains narrow rows on several hosts, or on one that has the batches of all. No two samples of
// a step have the same id, so that gradients have one order of sums.
std::vector<float> NarrowAfterSteps(RowDtype dtype, bool by_remainder, int64_t count) {
  constexpr int64_t kRows = 41, kColumns = 6, kHosts = 3, kSamples = 10, kSteps = 4;
  Configuration configuration;
  TableConfig table;
  table.name = "table";
  table.rows = kRows;
  table.dimension = kColumns;
  table.dtype = dtype;
  table.hyper = SomeHyper(table.optimizer);
  configuration.tables.push_back(table);
  configuration.features.push_back({"feature", 0, {kSamples}});
  configuration.mode = Mode::kTraining;
  configuration.shard_by_remainder = by_remainder;
  EXPECT_OK(Complete(&configuration));
  Random random{17};
  std::vector<float> weights(kRows * kColumns), gradients(kHosts * kSamples * kColumns);
  for (float& x : weights) x = static_cast<float>(random.Uniform());
  for (float& x : gradients) x = static_cast<float>(random.Uniform());
  const auto batch_of = [&](int64_t step, int64_t h) {
    Input input;
    input.splits.push_back(0);
    for (int64_t s = 0; s < kSamples; ++s) {
      input.ids.push_back((step + (h * kSamples + s) * 7) % kRows);
      input.splits.push_back(s + 1);
    }
    Batch batch;
    batch.mode = Mode::kTraining;
    AddBags(configuration, 0, input, Combiner::kSum, &batch);
    return std::make_shared<const Batch>(std::move(batch));
  };
  const Shard all{kRows, 0, 1};
  if (count == 1) {
    Pool pool(1);
    PoolContext exec(pool);
    const auto store = MakeCpuTableStore();
    EXPECT_OK(store->Allocate(configuration));
    EXPECT_OK(store->Write(&exec, 0, -1, all, weights.data()));
    for (int64_t step = 0; step < kSteps; ++step) {
      std::vector<PreparedRef> prepared;
      std::vector<CoreGradients> cores;
      for (int64_t h = 0; h < kHosts; ++h) {
        prepared.push_back(Value(store->Prepare(&exec, batch_of(step, h))));
        cores.push_back({prepared.back().get(), {gradients.data() + h * kSamples * kColumns}});
      }
      EXPECT_OK(store->Update(&exec, cores, {0.01f}));
    }
    return ReadAll(store.get(), configuration, 0, -1);
  }
  const std::vector<Host> hosts = MakeHosts(configuration, kHosts);
  std::vector<float> found;
  OnEach(kHosts, [&](int64_t h) {
    Pool pool(1);
    PoolContext exec(pool);
    DistributedStore& store = *hosts[static_cast<size_t>(h)].store;
    EXPECT_OK(store.Write(&exec, 0, -1, all, weights.data()));
    for (int64_t step = 0; step < kSteps; ++step) {
      const PreparedRef prepared = Value(store.Prepare(&exec, batch_of(step, h)));
      const std::vector<const float*> own = {gradients.data() + h * kSamples * kColumns};
      EXPECT_OK(store.Share(&exec, prepared.get(), {}, own, {0.01f}));
      EXPECT_OK(store.Update(&exec, {{prepared.get(), own}}, {0.01f}));
    }
    const std::vector<float> values = ReadAll(&store, configuration, 0, -1);
    if (h == 0) found = values;
  });
  return found;
}

TEST(Hosts, NarrowRowsAreRoundedAsOnOneHost) {
  for (const RowDtype dtype : kRowDtypes) {
    for (const bool by_remainder : {false, true}) {
      const std::vector<float> one = NarrowAfterSteps(dtype, by_remainder, 1);
      EXPECT(NarrowAfterSteps(dtype, by_remainder, 3) == one);
    }
  }
}

void ExpectSame(const std::vector<int64_t>& got, const std::vector<int64_t>& wanted) {
  EXPECT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], wanted[i]);
}

TEST(Hosts, RowsOrPooledVectorsAreSentWhicheverIsLess) {
  // The first host owns the rows of even ids, the second those of odd ids. In `long_bags`, each
  // host requests seven rows from the other.
  const std::vector<std::vector<int64_t>> long_bags = {{1, 3, 5, 7, 0, 2, 4, 6},
                                                       {9, 11, 13, 8, 10, 12}};
  const int64_t counts = 8 * (2 + 3), row = 8 * 4, goes_on = 8, rate = 4;
  const auto sums = BytesOfOneStep(long_bags, false, false);
  ExpectSame(sums, {counts, 2 * 4 + 7 * 4, 2 * row + goes_on, 2 * row + rate + goes_on});
  const auto weighted = BytesOfOneStep(long_bags, true, false);
  ExpectSame(weighted, {counts, 2 * 4 + 7 * 8, 2 * row + goes_on, 2 * row + rate + goes_on});
  // Quantized rows are not pooled, because the requesting host quantizes them.
  const auto quantized = BytesOfOneStep(long_bags, false, true);
  ExpectSame(quantized, {counts, 7 * 4, 7 * row + goes_on, 7 * row + rate + goes_on});
  const auto hot = BytesOfOneStep({{1, 0}, {1, 0}, {1, 0}}, false, false);
  ExpectSame(hot, {counts, 4, row + goes_on, row + rate + goes_on});
}

TEST(Hosts, NextBatchIsRequestedBeforeTheLookup) {
  Configuration configuration;
  TableConfig table;
  table.name = "table";
  table.rows = 10;
  table.dimension = 1;
  configuration.tables.push_back(table);
  configuration.features.push_back({"feature", 0, {1}});
  configuration.mode = Mode::kInference;
  EXPECT_OK(Complete(&configuration));
  std::vector<Host> hosts = MakeHosts(configuration, 2);
  Pool pool(1);
  PoolContext exec(pool);
  for (int i = 0; i < 3; ++i) {
    for (const Host& host : hosts) {
      Input input;
      input.splits = {0, 1};
      input.ids = {1};
      Batch batch;
      batch.mode = Mode::kInference;
      AddBags(configuration, 0, input, Combiner::kSum, &batch);
      const PreparedRef prepared =
          host.store->PrepareAhead(&exec, std::make_shared<const Batch>(std::move(batch)));
      EXPECT_EQ(prepared == nullptr, false);
    }
  }
  // The requests of all batches are sent, although this thread has looked up none of them.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto asked = [&] { return hosts[0].exchange->BytesSent(Channel::kCounts); };
  while (asked() < 3 * 8 * (2 + 3) && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(asked(), 3 * 8 * (2 + 3));
}

const std::vector<float> kTwoSteps = {-1, 0, 0, -2, 0, 0, 0, 0, 0, -1};

TEST(Hosts, BatchThatOneHostRefusesIsDroppedByAll) {
  for (const bool pipelined : {false, true}) {
    TwoEngines hosts(pipelined);
    hosts.Step(0, 3);
    OnEach(2, [&](int64_t h) {
      if (h == 1) {
        hosts.engine(1).Refuse(InvalidArgumentError("feature 'feature': 11 is no row"));
      } else {
        hosts.Enqueue(0, 5);
        EXPECT_ERROR(hosts.LookUp(0).status(), StatusCode::kInvalidArgument,
                     "host 1 refuses the batch: feature 'feature': 11 is no row");
      }
    });
    hosts.Step(9, 3);
    hosts.ExpectRows(kTwoSteps);
  }
}

TEST(Hosts, DifferentLearningRatesUpdateNothing) {
  TwoEngines hosts;
  hosts.Step(0, 3);
  OnEach(2, [&](int64_t h) {
    hosts.Enqueue(h, 5);
    EXPECT_OK(hosts.LookUp(h).status());
    EXPECT_ERROR(hosts.Send(h, 1, h == 0 ? 0.5f : 0.25f), StatusCode::kInvalidArgument,
                 "sends other learning rates than");
  });
  hosts.Step(9, 3);
  hosts.ExpectRows(kTwoSteps);
}

TEST(Hosts, GradientsThatOneHostRefusesUpdateNothing) {
  for (const bool pipelined : {false, true}) {
    TwoEngines hosts(pipelined);
    hosts.Step(0, 3);
    OnEach(2, [&](int64_t h) {
      hosts.Enqueue(h, 5);
      EXPECT_OK(hosts.LookUp(h).status());
      const Status status = hosts.Send(h, h == 1 ? NAN : 1);
      EXPECT_ERROR(status, StatusCode::kInvalidArgument,
                   h == 1 ? "finite" : "host 1 refuses the batch: ");
    });
    hosts.Step(9, 3);
    hosts.ExpectRows(kTwoSteps);
  }
}

// The run fails on one host or on both, before the lookup or after it.
TEST(Hosts, StepThatFailsOnOneHostFailsOnAll) {
  for (int which = 0; which < 8; ++which) {
    const bool looks_up = which & 1, both_fail = which & 2, pipelined = which & 4;
    TwoEngines hosts(pipelined);
    hosts.Step(0, 3);
    OnEach(2, [&](int64_t h) {
      const auto run = std::make_shared<Run>(true);
      hosts.Enqueue(h, 5, run);
      if (looks_up) EXPECT_OK(hosts.LookUp(h, run).status());
      if (h == 1 || both_fail) {
        run->End(Run::State::kFailed);
        hosts.engine(h).RunEnded(run);
        return;
      }
      run->End(Run::State::kEnded);
      hosts.engine(h).RunEnded(run);
      EXPECT_ERROR(looks_up ? hosts.Send(h, 1) : hosts.LookUp(h).status(),
                   StatusCode::kInvalidArgument,
                   "host 1 refuses the batch: the step that it is part of has failed there");
    });
    hosts.Step(9, 3);
    hosts.ExpectRows(kTwoSteps);
  }
}

TEST(Hosts, StepsMatchThoseOfOneHost) {
  for (int64_t round = 0; round < testing::Rounds(12); ++round) {
    DrawnHostSteps steps(testing::Seed());
    steps.RunHosts();
    steps.CompareSteps();
    steps.CompareTables();
  }
}

}  // namespace
}  // namespace opwright::embedding
