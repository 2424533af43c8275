// Two hosts in one process for tests. Each has an engine, and they train one table together.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "base/testing/pool.h"
#include "base/testing/testing.h"
#include "embedding/cpu/hosts.h"
#include "embedding/engine.h"
#include "embedding/testing/hosts.h"
#include "embedding/testing/steps.h"

namespace opwright::embedding {

// Runs `task` for each host in a separate thread. An exception of a task is thrown again here.
inline void OnEach(int64_t hosts, const std::function<void(int64_t)>& task) {
  std::vector<std::future<void>> running;
  for (int64_t h = 0; h < hosts; ++h) {
    running.push_back(std::async(std::launch::async, [&task, h] { task(h); }));
  }
  for (std::future<void>& one : running) one.get();
}

// The engines of two hosts. The table has 10 rows of one float, which are 0 at first. It has
// one feature and is trained with SGD.
class TwoEngines {
 public:
  using MakeExchange =
      std::function<std::shared_ptr<Exchange>(std::shared_ptr<Mailboxes>, int64_t host)>;

  static std::shared_ptr<Exchange> MakeThreads(std::shared_ptr<Mailboxes> mailboxes,
                                               int64_t host) {
    return std::make_shared<ThreadExchange>(std::move(mailboxes), 2, host);
  }

  // All `samples` of the feature have the same id.
  explicit TwoEngines(bool pipelined = false, int64_t samples = 1,
                      const MakeExchange& make_exchange = MakeThreads)
      : samples_(samples) {
    TableConfig table;
    table.name = "table";
    table.rows = 10;
    table.dimension = 1;
    table.optimizer = Optimizer::kSgd;
    table.has_rate = true;
    table.dynamic_rate = true;
    configuration_.tables.push_back(table);
    configuration_.features.push_back({"feature", 0, {samples_}});
    configuration_.mode = Mode::kTraining;
    configuration_.pipelined = pipelined;
    EXPECT_OK(Complete(&configuration_));
    const auto mailboxes = std::make_shared<Mailboxes>();
    for (int64_t h = 0; h < 2; ++h) {
      engines_.push_back(Value(Engine::Create(
          configuration_, MakeHostsStore(make_exchange(mailboxes, h), MakeCpuTableStore()))));
    }
  }

  Engine& engine(int64_t host) { return *engines_[static_cast<size_t>(host)]; }

  Batch MakeBatch(int64_t id, Mode mode = Mode::kTraining) const {
    Input input;
    input.splits.push_back(0);
    for (int64_t i = 1; i <= samples_; ++i) {
      input.splits.push_back(i);
      input.ids.push_back(id);
    }
    Batch batch;
    batch.mode = mode;
    AddBags(configuration_, 0, input, Combiner::kSum, &batch);
    return batch;
  }
  // Enqueues a batch. The queue must have capacity, so that Enqueue does not wait.
  Status Enqueue(int64_t host, Batch batch, const RunRef& run = {}) {
    PoolContext exec(pool_);
    Status status;
    engine(host).Enqueue(
        &exec, 0, std::move(batch), [&status](Status found) { status = std::move(found); },
        run);
    return status;
  }
  void Enqueue(int64_t host, int64_t id, const RunRef& run = {}) {
    EXPECT_OK(Enqueue(host, MakeBatch(id), run));
  }
  Engine::Grant Receive(int64_t host, const RunRef& run = {}) {
    PoolContext exec(pool_);
    std::promise<Engine::Grant> grant;
    engine(host).Receive(
        &exec, 0,
        [&](const Status& status, const Engine::Grant& got) {
          EXPECT_OK(status);
          grant.set_value(got);
        },
        run);
    return grant.get_future().get();
  }
  StatusOr<float> LookUp(int64_t host, const Engine::Grant& grant) {
    PoolContext exec(pool_);
    std::vector<float> values(static_cast<size_t>(samples_), -1.f);
    float* const to = values.data();
    OPWRIGHT_RETURN_IF_ERROR(engine(host).Lookup(&exec, grant, &to));
    return values.front();
  }
  StatusOr<float> LookUp(int64_t host, const RunRef& run = {}) {
    return LookUp(host, Receive(host, run));
  }
  // Sends the same gradient for every sample.
  Status Send(int64_t host, float gradient, float rate = 1) {
    PoolContext exec(pool_);
    const auto kept =
        std::make_shared<std::vector<float>>(static_cast<size_t>(samples_), gradient);
    return engine(host).Send(&exec, 0, {kept->data()}, kept, {rate});
  }
  // Makes a step in which each host looks up one id. All gradients are 1.
  void Step(int64_t first, int64_t second) {
    OnEach(2, [&](int64_t h) {
      Enqueue(h, h == 0 ? first : second);
      EXPECT_OK(LookUp(h).status());
      EXPECT_OK(Send(h, 1));
    });
  }
  std::vector<float> Rows(int64_t host) {
    std::vector<float> rows(10);
    PoolContext exec(pool_);
    EXPECT_OK(engine(host).Use(&exec, [&](TableStore* store) {
      return store->Read(&exec, 0, -1, {10, 0, 1}, rows.data());
    }));
    return rows;
  }
  // Checks the rows, and the number of complete steps, on both hosts.
  void ExpectRows(const std::vector<float>& wanted, int64_t steps = 2) {
    OnEach(2, [&](int64_t h) {
      EXPECT_EQ(Rows(h) == wanted, true);
      EXPECT_EQ(engine(h).Steps(), steps);
    });
  }

 private:
  const int64_t samples_;
  Configuration configuration_;
  std::vector<std::shared_ptr<Engine>> engines_;
  Pool pool_{2};
};

}  // namespace opwright::embedding
