// Random configurations and steps for tests. An engine makes the steps, with separate threads
// for each core. A reference implementation makes the same steps one after the other, in
// float64.
#pragma once

#include <atomic>
#include <cmath>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "embedding/engine.h"
#include "embedding/testing/elements.h"

namespace opwright::embedding {

// Output buffers in vectors, one for each feature.
template <class Vector>
class VectorBuffers : public OutputBuffers {
 public:
  explicit VectorBuffers(std::vector<Vector> buffers)
      : OutputBuffers(PointersTo(&buffers)), buffers_(std::move(buffers)) {}

 private:
  static std::vector<float*> PointersTo(std::vector<Vector>* buffers) {
    std::vector<float*> pointers;
    for (Vector& one : *buffers) pointers.push_back(one.data());
    return pointers;
  }

  const std::vector<Vector> buffers_;
};

inline Configuration DrawConfiguration(Random& random,
                                       const std::vector<Optimizer>& optimizers = WithRules()) {
  Configuration configuration;
  const int64_t tables = 1 + random.Below(3);
  for (int64_t t = 0; t < tables; ++t) {
    TableConfig table;
    table.name = "table" + std::to_string(t);
    table.rows = 1 + random.Below(random.Below(2) ? 5 : 3000);
    table.dimension = 1 + random.Below(random.Below(2) ? 9 : 150);
    table.optimizer = OneOf(random, optimizers);
    table.dynamic_rate = table.optimizer == Optimizer::kFrequencyEstimator;
    table.hyper = SomeHyper(table.optimizer);
    table.accumulate = random.Below(3) != 0;
    table.every_row = TraitsOf(table.optimizer).non_lazy() >= 0 && random.Below(2);
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
  EXPECT_OK(Complete(&configuration));  // All dynamic learning rates share tag 0.
  return configuration;
}

// The ids and weights of one feature, with row splits. View() returns a view of them.
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

// Appends the bags of the next feature to a batch.
inline void AddBags(const Configuration& configuration, int64_t feature, const Input& input,
                    Combiner combiner, Batch* batch) {
  batch->features.push_back(Value(MakeBags(configuration, feature, input.View(), combiner)));
}

// A copy of a batch.
inline Batch Clone(const Batch& from) {
  const auto clone = [](const auto& array, int64_t count) {
    using T = std::remove_const_t<std::remove_reference_t<decltype(array[0])>>;
    std::unique_ptr<T[]> made;
    if (array) {
      made.reset(new T[count]);
      std::copy(array.get(), array.get() + count, made.get());
    }
    return made;
  };
  Batch made;
  made.mode = from.mode;
  for (const Bags& bags : from.features) {
    made.features.emplace_back();
    Bags& to = made.features.back();
    to.samples = bags.samples;
    to.single = bags.single;
    to.combiner = bags.combiner;
    to.offsets = clone(bags.offsets, bags.samples + 1);
    to.indices = clone(bags.indices, bags.count());
    to.per_sample_weights = clone(bags.per_sample_weights, bags.count());
    to.scales = clone(bags.scales, bags.samples);
  }
  return made;
}

// The reference implementation of tables. It computes in float64, one id after the other.
class Model {
 public:
  explicit Model(const Configuration& configuration) : configuration_(configuration) {
    for (const TableConfig& table : configuration.tables) {
      auto& parts = tables_.emplace_back();
      for (int64_t slot = -1; slot < table.slots(); ++slot) {
        parts.emplace_back(table.rows * table.columns(slot), 0.f);
      }
    }
  }

  // The weights (slot -1) of a row, or one of its slots.
  float* At(int64_t t, int64_t slot, int64_t row) {
    const int64_t columns = configuration_.tables[t].columns(slot);
    return tables_[t][static_cast<size_t>(slot + 1)].data() + row * columns;
  }

  std::vector<float> Lookup(int64_t feature, const Bags& bags) {
    const int64_t t = configuration_.features[feature].table;
    const TableConfig& table = configuration_.tables[t];
    std::vector<float> out(bags.samples * table.dimension);
    for (int64_t s = 0; s < bags.samples; ++s) {
      for (int64_t k = 0; k < table.dimension; ++k) {
        double sum = 0;
        for (int64_t i = bags.offsets[s]; i < bags.offsets[s + 1]; ++i) {
          double x = At(t, -1, bags.indices[i])[k];
          if (table.quantization.enabled) x = Quantized(table.quantization, x);
          sum += (bags.per_sample_weights ? bags.per_sample_weights[i] : 1) * x;
        }
        out[s * table.dimension + k] =
            static_cast<float>(sum * (bags.scales ? bags.scales[s] : 1));
      }
    }
    return out;
  }

  template <class Floats>
  void Update(const std::vector<const Batch*>& batches,
              const std::vector<std::vector<Floats>>& gradients, float step) {
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
            for (int64_t i = bags.offsets[s]; i < bags.offsets[s + 1]; ++i) {
              float coefficient = bags.scales ? bags.scales[s] : 1;
              if (bags.per_sample_weights) coefficient *= bags.per_sample_weights[i];
              std::vector<double> one(table.dimension);
              for (int64_t k = 0; k < table.dimension; ++k) {
                one[k] = static_cast<double>(coefficient) *
                         gradients[core][f][s * table.dimension + k];
              }
              by_row[bags.indices[i]].push_back(one);
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
    float* parts[1 + kMaxSlots];
    for (int64_t i = 0; i <= table.slots(); ++i) parts[i] = At(t, i - 1, row);
    UpdateRow(table.optimizer, hyper, table.dimension, gradient.data(), parts);
  }

  const Configuration& configuration_;
  // tables_[table][slot + 1] has the shape [rows, columns].
  std::vector<std::vector<std::vector<float>>> tables_;
};

// Makes the steps of a random configuration with an engine, and the same steps one after the
// other with Model. After settle(), the host can read outputs and tables of the store. `Floats`
// is a vector in memory that the store can access.
template <class Floats>
class DrawnSteps {
 public:
  DrawnSteps(uint64_t seed, Pool& pool, std::unique_ptr<TableStore> store,
             const std::function<void()>& settle, const std::vector<Optimizer>& optimizers)
      : random_{seed},
        pool_(pool),
        settle_(settle),
        configuration_(DrawConfiguration(random_, optimizers)),
        engine_(Value(Engine::Create(configuration_, std::move(store)))),
        model_(configuration_) {
    FillTables();
    for (int64_t s = 0; s < kSteps; ++s) DrawStep(s);
  }

  // Each core has two threads, which do not synchronize. One enqueues, the other looks up and
  // sends.
  void Run() {
    std::vector<std::thread> threads;
    for (int64_t core = 0; core < configuration_.cores; ++core) {
      threads.emplace_back([this, core] {
        PoolContext exec(pool_);
        for (int64_t s = 0; s < kSteps; ++s) Enqueue(exec, s, core);
      });
      threads.emplace_back([this, core] {
        for (int64_t s = 0; s < kSteps; ++s) LookUpAndSend(s, core);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT(good_);
    settle_();
  }

  // Makes the same steps with Model, in the order that the engine guarantees, and compares the
  // results.
  void Compare() {
    const int64_t lag = configuration_.pipelined ? 1 : 0;
    for (int64_t s = 0; s < kSteps; ++s) {
      if (s > lag) Update(s - 1 - lag);
      for (int64_t core = 0; core < configuration_.cores; ++core) CompareOutputs(s, core);
    }
    for (int64_t s = std::max<int64_t>(0, kSteps - 1 - lag); s < kSteps; ++s) Update(s);
    for (size_t t = 0; t < configuration_.tables.size(); ++t) CompareTable(t);
  }

 private:
  static constexpr int64_t kSteps = 6;
  static float RateOf(int64_t step) { return 10.f + static_cast<float>(step); }

  void FillTables() {
    for (size_t t = 0; t < configuration_.tables.size(); ++t) {
      const TableConfig& table = configuration_.tables[t];
      for (int64_t slot = -1; slot < table.slots(); ++slot) {
        Floats values(table.rows * table.columns(slot));
        for (float& value : values) {
          value = static_cast<float>(slot < 0 ? random_.Uniform() : random_.Uniform() + 1);
        }
        std::copy(values.begin(), values.end(), model_.At(t, slot, 0));
        PoolContext exec(pool_);
        EXPECT_OK(engine_->Use(&exec, [&](TableStore* store) {
          return store->Write(&exec, t, slot, {table.rows, 0, 1}, values.data());
        }));
        settle_();
      }
    }
  }

  void DrawStep(int64_t s) {
    outputs_[s].resize(configuration_.cores);
    for (int64_t core = 0; core < configuration_.cores; ++core) {
      Batch batch;
      gradients_[s].emplace_back();
      for (size_t f = 0; f < configuration_.features.size(); ++f) {
        const Input input = DrawInput(random_, configuration_, f);
        AddBags(configuration_, f, input, static_cast<Combiner>(random_.Below(3)), &batch);
        const FeatureConfig& feature = configuration_.features[f];
        gradients_[s][core].emplace_back(feature.samples() *
                                         configuration_.tables[feature.table].dimension);
        for (float& g : gradients_[s][core].back()) g = static_cast<float>(random_.Uniform());
      }
      batches_[s].push_back(std::move(batch));
    }
  }

  void Enqueue(ExecutionContext& exec, int64_t s, int64_t core) {
    const auto check = [this](const Status& status) {
      if (!status.ok()) good_ = false;
    };
    const auto allocate_outputs = [this, s, core] {
      std::vector<Floats> buffers;
      for (const Floats& one : gradients_[s][core]) buffers.emplace_back(one.size());
      return std::make_shared<const VectorBuffers<Floats>>(std::move(buffers));
    };
    engine_->Enqueue(&exec, core, Clone(batches_[s][core]), check, {}, allocate_outputs);
  }

  void LookUpAndSend(int64_t s, int64_t core) {
    PoolContext exec(pool_);
    std::promise<Engine::Grant> grant;
    engine_->Receive(&exec, core, [&](Status status, const Engine::Grant& given) {
      if (!status.ok()) good_ = false;
      grant.set_value(given);
    });
    const Engine::Grant given = grant.get_future().get();
    std::vector<float*> out;
    for (size_t f = 0; f < configuration_.features.size(); ++f) {
      outputs_[s][core].emplace_back(gradients_[s][core][f].size());
      out.push_back(outputs_[s][core].back().data());
    }
    // Some lookups use outputs other than the buffers of the lookup that has begun ahead.
    const OutputBuffersRef buffers =
        given.prepared && s % 3 < 2 ? given.prepared->outputs() : nullptr;
    const std::vector<float*> filled = buffers ? buffers->data() : out;
    if (!engine_->Lookup(&exec, given, filled.data()).ok()) good_ = false;
    for (size_t f = 0; buffers && f < out.size(); ++f) {
      std::copy_n(filled[f], outputs_[s][core][f].size(), out[f]);
    }
    std::vector<const float*> values;
    for (const auto& one : gradients_[s][core]) values.push_back(one.data());
    const std::vector<float> rates(configuration_.tags, RateOf(s));
    if (!engine_->Send(&exec, core, values, nullptr, rates).ok()) good_ = false;
  }

  void Update(int64_t s) {
    std::vector<const Batch*> all;
    for (const Batch& batch : batches_[s]) all.push_back(&batch);
    model_.Update(all, gradients_[s], RateOf(s));
  }

  void CompareOutputs(int64_t s, int64_t core) {
    for (size_t f = 0; f < configuration_.features.size(); ++f) {
      const std::vector<float> expected = model_.Lookup(f, batches_[s][core].features[f]);
      const int64_t t = configuration_.features[f].table;
      // A value at the edge of a bucket may be rounded either way.
      if (configuration_.tables[t].quantization.enabled) continue;
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT(Near(expected[i], outputs_[s][core][f][i]));
      }
    }
  }

  void CompareTable(size_t t) {
    const TableConfig& table = configuration_.tables[t];
    // Lion uses the signs of sums, which rounding may change if a sum is close to 0.
    if (table.optimizer == Optimizer::kLion) return;
    for (int64_t slot = -1; slot < table.slots(); ++slot) {
      Floats found(table.rows * table.columns(slot));
      PoolContext exec(pool_);
      EXPECT_OK(engine_->Use(&exec, [&](TableStore* store) {
        return store->Read(&exec, t, slot, {table.rows, 0, 1}, found.data());
      }));
      settle_();
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT(Near(model_.At(t, slot, 0)[i], found[i]));
      }
    }
  }

  Random random_;
  Pool& pool_;
  const std::function<void()>& settle_;
  const Configuration configuration_;
  const std::shared_ptr<Engine> engine_;
  Model model_;
  // Indexed by step and core.
  std::vector<std::vector<Batch>> batches_ = std::vector<std::vector<Batch>>(kSteps);
  using Values = std::vector<std::vector<std::vector<Floats>>>;
  Values gradients_ = Values(kSteps), outputs_ = Values(kSteps);
  std::atomic<bool> good_{true};
};

template <class Floats = std::vector<float>>
void StepsAreInOrder(uint64_t seed, Pool& pool, std::unique_ptr<TableStore> store,
                     const std::function<void()>& settle,
                     const std::vector<Optimizer>& optimizers = WithRules()) {
  DrawnSteps<Floats> steps(seed, pool, std::move(store), settle, optimizers);
  steps.Run();
  steps.Compare();
}

}  // namespace opwright::embedding
