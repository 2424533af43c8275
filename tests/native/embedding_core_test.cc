// Drives the embedding engine without TensorFlow, for the sanitizers. Systems are drawn:
// tables of any optimizer, features of any form, cores, pipelining. Each core's batches are
// enqueued by one thread and trained with by another, which also cancels calls that wait,
// while a visitor reads the tables. What is learned must not depend on who is faster, and
// instruction sets must agree. Batches of wrong ids must be refused, and what waits must
// end when the engine is closed. Arrays are exactly as long as they must be.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/embedding/engine.h"
#include "core/isa.h"
#include "pool.h"

namespace opwright {
namespace embedding {
namespace {

constexpr int64_t kSteps = 5;

float Value(Random& random) { return static_cast<float>(random.Uniform()); }

float HyperValue(const std::string& name, Random& random) {
  if (name.rfind("use_", 0) == 0 || name.rfind("multiply_", 0) == 0) return random.Below(2);
  if (name == "exponent") return 2 + random.Below(2);
  if (name == "lr_power") return random.Below(2) ? -0.5f : -0.75f;
  if (name == "max_delta" || name == "outlier_threshold") return 3 + random.Below(5);
  return 0.1f + 0.8f * (Value(random) + 0.5f);
}

// Rules without a threshold, at which a rounding error could decide.
bool IsSmooth(Optimizer optimizer) {
  return optimizer == Optimizer::kSgd || optimizer == Optimizer::kAdagrad ||
         optimizer == Optimizer::kMomentum || optimizer == Optimizer::kAdam;
}

Configuration DrawConfiguration(Random& random, bool smooth) {
  Configuration configuration;
  configuration.mode = Mode::kTraining;
  configuration.cores = 1 + random.Below(3);
  configuration.pipelined = random.Below(2);
  configuration.shard_by_remainder = random.Below(2);
  const int64_t tables = 1 + random.Below(3);
  for (int64_t t = 0; t < tables; ++t) {
    TableConfig table;
    table.name = "table" + std::to_string(t);
    table.rows = 1 + random.Below(t == 1 ? 2000 : 40);
    table.dimension = 1 + random.Below(70);
    do {
      table.optimizer = static_cast<Optimizer>(random.Below(kOptimizers));
    } while (!FactsOf(table.optimizer).has_rule() || (smooth && !IsSmooth(table.optimizer)));
    const OptimizerFacts& facts = FactsOf(table.optimizer);
    for (int i = 0; i < kMaxHyper && facts.hyper[i]; ++i) {
      table.hyper.hyper[i] = HyperValue(facts.hyper[i], random);
      const std::string name = facts.hyper[i];
      if (name.rfind("use_non_lazy", 0) == 0) table.every_row = table.hyper.hyper[i] != 0;
    }
    table.hyper.learning_rate = 0.1f;
    table.dynamic_rate = table.optimizer == Optimizer::kFrequencyEstimator;
    table.accumulate = table.every_row || random.Below(2);
    if (random.Below(3) == 0) table.hyper.decay = 0.01f;
    if (random.Below(3) == 0) table.hyper.clip_gradient[0] = -0.2f;
    if (random.Below(3) == 0) table.hyper.clip_weight[1] = 0.4f;
    if (random.Below(4) == 0) table.quantization = {true, -1, 1, 17};
    if (smooth) table.quantization.enabled = false;
    configuration.tables.push_back(table);
  }
  const int64_t features = tables + random.Below(3);
  for (int64_t f = 0; f < features; ++f) {
    FeatureConfig feature;
    feature.name = "feature" + std::to_string(f);
    feature.table = f % tables;
    feature.shape = {1 + random.Below(f == 1 ? 300 : 12)};
    if (random.Below(3) == 0) feature.shape.push_back(1 + random.Below(4));
    configuration.features.push_back(feature);
  }
  return configuration;
}

// The ids of one feature as a caller has them.
struct Input {
  Lookups::Form form;
  std::vector<int32_t> where;
  std::vector<int64_t> ids;
  std::vector<double> weights;
  int64_t rank = 0;

  Lookups View() const {
    Lookups lookups;
    lookups.form = form;
    lookups.where = {where.data(), false, static_cast<int64_t>(where.size())};
    lookups.rank = rank;
    lookups.ids = {ids.data(), true, static_cast<int64_t>(ids.size())};
    lookups.weights = {weights.data(), true, static_cast<int64_t>(weights.size())};
    return lookups;
  }
};

Input DrawInput(const Configuration& configuration, int64_t f, Random& random) {
  const FeatureConfig& feature = configuration.features[f];
  const int64_t rows = configuration.tables[feature.table].rows;
  Input input;
  input.form = static_cast<Lookups::Form>(random.Below(4));
  if (input.form == Lookups::Form::kSplits) input.where.push_back(0);
  for (int64_t sample = 0; sample < feature.samples(); ++sample) {
    const int64_t count = input.form == Lookups::Form::kDense ? 1 : random.Below(5);
    for (int64_t i = 0; i < count; ++i) {
      input.ids.push_back(random.Below(4) ? random.Below(rows) : 0);
      if (input.form == Lookups::Form::kSamples) input.where.push_back(sample);
      if (input.form == Lookups::Form::kIndices) {
        if (feature.shape.size() == 2) {
          input.where.push_back(sample / feature.shape[1]);
          input.where.push_back(sample % feature.shape[1]);
        } else {
          input.where.push_back(sample);
        }
        input.where.push_back(i);
      }
    }
    if (input.form == Lookups::Form::kSplits) input.where.push_back(input.ids.size());
  }
  input.rank = static_cast<int64_t>(feature.shape.size()) + 1;
  if (random.Below(2)) {
    for (size_t i = 0; i < input.ids.size(); ++i) input.weights.push_back(random.Uniform());
  }
  return input;
}

Maybe MakeBatch(const Configuration& configuration, const std::vector<Input>& inputs,
                Batch* batch) {
  for (size_t f = 0; f < inputs.size(); ++f) {
    batch->features.emplace_back();
    const auto combiner = static_cast<Combiner>(f % 3);
    if (auto refusal = MakeBags(configuration, static_cast<int64_t>(f), inputs[f].View(),
                                combiner, &batch->features.back())) {
      return refusal;
    }
  }
  return {};
}

[[noreturn]] void Fail(const std::string& why) {
  std::printf("%s\n", why.c_str());
  std::fflush(stdout);
  std::abort();
}

void Expect(const Maybe& refusal) {
  if (refusal) Fail("refused: " + refusal->problem);
}

std::shared_ptr<Engine> MakeEngine(Configuration configuration) {
  Expect(Complete(&configuration));
  std::shared_ptr<Engine> engine;
  Expect(Engine::Create(configuration, MakeCpuTableStore(), &engine));
  return engine;
}

std::vector<float> ReadAll(Engine& engine, Pool& pool) {
  std::vector<float> all;
  PoolHost host(pool);
  Expect(engine.Use(&host, [&](TableStore* store) {
    const Configuration& configuration = engine.configuration();
    for (size_t t = 0; t < configuration.tables.size(); ++t) {
      const TableConfig& table = configuration.tables[t];
      for (int64_t slot = -1; slot < table.slots(); ++slot) {
        for (int64_t shard = 0; shard < std::min<int64_t>(2, table.rows); ++shard) {
          const Shard rows = ShardOf(table.rows, std::min<int64_t>(2, table.rows), shard,
                                     configuration.shard_by_remainder);
          std::vector<float> part(rows.count * table.dimension);
          store->Read(&host, static_cast<int64_t>(t), slot, rows, part.data());
          all.insert(all.end(), part.begin(), part.end());
        }
      }
    }
  }));
  return all;
}

void WriteAll(Engine& engine, Pool& pool, Random& random) {
  PoolHost host(pool);
  Expect(engine.Use(&host, [&](TableStore* store) {
    const Configuration& configuration = engine.configuration();
    for (size_t t = 0; t < configuration.tables.size(); ++t) {
      const TableConfig& table = configuration.tables[t];
      for (int64_t slot = -1; slot < table.slots(); ++slot) {
        std::vector<float> values(table.rows * table.dimension);
        for (float& value : values) value = slot < 0 ? Value(random) : 0.6f + Value(random);
        store->Write(&host, static_cast<int64_t>(t), slot, {table.rows, 0, 1},
                     values.data());
      }
    }
  }));
}

Engine::Turn Receive(Engine& engine, Pool& pool, int64_t core, bool cancel) {
  while (true) {
    auto promise = std::make_shared<std::promise<std::pair<Maybe, Engine::Turn>>>();
    auto future = promise->get_future();
    PoolHost host(pool);
    const auto ticket =
        engine.Receive(&host, core, [promise](Maybe refusal, Engine::Turn turn) {
          promise->set_value({std::move(refusal), std::move(turn)});
        });
    if (cancel && engine.Cancel(ticket)) {
      cancel = false;
      continue;
    }
    auto [refusal, turn] = future.get();
    Expect(refusal);
    return turn;
  }
}

void Train(Engine& engine, Pool& pool, int64_t core, uint64_t seed, bool cancel) {
  const Configuration& configuration = engine.configuration();
  Random random{seed};
  for (int64_t step = 0; step < kSteps; ++step) {
    const Engine::Turn turn = Receive(engine, pool, core, cancel && step % 2);
    auto outputs = std::make_shared<std::vector<std::vector<float>>>();
    std::vector<float*> pointers;
    std::vector<const float*> gradients;
    for (const FeatureConfig& feature : configuration.features) {
      outputs->emplace_back(feature.samples() *
                            configuration.tables[feature.table].dimension);
      pointers.push_back(outputs->back().data());
      gradients.push_back(outputs->back().data());
    }
    PoolHost host(pool);
    engine.Lookup(&host, turn, pointers.data());
    Expect(engine.Received(&host, turn));
    // What was looked up decides what is learned.
    for (std::vector<float>& output : *outputs) {
      for (float& value : output) value = 0.05f * value + 0.2f * Value(random);
    }
    std::vector<float> rates;
    if (configuration.tags > 0) rates.push_back(static_cast<float>(step + 1));
    Expect(engine.Send(&host, core, gradients, outputs, rates));
  }
}

// All that is learned in some steps of all cores.
std::vector<float> Run(const Configuration& configuration, uint64_t seed, bool disturb,
                       Pool& pool) {
  const auto engine = MakeEngine(configuration);
  Random random{seed};
  WriteAll(*engine, pool, random);
  std::vector<std::vector<std::vector<Input>>> inputs(configuration.cores);
  for (auto& of_core : inputs) {
    for (int64_t step = 0; step < kSteps; ++step) {
      of_core.emplace_back();
      for (size_t f = 0; f < configuration.features.size(); ++f) {
        of_core.back().push_back(
            DrawInput(engine->configuration(), static_cast<int64_t>(f), random));
      }
    }
  }
  std::vector<std::thread> threads;
  for (int64_t core = 0; core < configuration.cores; ++core) {
    threads.emplace_back([&, core] {
      for (const std::vector<Input>& one : inputs[core]) {
        Batch batch;
        Expect(MakeBatch(engine->configuration(), one, &batch));
        PoolHost host(pool);
        engine->Enqueue(&host, core, std::move(batch), Expect);
      }
    });
    threads.emplace_back([&, core] { Train(*engine, pool, core, seed + core, disturb); });
  }
  // A visitor has every complete step applied, which is early where steps are pipelined.
  std::atomic<bool> done{false};
  std::thread visitor([&] {
    while (disturb && !configuration.pipelined && !done) ReadAll(*engine, pool);
  });
  for (std::thread& thread : threads) thread.join();
  done = true;
  visitor.join();
  return ReadAll(*engine, pool);
}

bool Near(const std::vector<float>& found, const std::vector<float>& first) {
  for (size_t i = 0; i < found.size(); ++i) {
    if (!(std::abs(found[i] - first[i]) <= 1e-3f * (1 + std::abs(first[i])))) return false;
  }
  return true;
}

bool Agree(int draw, Pool& pool) {
  Random random{static_cast<uint64_t>(draw) * 2 + 1};
  const bool smooth = draw % 2 == 0;
  Configuration configuration = DrawConfiguration(random, smooth);
  std::vector<float> first;
  for (const char* isa : {"portable", "avx2", "avx512"}) {
    if (!UseIsa(isa)) continue;
    const std::vector<float> found = Run(configuration, draw, false, pool);
    const std::vector<float> again = Run(configuration, draw, true, pool);
    if (std::memcmp(found.data(), again.data(), found.size() * sizeof(float)) != 0) {
      std::printf("draw %d, %s: two runs differ\n", draw, isa);
      return false;
    }
    if (first.empty()) first = found;
    if (smooth && !Near(found, first)) {
      std::printf("draw %d: %s differs from the first\n", draw, isa);
      return false;
    }
  }
  UseIsa("");
  return true;
}

// Anything for ids: refused, or good.
void BadBatches(Random& random) {
  constexpr int64_t kWild[] = {INT64_MIN, -1, 0, 1, 2, 41, INT32_MAX, int64_t{1} << 40,
                               INT64_MAX};
  Configuration configuration = DrawConfiguration(random, false);
  Expect(Complete(&configuration));
  for (int i = 0; i < 300; ++i) {
    const int64_t f = random.Below(static_cast<int64_t>(configuration.features.size()));
    Input input = DrawInput(configuration, f, random);
    const int64_t wild = kWild[random.Below(std::size(kWild))];
    switch (random.Below(5)) {
      case 0:
        if (!input.ids.empty()) input.ids[random.Below(input.ids.size())] = wild;
        break;
      case 1:
        if (!input.where.empty()) {
          input.where[random.Below(input.where.size())] = static_cast<int32_t>(wild);
        }
        break;
      case 2: input.weights.resize(random.Below(10)); break;
      case 3:
        if (input.form != Lookups::Form::kIndices && input.form != Lookups::Form::kSamples) {
          input.where.resize(random.Below(10));
        }
        break;
      case 4: input.form = Lookups::Form::kDense; break;
    }
    Bags bags;
    if (MakeBags(configuration, f, input.View(), Combiner::kMean, &bags)) continue;
    const int64_t rows = configuration.tables[configuration.features[f].table].rows;
    for (int64_t id = 0; id < bags.count(); ++id) {
      if (bags.ids[id] < 0 || bags.ids[id] >= rows) Fail("a wrong id was taken");
    }
  }
}

void ClosedWhileWaiting(Random& random, Pool& pool) {
  Configuration configuration = DrawConfiguration(random, false);
  const auto engine = MakeEngine(configuration);
  std::atomic<int> refused{0};
  std::thread waiting([&] {
    for (int i = 0; i < 3; ++i) {
      PoolHost host(pool);
      engine->Receive(&host, 0, [&](Maybe refusal, Engine::Turn) { refused += !!refusal; });
    }
  });
  engine->Close("closed for a test");
  waiting.join();
  if (refused != 3) Fail("a call outlived its engine");
}

int Main(int draws) {
  Pool pool(3);
  bool good = true;
  for (int draw = 0; draw < draws && good; ++draw) {
    Random random{static_cast<uint64_t>(draw)};
    good = Agree(draw, pool);
    BadBatches(random);
    ClosedWhileWaiting(random, pool);
  }
  std::printf("%d embedding systems: %s\n", draws, good ? "all runs agree" : "FAILED");
  return good ? 0 : 1;
}

}  // namespace
}  // namespace embedding
}  // namespace opwright

int main(int count, char** arguments) {
  return opwright::embedding::Main(count > 1 ? std::atoi(arguments[1]) : 50);
}
