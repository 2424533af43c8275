#include "opwright_steps.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/testing/pool.h"
#include "c/try.h"
#include "embedding/cuda/store.h"
#include "embedding/engine.h"

struct opwright_steps {
  opwright_steps() : pool(static_cast<int>(std::thread::hardware_concurrency())), exec(pool) {}

  opwright::Pool pool;
  opwright::PoolContext exec;
  opwright::embedding::Configuration configuration;
  int64_t ids_per_sample = 0;
  std::shared_ptr<opwright::embedding::Engine> engine;  // Its end waits for the device.
};

namespace {

using opwright::FailedPreconditionError;
using opwright::Status;
using opwright::StatusOr;
using opwright::Try;
using opwright::embedding::Bags;
using opwright::embedding::Batch;
using opwright::embedding::Combiner;
using opwright::embedding::Engine;
using opwright::embedding::Lookups;
using opwright::embedding::Optimizer;
using opwright::embedding::TableConfig;

// Lives as long as the process, as an allocator of TensorFlow's does.
std::shared_ptr<opwright::embedding::cuda::Memory> Memory() {
  return {opwright::embedding::cuda::DeviceMemory(), [](auto*) {}};
}

}  // namespace

int32_t opwright_steps_create(int64_t tables, int64_t rows, int64_t dimension, int64_t samples,
                              int64_t ids_per_sample, void* stream, opwright_steps** made) {
  return Try([&]() -> Status {
    auto steps = std::make_unique<opwright_steps>();
    steps->ids_per_sample = ids_per_sample;
    for (int64_t t = 0; t < tables; ++t) {
      TableConfig table;
      table.name = "t" + std::to_string(t);
      table.rows = rows;
      table.dimension = dimension;
      table.optimizer = Optimizer::kAdagrad;
      table.hyper.learning_rate = 0.01f;
      steps->configuration.tables.push_back(table);
      steps->configuration.features.push_back({"f" + std::to_string(t), t, {samples}});
    }
    OPWRIGHT_RETURN_IF_ERROR(Complete(&steps->configuration));
    auto store =
        opwright::embedding::cuda::MakeTableStore(static_cast<cudaStream_t>(stream), Memory());
    auto engine = Engine::Create(steps->configuration, std::move(store));
    OPWRIGHT_RETURN_IF_ERROR(engine.status());
    steps->engine = *std::move(engine);
    *made = steps.release();
    return {};
  });
}

void opwright_steps_destroy(opwright_steps* steps) { delete steps; }

int32_t opwright_steps_enqueue(opwright_steps* steps, const int64_t* const* ids) {
  return Try([&]() -> Status {
    Batch batch;
    const auto& features = steps->configuration.features;
    const int64_t samples = features[0].samples(), count = samples * steps->ids_per_sample;
    std::vector<int64_t> splits;
    if (steps->ids_per_sample != 1) {
      for (int64_t s = 0; s <= samples; ++s) splits.push_back(s * steps->ids_per_sample);
    }
    batch.features.resize(features.size());
    std::vector<Status> statuses(features.size());
    steps->exec.For(static_cast<int64_t>(features.size()), [&](int64_t f) {
      Lookups lookups;
      lookups.ids = {ids[f], true, count};
      if (!splits.empty()) {
        lookups.form = Lookups::Form::kSplits;
        lookups.where = {splits.data(), true, static_cast<int64_t>(splits.size())};
      }
      StatusOr<Bags> bags = MakeBags(steps->configuration, f, lookups, Combiner::kSum);
      statuses[static_cast<size_t>(f)] = bags.status();
      if (bags.ok()) batch.features[static_cast<size_t>(f)] = *std::move(bags);
    });
    for (const Status& one : statuses) OPWRIGHT_RETURN_IF_ERROR(one);
    Status enqueued = FailedPreconditionError("the queue is full");
    const Engine::WaiterId waiter = steps->engine->Enqueue(
        &steps->exec, 0, std::move(batch), [&](const Status& status) { enqueued = status; });
    steps->engine->Cancel(waiter);
    return enqueued;
  });
}

int32_t opwright_steps_receive(opwright_steps* steps, float* const* outputs) {
  return Try([&]() -> Status {
    Status received = FailedPreconditionError("no batch is enqueued");
    const Engine::WaiterId waiter = steps->engine->Receive(
        &steps->exec, 0, [&](const Status& status, const Engine::Grant& grant) {
          received = status.ok() ? steps->engine->Lookup(&steps->exec, grant, outputs) : status;
        });
    steps->engine->Cancel(waiter);
    return received;
  });
}

int32_t opwright_steps_send(opwright_steps* steps, const float* const* gradients) {
  return Try([&] {
    const std::vector<const float*> all(gradients,
                                        gradients + steps->configuration.features.size());
    return steps->engine->Send(&steps->exec, 0, all, nullptr, {});
  });
}
