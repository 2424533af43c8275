// Random configurations and their steps, done by an engine whose cores have threads of their
// own, and one after the other on rows of doubles.
#pragma once

#include <cmath>
#include <cstdio>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/embedding/engine.h"
#include "expect.h"
#include "pool_host.h"

namespace opwright {
namespace embedding {

inline Configuration DrawConfiguration(Random& random) {
  Configuration configuration;
  const int64_t tables = 1 + random.Below(3);
  for (int64_t t = 0; t < tables; ++t) {
    TableConfig table;
    table.name = "table" + std::to_string(t);
    table.rows = 1 + random.Below(random.Below(2) ? 5 : 3000);
    table.dimension = 1 + random.Below(random.Below(2) ? 9 : 150);
    table.optimizer = static_cast<Optimizer>(random.Below(13));
    table.dynamic_rate = table.optimizer == Optimizer::kFrequencyEstimator;
    table.hyper.learning_rate = 0.1f;
    for (float& value : table.hyper.hyper) value = 0.5f;
    if (table.optimizer == Optimizer::kFtrl) table.hyper.hyper[2] = -0.5f;
    table.accumulate = random.Below(3) != 0;
    table.every_row = table.optimizer == Optimizer::kAdam && random.Below(2);
    if (random.Below(4) == 0) table.quantization = {true, -1, 1, 17};
    if (random.Below(3) == 0) table.hyper.decay = 0.01f;
    configuration.tables.push_back(table);
  }
  for (int64_t f = 0; f < tables + random.Below(3); ++f) {
    FeatureConfig feature;
    feature.name = "feature" + std::to_string(f);
    feature.table = f % tables;
    feature.shape = {1 + random.Below(40)};
    if (random.Below(3) == 0) feature.shape.push_back(1 + random.Below(4));
    configuration.features.push_back(feature);
  }
  configuration.mode = Mode::kTraining;
  configuration.cores = 1 + random.Below(3);
  configuration.pipelined = random.Below(2);
  return configuration;
}

// Ids in row splits, and what they view.
struct Input {
  std::vector<int64_t> splits, ids;
  std::vector<double> weights;

  Lookups View() const {
    Lookups lookups;
    lookups.form = Lookups::Form::kSplits;
    lookups.where = {splits.data(), true, static_cast<int64_t>(splits.size())};
    lookups.ids = {ids.data(), true, static_cast<int64_t>(ids.size())};
    lookups.weights = {weights.data(), true, static_cast<int64_t>(weights.size())};
    return lookups;
  }
};

inline Input DrawInput(Random& random, const Configuration& configuration, int64_t feature) {
  const FeatureConfig& config = configuration.features[feature];
  Input input;
  input.splits.push_back(0);
  const bool weighted = random.Below(2);
  for (int64_t s = 0; s < config.samples(); ++s) {
    for (int64_t i = random.Below(5); i > 0; --i) {
      input.ids.push_back(random.Below(configuration.tables[config.table].rows));
      if (weighted) input.weights.push_back(random.Uniform() + 0.75);
    }
    input.splits.push_back(static_cast<int64_t>(input.ids.size()));
  }
  return input;
}

// Every table as rows of doubles would do it, one id after the other.
class Model {
 public:
  explicit Model(const Configuration& configuration) : configuration_(configuration) {
    for (const TableConfig& table : configuration.tables) {
      tables_.emplace_back(table.rows * table.dimension * (1 + table.slots()), 0.f);
    }
  }

  // A weight or a slot of a row.
  float* At(int64_t t, int64_t slot, int64_t row) {
    const TableConfig& table = configuration_.tables[t];
    return tables_[t].data() + ((slot + 1) * table.rows + row) * table.dimension;
  }

  std::vector<float> Lookup(int64_t feature, const Bags& bags) {
    const int64_t t = configuration_.features[feature].table;
    const TableConfig& table = configuration_.tables[t];
    std::vector<float> out(bags.samples * table.dimension);
    for (int64_t s = 0; s < bags.samples; ++s) {
      for (int64_t k = 0; k < table.dimension; ++k) {
        double sum = 0;
        for (int64_t i = bags.starts[s]; i < bags.starts[s + 1]; ++i) {
          double x = At(t, -1, bags.ids[i])[k];
          if (table.quantization.enabled) x = Quantized(table.quantization, x);
          sum += (bags.weights ? bags.weights[i] : 1) * x;
        }
        out[s * table.dimension + k] =
            static_cast<float>(sum * (bags.scales ? bags.scales[s] : 1));
      }
    }
    return out;
  }

  void Update(const std::vector<std::shared_ptr<const Batch>>& batches,
              const std::vector<std::vector<std::vector<float>>>& gradients, float step) {
    for (size_t t = 0; t < tables_.size(); ++t) {
      const TableConfig& table = configuration_.tables[t];
      std::map<int64_t, std::vector<std::vector<double>>> by_row;
      if (table.every_row) {
        for (int64_t row = 0; row < table.rows; ++row) by_row[row];
      }
      for (size_t core = 0; core < batches.size(); ++core) {
        for (size_t f = 0; f < configuration_.features.size(); ++f) {
          if (configuration_.features[f].table != static_cast<int64_t>(t)) continue;
          const Bags& bags = batches[core]->features[f];
          for (int64_t s = 0; s < bags.samples; ++s) {
            for (int64_t i = bags.starts[s]; i < bags.starts[s + 1]; ++i) {
              float coefficient = bags.scales ? bags.scales[s] : 1;
              if (bags.weights) coefficient *= bags.weights[i];
              std::vector<double> one(table.dimension);
              for (int64_t k = 0; k < table.dimension; ++k) {
                one[k] = static_cast<double>(coefficient) *
                         gradients[core][f][s * table.dimension + k];
              }
              by_row[bags.ids[i]].push_back(one);
            }
          }
        }
      }
      Hyper hyper = table.hyper;
      if (table.dynamic_rate) hyper.learning_rate = step;
      for (auto& [row, all] : by_row) {
        if (all.empty()) all.emplace_back(table.dimension, 0.);
        if (table.accumulate) {
          for (size_t i = 1; i < all.size(); ++i) {
            for (int64_t k = 0; k < table.dimension; ++k) all[0][k] += all[i][k];
          }
          all.resize(1);
        }
        for (const auto& one : all) Apply(t, row, hyper, one);
      }
    }
  }

 private:
  static double Quantized(const Quantization& q, double x) {
    const double step = (static_cast<double>(q.upper) - q.lower) / (q.buckets - 1);
    x = std::min<double>(std::max<double>(x, q.lower), q.upper);
    return std::floor((x - q.lower) / step + 0.5) * step + q.lower;
  }

  void Apply(size_t t, int64_t row, const Hyper& hyper, const std::vector<double>& gradient) {
    const TableConfig& table = configuration_.tables[t];
    VisitRule(table.optimizer, [&](auto tag) {
      using Rule = typename decltype(tag)::type;
      using F = typename Rule::F;
      const Step<Rule> step(hyper);
      for (int64_t k = 0; k < table.dimension; ++k) {
        F slots[4] = {};
        for (int i = 0; i < Rule::kSlots; ++i) slots[i] = At(t, i, row)[k];
        F w = At(t, -1, row)[k];
        step(static_cast<F>(gradient[k]), w, slots);
        At(t, -1, row)[k] = static_cast<float>(w);
        for (int i = 0; i < Rule::kSlots; ++i) At(t, i, row)[k] = static_cast<float>(slots[i]);
      }
    });
  }

  const Configuration& configuration_;
  std::vector<std::vector<float>> tables_;
};

// Float arithmetic in another order, and rules that amplify it.
inline bool Near(float a, float b) { return std::abs(a - b) <= 2e-3 * (1 + std::abs(a)); }

// Steps of a drawn configuration, whose outputs and tables can be read after settle().
inline bool StepsAreInOrder(uint64_t seed, Pool& pool, std::unique_ptr<TableStore> store,
                            const std::function<void()>& settle) {
  Random random{seed};
  Configuration configuration = DrawConfiguration(random);
  // One tag for all that are dynamic.
  EXPECT(!Complete(&configuration));
  std::shared_ptr<Engine> engine;
  EXPECT(!Engine::Create(configuration, std::move(store), &engine));
  Model model(configuration);
  for (size_t t = 0; t < configuration.tables.size(); ++t) {
    const TableConfig& table = configuration.tables[t];
    for (int64_t slot = -1; slot < table.slots(); ++slot) {
      std::vector<float> values(table.rows * table.dimension);
      for (float& value : values) {
        value = static_cast<float>(slot < 0 ? random.Uniform() : random.Uniform() + 1);
      }
      std::copy(values.begin(), values.end(), model.At(t, slot, 0));
      PoolHost host(pool);
      EXPECT(!engine->Use(&host, [&](TableStore* store) {
        return store->Write(&host, t, slot, ShardOf(table.rows, 1, 0, false), values.data());
      }));
      settle();
    }
  }
  const int64_t steps = 6, cores = configuration.cores;
  std::vector<std::vector<std::shared_ptr<const Batch>>> batches(steps);
  std::vector<std::vector<std::vector<std::vector<float>>>> gradients(steps), outputs(steps);
  for (int64_t s = 0; s < steps; ++s) {
    outputs[s].resize(cores);
    for (int64_t core = 0; core < cores; ++core) {
      Batch batch;
      gradients[s].emplace_back();
      for (size_t f = 0; f < configuration.features.size(); ++f) {
        const Input input = DrawInput(random, configuration, f);
        Bags bags;
        EXPECT(!MakeBags(configuration, f, input.View(),
                         static_cast<Combiner>(random.Below(3)), &bags));
        batch.features.push_back(std::move(bags));
        const FeatureConfig& feature = configuration.features[f];
        gradients[s][core].emplace_back(feature.samples() *
                                        configuration.tables[feature.table].dimension);
        for (float& g : gradients[s][core].back()) g = static_cast<float>(random.Uniform());
      }
      batches[s].push_back(std::make_shared<const Batch>(std::move(batch)));
    }
  }
  const auto rate = [](int64_t step) { return 10.f + static_cast<float>(step); };
  // Each core: one thread enqueues, one looks up and sends, and they know nothing of each
  // other.
  std::atomic<bool> good{true};
  std::vector<std::thread> threads;
  for (int64_t core = 0; core < cores; ++core) {
    threads.emplace_back([&, core] {
      PoolHost host(pool);
      for (int64_t s = 0; s < steps; ++s) {
        Batch copy;
        const Batch& from = *batches[s][core];
        for (const Bags& bags : from.features) {
          Bags to;
          to.samples = bags.samples;
          const auto clone = [](const auto& array, int64_t count) {
            using T = std::remove_reference_t<decltype(array[0])>;
            std::unique_ptr<std::remove_const_t<T>[]> made;
            if (array) {
              made.reset(new std::remove_const_t<T>[count]);
              std::copy(array.get(), array.get() + count, made.get());
            }
            return made;
          };
          to.starts = clone(bags.starts, bags.samples + 1);
          to.ids = clone(bags.ids, bags.count());
          to.weights = clone(bags.weights, bags.count());
          to.scales = clone(bags.scales, bags.samples);
          copy.features.push_back(std::move(to));
        }
        engine->Enqueue(&host, core, std::move(copy), [&](Maybe refusal) {
          if (refusal) good = false;
        });
      }
    });
    threads.emplace_back([&, core] {
      for (int64_t s = 0; s < steps; ++s) {
        PoolHost host(pool);
        std::promise<Engine::Turn> turn;
        engine->Receive(&host, core, [&](Maybe refusal, const Engine::Turn& given) {
          if (refusal) good = false;
          turn.set_value(given);
        });
        const Engine::Turn given = turn.get_future().get();
        std::vector<float*> out;
        for (size_t f = 0; f < configuration.features.size(); ++f) {
          outputs[s][core].emplace_back(gradients[s][core][f].size());
          out.push_back(outputs[s][core].back().data());
        }
        if (engine->Lookup(&host, given, out.data())) good = false;
        std::vector<const float*> values;
        for (const auto& one : gradients[s][core]) values.push_back(one.data());
        if (engine->Send(&host, core, values, nullptr,
                         std::vector<float>(configuration.tags, rate(s)))) {
          good = false;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT(good);
  settle();
  // The same, in the order that the engine promises.
  const int64_t lag = configuration.pipelined ? 1 : 0;
  for (int64_t s = 0; s < steps; ++s) {
    if (s > lag) model.Update(batches[s - 1 - lag], gradients[s - 1 - lag], rate(s - 1 - lag));
    for (int64_t core = 0; core < cores; ++core) {
      for (size_t f = 0; f < configuration.features.size(); ++f) {
        const std::vector<float> expected = model.Lookup(f, batches[s][core]->features[f]);
        for (size_t i = 0; i < expected.size(); ++i) {
          const int64_t t = configuration.features[f].table;
          // A value beside the edge of a bucket may fall on either side.
          if (configuration.tables[t].quantization.enabled) continue;
          EXPECT(Near(expected[i], outputs[s][core][f][i]));
        }
      }
    }
  }
  for (int64_t s = std::max<int64_t>(0, steps - 1 - lag); s < steps; ++s) {
    model.Update(batches[s], gradients[s], rate(s));
  }
  for (size_t t = 0; t < configuration.tables.size(); ++t) {
    const TableConfig& table = configuration.tables[t];
    if (table.optimizer == Optimizer::kLion) continue;  // Signs of sums that are all but zero.
    for (int64_t slot = -1; slot < table.slots(); ++slot) {
      std::vector<float> found(table.rows * table.dimension);
      PoolHost host(pool);
      EXPECT(!engine->Use(&host, [&](TableStore* store) {
        return store->Read(&host, t, slot, ShardOf(table.rows, 1, 0, false), found.data());
      }));
      settle();
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT(Near(model.At(t, slot, 0)[i], found[i]));
      }
    }
  }
  return true;
}

}  // namespace embedding
}  // namespace opwright
