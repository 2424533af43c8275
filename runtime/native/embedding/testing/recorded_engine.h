// An engine for tests. Its store records the calls, and the results of Receive and Enqueue are
// kept.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/pool.h"
#include "base/testing/testing.h"
#include "embedding/engine.h"
#include "embedding/testing/elements.h"

namespace opwright::embedding {

constexpr StatusCode kPrecondition = StatusCode::kFailedPrecondition;
using Log = std::vector<std::string>;

inline std::string Print(const Log& log) {
  std::string all;
  for (const std::string& line : log) all += (all.empty() ? "" : ", ") + line;
  return all;
}

// A store that records its calls. Each batch has one id, which is its number in the log.
class Recorder : public TableStore {
 public:
  struct Record {
    Log log;
    int prepared = 0;                      // The number of calls of Prepare.
    Status prepare, lookup, update, late;  // The result of the next call of each kind.
  };

  explicit Recorder(std::shared_ptr<Record> record) : record_(std::move(record)) {}

  Status Allocate(const Configuration&) override { return {}; }
  Status Write(ExecutionContext*, int64_t, int64_t, const Shard&, const float*) override {
    return {};
  }
  Status Read(ExecutionContext*, int64_t, int64_t, const Shard&, float*) override { return {}; }
  StatusOr<PreparedRef> Prepare(ExecutionContext*,
                                std::shared_ptr<const Batch> batch) override {
    ++record_->prepared;
    const Status status = std::exchange(record_->prepare, Status());
    if (!status.ok()) return status;
    return std::make_shared<PreparedBatch>(std::move(batch));
  }
  PreparedRef LookUpAhead(ExecutionContext*, std::shared_ptr<const Batch> batch,
                          const AllocateOutputs&) override {
    record_->log.push_back("ahead " + std::to_string(batch->features[0].indices[0]));
    return nullptr;
  }
  Status Lookup(ExecutionContext*, PreparedBatch* batch, float* const*) override {
    record_->log.push_back("lookup " + Number(*batch));
    return std::exchange(record_->lookup, Status());
  }
  Status Update(ExecutionContext*, const std::vector<CoreGradients>& cores,
                const std::vector<float>& rates) override {
    std::string all;
    for (const CoreGradients& core : cores) {
      all += (all.empty() ? "" : "+") + Number(*core.batch);
      EXPECT_EQ(core.gradients.size(), 1u);
    }
    EXPECT_EQ(rates.size(), 1u);
    record_->log.push_back("update " + all);
    return std::exchange(record_->update, Status());
  }
  Status CheckGradients(ExecutionContext*, const std::vector<const float*>&) override {
    return {};
  }
  Status CheckUpdates(bool) override { return std::exchange(record_->late, Status()); }

 private:
  static std::string Number(const PreparedBatch& prepared) {
    return std::to_string(prepared.batch().features[0].indices[0]);
  }

  const std::shared_ptr<Record> record_;
};

// The result of a Receive or an Enqueue.
struct Answer {
  int times = 0;  // How many times the continuation was called.
  Status status;
  Engine::Grant grant;
  Engine::WaiterId waiter = 0;

  bool waits() const { return times == 0; }
  int64_t number() const {
    EXPECT_EQ(times, 1);
    EXPECT_OK(status);
    return grant.batch->features[0].indices[0];
  }
};
using AnswerRef = std::shared_ptr<Answer>;

struct Bed {
  explicit Bed(int64_t cores = 1, bool pipelined = false, bool dynamic = false) {
    configuration.tables.resize(1);
    configuration.tables[0].name = "t";
    configuration.tables[0].rows = 1000;
    configuration.tables[0].dimension = 1;
    configuration.tables[0].dynamic_rate = dynamic;
    configuration.features.push_back({"f", 0, {1}});
    configuration.mode = Mode::kTraining;
    configuration.cores = cores;
    configuration.pipelined = pipelined;
    EXPECT_OK(Complete(&configuration));
    engine = Value(Engine::Create(configuration, std::make_unique<Recorder>(record)));
  }

  Batch MakeBatch(int64_t number, Mode mode = Mode::kTraining) const {
    const int64_t ids[] = {number};
    Lookups lookups;
    lookups.ids = {ids, true, 1};
    Batch batch;
    batch.mode = mode;
    batch.features.push_back(Value(MakeBags(configuration, 0, lookups, Combiner::kSum)));
    return batch;
  }
  AnswerRef Enqueue(int64_t core, int64_t number, const RunRef& run = {},
                    Mode mode = Mode::kTraining) {
    auto answer = std::make_shared<Answer>();
    answer->waiter = engine->Enqueue(
        &exec, core, MakeBatch(number, mode),
        [answer](Status status) {
          ++answer->times;
          answer->status = std::move(status);
        },
        run, allocate_outputs);
    return answer;
  }
  AnswerRef Receive(int64_t core, const RunRef& run = {}) {
    auto answer = std::make_shared<Answer>();
    answer->waiter = engine->Receive(
        &exec, core,
        [answer](Status status, Engine::Grant grant) {
          ++answer->times;
          answer->status = std::move(status);
          answer->grant = std::move(grant);
        },
        run);
    return answer;
  }
  Status Lookup(const Answer& answer) {
    EXPECT_EQ(answer.times, 1);
    EXPECT_OK(answer.status);
    float out;
    float* const outputs[] = {&out};
    return engine->Lookup(&exec, answer.grant, outputs);
  }
  Status Send(int64_t core, const RunRef& run = {}, const std::vector<float>& rates = {}) {
    return engine->Send(&exec, core, {&gradient}, nullptr, rates, run);
  }
  Status Use() {
    return engine->Use(&exec, [&](TableStore*) -> Status {
      record->log.push_back("use");
      return {};
    });
  }
  Status Read() {
    return engine->Read(&exec, [&](TableStore*) -> Status {
      record->log.push_back("read");
      return std::exchange(record->lookup, Status());
    });
  }
  // Receives a batch, looks it up and sends its gradients.
  void Step(int64_t core, const RunRef& run = {}) {
    EXPECT_OK(Lookup(*Receive(core, run)));
    EXPECT_OK(Send(core, run));
  }
  void LogIs(const Log& expected) {
    EXPECT_EQ(Print(record->log), Print(expected));
    record->log.clear();
  }

  Pool pool{1};
  PoolContext exec{pool};
  Configuration configuration;
  std::shared_ptr<Recorder::Record> record = std::make_shared<Recorder::Record>();
  std::shared_ptr<Engine> engine;
  AllocateOutputs allocate_outputs;
  const float gradient = 1;
};

inline std::shared_ptr<Run> Running() {
  return std::make_shared<Run>(/*has_private_batches=*/true);
}

inline void End(Bed& bed, const std::shared_ptr<Run>& run, Run::State state, bool sure = true) {
  run->End(state);
  bed.engine->RunEnded(run, sure);
}

}  // namespace opwright::embedding
