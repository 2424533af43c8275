// Tables over several hosts: they are what one host has that gets the batches of all.
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

void StepsAreThoseOfOneHost(uint64_t seed) {
  Random random{seed};
  Configuration configuration = DrawConfiguration(random);
  const int64_t count = 2 + random.Below(3);
  configuration.shard_by_remainder = random.Below(2);
  for (TableConfig& table : configuration.tables) table.rows += count;
  const auto one = MakeCpuTableStore();
  EXPECT_OK(one->Allocate(configuration));
  std::vector<Host> hosts = MakeHosts(configuration, count);
  for (size_t t = 0; t < configuration.tables.size(); ++t) {
    for (int64_t slot = -1; slot < configuration.tables[t].slots(); ++slot) {
      std::vector<float> values(static_cast<size_t>(Elements(configuration, t, slot)));
      for (float& value : values) {
        value = static_cast<float>(slot < 0 ? random.Uniform() : random.Uniform() + 1);
      }
      Pool pool(1);
      PoolContext exec(pool);
      const Shard all{configuration.tables[t].rows, 0, 1};
      const int64_t table = static_cast<int64_t>(t);
      EXPECT_OK(one->Write(&exec, table, slot, all, values.data()));
      for (const Host& host : hosts) {
        EXPECT_OK(host.store->Write(&exec, table, slot, all, values.data()));
      }
    }
  }
  constexpr size_t kSteps = 3;
  const size_t all = static_cast<size_t>(count);
  using Values = std::vector<std::vector<float>>;  // By feature.
  std::vector<std::vector<std::shared_ptr<const Batch>>> batches(kSteps);
  std::vector<std::vector<Values>> gradients(kSteps, std::vector<Values>(all));
  auto outputs = gradients;
  std::vector<std::vector<bool>> ahead(kSteps);
  for (size_t step = 0; step < kSteps; ++step) {
    std::vector<Combiner> combiners;  // By feature; all hosts have the same.
    for (size_t f = 0; f < configuration.features.size(); ++f) {
      combiners.push_back(static_cast<Combiner>(random.Below(3)));
    }
    for (size_t h = 0; h < all; ++h) {
      Batch batch;
      batch.mode = Mode::kTraining;
      for (size_t f = 0; f < configuration.features.size(); ++f) {
        const FeatureConfig& feature = configuration.features[f];
        AddBags(configuration, static_cast<int64_t>(f),
                DrawInput(random, configuration, static_cast<int64_t>(f)), combiners[f],
                &batch);
        const size_t size = static_cast<size_t>(
            feature.samples() *
            configuration.tables[static_cast<size_t>(feature.table)].dimension);
        gradients[step][h].emplace_back(size);
        outputs[step][h].emplace_back(size);
        for (float& value : gradients[step][h].back()) {
          value = static_cast<float>(random.Uniform() - 0.5);
        }
      }
      batches[step].push_back(std::make_shared<const Batch>(std::move(batch)));
      ahead[step].push_back(random.Below(2));
    }
  }
  const auto rates = [&](size_t step) {
    return std::vector<float>(configuration.tables.size(), configuration.tables[0].dynamic_rate
                                                               ? static_cast<float>(step + 1)
                                                               : 0.05f);
  };
  const auto pointers = [](Values& of) {
    std::vector<float*> made;
    for (std::vector<float>& values : of) made.push_back(values.data());
    return made;
  };
  // Each host requests its next batch when it likes: before a step's lookup, or after it.
  OnEach(count, [&](int64_t host) {
    const size_t h = static_cast<size_t>(host);
    Pool pool(2);
    DistributedStore& store = *hosts[h].store;
    std::vector<PreparedRef> prepared;
    const auto prepare = [&](size_t step) {
      if (step == kSteps || prepared.size() > step) return;
      PoolContext exec(pool);
      prepared.push_back(Value(store.Prepare(&exec, batches[step][h])));
    };
    for (size_t step = 0; step < kSteps; ++step) {
      prepare(step);
      if (ahead[step][h]) prepare(step + 1);
      PoolContext exec(pool);
      const auto gradient = pointers(gradients[step][h]);
      EXPECT_OK(store.Lookup(&exec, prepared[step].get(), pointers(outputs[step][h]).data()));
      const std::vector<const float*> of_core(gradient.begin(), gradient.end());
      EXPECT_OK(store.Share(&exec, prepared[step].get(), {}, of_core, rates(step)));
      EXPECT_OK(store.Update(&exec, {{prepared[step].get(), of_core}}, rates(step)));
    }
  });
  Pool pool(1);
  for (size_t step = 0; step < kSteps; ++step) {
    PoolContext exec(pool);
    std::vector<PreparedRef> prepared;
    std::vector<CoreGradients> cores;
    for (size_t h = 0; h < all; ++h) {
      prepared.push_back(Value(one->Prepare(&exec, batches[step][h])));
      Values wanted = outputs[step][h];
      EXPECT_OK(one->Lookup(&exec, prepared[h].get(), pointers(wanted).data()));
      for (size_t f = 0; f < wanted.size(); ++f) ExpectClose(outputs[step][h][f], wanted[f]);
      const auto gradient = pointers(gradients[step][h]);
      cores.push_back({prepared[h].get(), {gradient.begin(), gradient.end()}});
    }
    EXPECT_OK(one->Update(&exec, cores, rates(step)));
  }
  for (size_t t = 0; t < configuration.tables.size(); ++t) {
    for (int64_t slot = -1; slot < configuration.tables[t].slots(); ++slot) {
      const std::vector<float> wanted = ReadAll(one.get(), configuration, t, slot);
      OnEach(count, [&](int64_t h) {
        ExpectClose(ReadAll(hosts[static_cast<size_t>(h)].store.get(), configuration, t, slot),
                    wanted);
      });
    }
  }
}

// What the first of two hosts sends of counts, ids, rows and gradients in a step, where both
// look up samples with these ids: in a table of 100 rows of 8 floats, shared out by remainder.
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

void ExpectSame(const std::vector<int64_t>& got, const std::vector<int64_t>& wanted) {
  EXPECT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], wanted[i]);
}

TEST(Hosts, WhateverIsLessIsSent) {
  // Of odd ids the second host has the rows; as many are asked of the first one.
  const std::vector<std::vector<int64_t>> long_bags = {{1, 3, 5, 7, 0, 2, 4, 6},
                                                       {9, 11, 13, 8, 10, 12}};
  const int64_t counts = 8 * (2 + 3), row = 8 * 4, goes_on = 8, rate = 4;
  const auto sums = BytesOfOneStep(long_bags, false, false);
  ExpectSame(sums, {counts, 2 * 4 + 7 * 4, 2 * row + goes_on, 2 * row + rate + goes_on});
  const auto weighted = BytesOfOneStep(long_bags, true, false);
  ExpectSame(weighted, {counts, 2 * 4 + 7 * 8, 2 * row + goes_on, 2 * row + rate + goes_on});
  // The requesting host quantizes; a row that many samples have is requested once.
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
  // All have gone out, from this one thread, and nothing has been looked up.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto asked = [&] { return hosts[0].exchange->BytesSent(Channel::kCounts); };
  while (asked() < 3 * 8 * (2 + 3) && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(asked(), 3 * 8 * (2 + 3));
}

const std::vector<float> kTwoSteps = {-1, 0, 0, -2, 0, 0, 0, 0, 0, -1};

TEST(Hosts, ABatchThatOneHostRefusesIsDroppedByAll) {
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

TEST(Hosts, OtherLearningRatesUpdateNothing) {
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

TEST(Hosts, GradientsThatOneRefusesUpdateNothing) {
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

// A run that fails, of one host or of both: before its lookup, or after it.
TEST(Hosts, AStepThatFailsOnOneFailsOnAll) {
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

TEST(Hosts, StepsAreThoseOfOneHost) {
  for (int64_t round = 0; round < testing::Rounds(12); ++round) {
    StepsAreThoseOfOneHost(testing::Seed());
  }
}

}  // namespace
}  // namespace opwright::embedding
