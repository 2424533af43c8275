// What is looked up after which update, whose batches are whose, and what becomes of runs that
// fail, are cancelled or wait: with a store that writes down what it is asked to do. And random
// steps of several cores with threads of their own, against the same steps one after the other.
#include "embedding/engine.h"

#include <map>

#include "embedding/testing/scarce_memory.h"
#include "embedding/testing/steps.h"

namespace opwright::embedding {
namespace {

constexpr StatusCode kPrecondition = StatusCode::kFailedPrecondition;
using Log = std::vector<std::string>;

std::string Print(const Log& log) {
  std::string all;
  for (const std::string& line : log) all += (all.empty() ? "" : ", ") + line;
  return all;
}

// Batches are known by the number that is their only id.
class Recorder : public TableStore {
 public:
  struct Told {
    Log log;
    int prepared = 0;                      // Batches,
    Status prepare, lookup, update, late;  // and how the next one ends.
  };

  explicit Recorder(std::shared_ptr<Told> told) : told_(std::move(told)) {}

  Status Allocate(const Configuration&) override { return {}; }
  Status Write(ExecutionContext*, int64_t, int64_t, const Shard&, const float*) override {
    return {};
  }
  Status Read(ExecutionContext*, int64_t, int64_t, const Shard&, float*) override { return {}; }
  StatusOr<PreparedRef> Prepare(ExecutionContext*,
                                std::shared_ptr<const Batch> batch) override {
    ++told_->prepared;
    const Status status = std::exchange(told_->prepare, Status());
    if (!status.ok()) return status;
    return std::make_shared<PreparedBatch>(std::move(batch));
  }
  PreparedRef LookUpAhead(ExecutionContext*, std::shared_ptr<const Batch> batch,
                          const AllocateOutputs&) override {
    told_->log.push_back("ahead " + std::to_string(batch->features[0].indices[0]));
    return nullptr;
  }
  Status Lookup(ExecutionContext*, PreparedBatch* batch, float* const*) override {
    told_->log.push_back("lookup " + Number(*batch));
    return std::exchange(told_->lookup, Status());
  }
  Status Update(ExecutionContext*, const std::vector<CoreGradients>& cores,
                const std::vector<float>& rates) override {
    std::string all;
    for (const CoreGradients& core : cores) {
      all += (all.empty() ? "" : "+") + Number(*core.batch);
      EXPECT_EQ(core.gradients.size(), 1u);
    }
    EXPECT_EQ(rates.size(), 1u);
    told_->log.push_back("update " + all);
    return std::exchange(told_->update, Status());
  }
  Status CheckGradients(ExecutionContext*, const std::vector<const float*>&) override {
    return {};
  }
  Status CheckUpdates(bool) override { return std::exchange(told_->late, Status()); }

 private:
  static std::string Number(const PreparedBatch& prepared) {
    return std::to_string(prepared.batch().features[0].indices[0]);
  }

  const std::shared_ptr<Told> told_;
};

// How a Receive or an Enqueue ended, if it has.
struct Answer {
  int times = 0;
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
    engine = Value(Engine::Create(configuration, std::make_unique<Recorder>(told)));
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
      told->log.push_back("use");
      return {};
    });
  }
  Status Read() {
    return engine->Read(&exec, [&](TableStore*) -> Status {
      told->log.push_back("read");
      return std::exchange(told->lookup, Status());
    });
  }
  // A step of one core.
  void Step(int64_t core, const RunRef& run = {}) {
    EXPECT_OK(Lookup(*Receive(core, run)));
    EXPECT_OK(Send(core, run));
  }
  void LogIs(const Log& expected) {
    EXPECT_EQ(Print(told->log), Print(expected));
    told->log.clear();
  }

  Pool pool{1};
  PoolContext exec{pool};
  Configuration configuration;
  std::shared_ptr<Recorder::Told> told = std::make_shared<Recorder::Told>();
  std::shared_ptr<Engine> engine;
  AllocateOutputs allocate_outputs;
  const float gradient = 1;
};

std::shared_ptr<Run> Running() { return std::make_shared<Run>(/*has_private_batches=*/true); }

void End(Bed& bed, const std::shared_ptr<Run>& run, Run::State state, bool sure = true) {
  run->End(state);
  bed.engine->RunEnded(run, sure);
}

TEST(Engine, StepsSeeTheUpdateBefore) {
  Bed bed;
  for (int64_t n = 0; n < 3; ++n) bed.Enqueue(0, n);
  for (int64_t n = 0; n < 3; ++n) bed.Step(0);
  bed.LogIs({"lookup 0", "update 0", "lookup 1", "update 1", "lookup 2", "update 2"});
  EXPECT_EQ(bed.engine->Steps(), 3);
}

TEST(Engine, PipelinedStepsSeeTheUpdateBeforeThat) {
  Bed bed(1, true);
  for (int64_t n = 0; n < 4; ++n) bed.Enqueue(0, n);
  for (int64_t n = 0; n < 4; ++n) bed.Step(0);
  bed.LogIs(
      {"lookup 0", "lookup 1", "update 0", "lookup 2", "update 1", "lookup 3", "update 2"});
  EXPECT_EQ(bed.engine->Steps(), 4);
  // Who uses the tables sees all.
  EXPECT_OK(bed.Use());
  bed.LogIs({"update 3", "use"});
}

// The second step of a core waits until all cores have sent the first.
TEST(Engine, AStepIsUpdatedWhole) {
  Bed bed(2);
  for (int64_t n = 0; n < 2; ++n) {
    for (int64_t core = 0; core < 2; ++core) bed.Enqueue(core, 10 * core + n);
  }
  bed.Step(0);
  const AnswerRef next = bed.Receive(0);
  EXPECT(next->waits());
  EXPECT_EQ(bed.engine->WhatFor(next->waiter),
            "for the update of step 0, for which core 1 has not sent gradients "
            "(SendTPUEmbeddingGradients)");
  bed.Step(1);
  EXPECT_EQ(next->number(), 1);
  bed.LogIs({"lookup 0", "lookup 10", "update 0+10"});
  EXPECT_EQ(bed.engine->WhatFor(next->waiter), "");
}

// A lookup under way holds the update back.
TEST(Engine, UpdatesWaitForLookups) {
  Bed bed(2);
  bed.Enqueue(0, 0);
  bed.Enqueue(1, 1);
  const AnswerRef first = bed.Receive(0), second = bed.Receive(1);
  EXPECT_OK(bed.Lookup(*first));
  EXPECT_OK(bed.Send(0));
  EXPECT_OK(bed.Send(1));
  bed.LogIs({"lookup 0"});
  EXPECT_OK(bed.Lookup(*second));
  bed.LogIs({"lookup 1", "update 0+1"});
}

TEST(Engine, InferenceSeesEveryUpdate) {
  Bed bed(1, true);
  bed.Enqueue(0, 0);
  bed.Enqueue(0, 1, {}, Mode::kInference);
  bed.Step(0);
  bed.LogIs({"lookup 0"});
  EXPECT_OK(bed.Lookup(*bed.Receive(0)));
  bed.LogIs({"update 0", "lookup 1"});
  EXPECT_EQ(bed.engine->Steps(), 1);
  EXPECT_ERROR(bed.Send(0), kPrecondition, "no step of core 0 awaits gradients");
}

TEST(Engine, ReadsSeeEveryUpdate) {
  Bed bed(1, true);
  EXPECT_OK(bed.Read());
  for (int64_t n = 0; n < 3; ++n) bed.Enqueue(0, n);
  bed.Step(0);
  EXPECT_OK(bed.Read());
  bed.LogIs({"read", "lookup 0", "update 0", "read"});
  // During a lookup that is not over, and between the steps of a core.
  const AnswerRef answer = bed.Receive(0);
  EXPECT_OK(bed.Read());
  EXPECT_OK(bed.Lookup(*answer));
  EXPECT_OK(bed.Read());
  EXPECT_OK(bed.Send(0));
  bed.LogIs({"read", "lookup 1", "read"});
  // One that cannot be made is reported, and made when it can be.
  bed.told->update = InvalidArgumentError("no");
  EXPECT_ERROR(bed.Read(), StatusCode::kInvalidArgument, "the update of step 1 is put off: no");
  bed.told->lookup = InvalidArgumentError("not this one");
  EXPECT_ERROR(bed.Read(), StatusCode::kInvalidArgument, "not this one");
  EXPECT_OK(bed.Read());
  bed.LogIs({"update 1", "update 1", "read", "read"});
  bed.Step(0);
  EXPECT_EQ(bed.engine->Steps(), 3);
  bed.engine->Close("over");
  EXPECT_ERROR(bed.Read(), kPrecondition, "over");
}

TEST(Engine, StoresThatReadInStepsOnlySaySo) {
  Bed bed;
  EXPECT_ERROR(bed.engine->Read(&bed.exec,
                                [&](TableStore* store) {
                                  return store->LookUpPacked(&bed.exec, {}, nullptr);
                                }),
               StatusCode::kUnimplemented, "enqueue the ids");
}

TEST(Engine, BackwardOnlyIsNotLookedUp) {
  Bed bed(2);
  for (int64_t n = 0; n <= Engine::kMaxStepsAhead; ++n) {
    bed.Enqueue(0, n, {}, Mode::kBackwardOnly);
  }
  EXPECT_ERROR(bed.Receive(0)->status, kPrecondition, "BACKWARD_PASS_ONLY");
  for (int64_t n = 0; n < Engine::kMaxStepsAhead; ++n) EXPECT_OK(bed.Send(0));
  EXPECT_ERROR(bed.Send(0), kPrecondition,
               "core 0 has sent the gradients of 16 steps that other cores have not");
  bed.Enqueue(1, 100, {}, Mode::kBackwardOnly);
  EXPECT_OK(bed.Send(1));
  bed.LogIs({"update 0+100"});
  EXPECT_OK(bed.Send(0));
}

// Memory is short for each block of the call in turn. Queues take new memory now and then only,
// so it takes many batches to come to every place.
TEST(Engine, EnqueueWithoutAnyOneBlockLosesNoBatch) {
  Bed bed;
  std::vector<int64_t> in_queue;
  in_queue.reserve(1000);
  int64_t number = 0;
  while (in_queue.size() < 100) {
    bool was_short = true;
    for (int64_t block = 0; was_short; ++block, ++number) {
      Batch batch = bed.MakeBatch(number);
      const Engine::OnQueued on_queued = [&in_queue, number](const Status& status) {
        if (status.ok()) in_queue.push_back(number);
      };
      const ScarceMemory scarce = ScarceMemory::AtBlock(block);
      try {
        bed.engine->Enqueue(&bed.exec, 0, std::move(batch), on_queued);
      } catch (const std::bad_alloc&) {
        // Before the engine had anything of it.
      }
      was_short = scarce.was_short();
    }
  }
  EXPECT(in_queue.size() < static_cast<size_t>(Engine::kMaxQueued));
  for (const int64_t wanted : in_queue) {
    const AnswerRef answer = bed.Receive(0);
    EXPECT_EQ(answer->number(), wanted);
    EXPECT_OK(bed.Lookup(*answer));
    EXPECT_OK(bed.Send(0));
  }
  EXPECT(bed.Receive(0)->waits());
}

TEST(Engine, RatesAreChecked) {
  Bed bed(2, false, /*dynamic=*/true);
  for (int64_t core = 0; core < 2; ++core) {
    bed.Enqueue(core, core);
    EXPECT_OK(bed.Lookup(*bed.Receive(core)));
  }
  constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;
  EXPECT_ERROR(bed.Send(0), kInvalid, "one learning rate for each of the 1 tags");
  EXPECT_ERROR(bed.Send(0, {}, {NAN}), kInvalid,
               "table 0 ('t'): its learning rate, of tag 0, must be finite");
  EXPECT_OK(bed.Send(0, {}, {0.5f}));
  EXPECT_ERROR(bed.Send(1, {}, {0.25f}), kInvalid,
               "core 1 sends other learning rates than another core sent for the same step");
  EXPECT_OK(bed.Send(1, {}, {0.5f}));
  bed.LogIs({"lookup 0", "lookup 1", "update 0+1"});
}

TEST(Engine, WhatCannotBeTrainedIsRefused) {
  for (const bool has_rule : {true, false}) {
    Bed bed;
    bed.configuration.tables[0].has_rate = false;
    if (!has_rule) bed.configuration.tables[0].optimizer = Optimizer::kUserDefinedProgram;
    bed.engine = Value(Engine::Create(bed.configuration, std::make_unique<Recorder>(bed.told)));
    bed.Enqueue(0, 1);
    EXPECT_OK(bed.Lookup(*bed.Receive(0)));
    EXPECT_ERROR(bed.Send(0), has_rule ? kPrecondition : StatusCode::kUnimplemented,
                 has_rule ? "without a learning_rate" : "no rule is public");
  }
}

TEST(Engine, ARefusedUpdateIsPutOff) {
  Bed bed;
  for (int64_t n = 0; n < 2; ++n) bed.Enqueue(0, n);
  EXPECT_OK(bed.Lookup(*bed.Receive(0)));
  bed.told->update = ResourceExhaustedError("no memory");
  EXPECT_ERROR(bed.Send(0), StatusCode::kResourceExhausted,
               "the update of step 0 is put off: no memory");
  EXPECT_EQ(bed.engine->Steps(), 1);
  bed.told->update = ResourceExhaustedError("no memory");
  EXPECT_ERROR(bed.Receive(0)->status, StatusCode::kResourceExhausted, "put off: no memory");
  EXPECT_EQ(bed.Receive(0)->number(), 1);
  bed.LogIs({"lookup 0", "update 0", "update 0", "update 0"});
}

TEST(Engine, ARefusedLookupIsTheNextOne) {
  Bed bed;
  for (int64_t n = 0; n < 2; ++n) bed.Enqueue(0, n);
  bed.told->lookup = ResourceExhaustedError("no memory");
  EXPECT_ERROR(bed.Lookup(*bed.Receive(0)), StatusCode::kResourceExhausted, "no memory");
  EXPECT_ERROR(bed.Send(0), kPrecondition, "no step");
  bed.Step(0);
  bed.Step(0);
  bed.LogIs({"lookup 0", "lookup 0", "update 0", "lookup 1", "update 1"});
}

// Once for its lookup and its update; and if there is no lookup, for the update.
TEST(Engine, ABatchIsPreparedOnce) {
  Bed bed;
  bed.Enqueue(0, 0);
  bed.Enqueue(0, 1);
  bed.told->prepare = ResourceExhaustedError("no memory");
  EXPECT_ERROR(bed.Lookup(*bed.Receive(0)), StatusCode::kResourceExhausted, "no memory");
  EXPECT_EQ(bed.told->prepared, 1);
  bed.Step(0);
  EXPECT_EQ(bed.told->prepared, 2);
  EXPECT_OK(bed.Lookup(*bed.Receive(0)));
  bed.told->update = ResourceExhaustedError("no memory");
  EXPECT_ERROR(bed.Send(0), StatusCode::kResourceExhausted, "put off");
  EXPECT_OK(bed.Use());
  EXPECT_EQ(bed.told->prepared, 3);
  bed.Enqueue(0, 2, {}, Mode::kBackwardOnly);
  bed.told->prepare = ResourceExhaustedError("no memory");
  EXPECT_ERROR(bed.Send(0), StatusCode::kResourceExhausted,
               "the update of step 2 is put off: no memory");
  bed.told->update = ResourceExhaustedError("no memory");
  EXPECT_ERROR(bed.Use(), StatusCode::kResourceExhausted, "put off");
  EXPECT_OK(bed.Use());
  EXPECT_EQ(bed.told->prepared, 5);
  bed.LogIs({"lookup 0", "update 0", "lookup 1", "update 1", "update 1", "use", "update 2",
             "update 2", "use"});
}

// What a device found too late, the next call reports, and does nothing else.
TEST(Engine, LateErrorsAreTold) {
  Bed bed;
  const Status late = InvalidArgumentError("gradients must be finite");
  for (int64_t n = 0; n < 2; ++n) bed.Enqueue(0, n);
  bed.told->late = late;
  EXPECT_ERROR(bed.Receive(0)->status, StatusCode::kInvalidArgument, "must be finite");
  EXPECT_OK(bed.Lookup(*bed.Receive(0)));
  bed.told->late = late;
  EXPECT_ERROR(bed.Send(0), StatusCode::kInvalidArgument, "must be finite");
  EXPECT_OK(bed.Send(0));
  bed.told->late = late;
  EXPECT_ERROR(bed.Use(), StatusCode::kInvalidArgument, "must be finite");
  bed.LogIs({"lookup 0", "update 0"});
}

TEST(Engine, CancelledWaitsEnd) {
  Bed bed;
  const AnswerRef cancelled = bed.Receive(0), waiting = bed.Receive(0);
  EXPECT_EQ(bed.engine->WhatFor(waiting->waiter),
            "for a batch of core 0, for which none is enqueued");
  EXPECT(bed.engine->Cancel(cancelled->waiter));
  EXPECT(!bed.engine->Cancel(cancelled->waiter));
  bed.Enqueue(0, 5);
  EXPECT(cancelled->waits());
  EXPECT_EQ(waiting->number(), 5);
  EXPECT(!bed.engine->Cancel(waiting->waiter));
}

TEST(Engine, ClosedEnginesRefuse) {
  Bed bed;
  const AnswerRef waiting = bed.Receive(0);
  bed.engine->Close("closed");
  EXPECT_ERROR(waiting->status, kPrecondition, "closed");
  EXPECT_EQ(waiting->times, 1);
  EXPECT_ERROR(bed.Receive(0)->status, kPrecondition, "closed");
  EXPECT_ERROR(bed.Enqueue(0, 1)->status, kPrecondition, "closed");
  EXPECT_ERROR(bed.Send(0), kPrecondition, "closed");
  EXPECT_ERROR(bed.Use(), kPrecondition, "closed");
}

TEST(Engine, AFullQueueMakesTheNextOneWait) {
  Bed bed;
  std::vector<AnswerRef> answers;
  for (int64_t n = 0; n < Engine::kMaxQueued + 2; ++n) answers.push_back(bed.Enqueue(0, n));
  EXPECT(!answers[Engine::kMaxQueued - 1]->waits());
  const AnswerRef waiting = answers[Engine::kMaxQueued];
  EXPECT(waiting->waits());
  EXPECT_EQ(bed.engine->WhatFor(waiting->waiter),
            "for capacity in the queue of core 0, which holds 128 batches; "
            "RecvTPUEmbeddingActivations takes one away");
  EXPECT_EQ(bed.Receive(0)->number(), 0);
  EXPECT(!waiting->waits());
  EXPECT(!bed.engine->Cancel(waiting->waiter));
  EXPECT(answers.back()->waits());
  EXPECT(bed.engine->Cancel(answers.back()->waiter));
}

TEST(Engine, CoresAreChecked) {
  Bed bed(2);
  EXPECT_OK(bed.engine->CheckCore(0));
  EXPECT_OK(bed.engine->CheckCore(1));
  for (const int64_t core : {-1, 2}) {
    EXPECT_ERROR(bed.engine->CheckCore(core), StatusCode::kInvalidArgument,
                 "must be in [0, 2)");
  }
}

// A run receives its own batches, and what runs that have ended left, the oldest first.
TEST(Engine, RunsReceiveTheirOwnBatches) {
  Bed bed;
  const auto first = Running(), second = Running();
  bed.Enqueue(0, 1, first);
  bed.Enqueue(0, 2, second);
  const AnswerRef stranger = bed.Receive(0);
  EXPECT_EQ(bed.engine->WhatFor(stranger->waiter),
            "for a batch of core 0 of its own: those that are enqueued, 2, belong to runs "
            "that have not ended");
  EXPECT(bed.engine->Cancel(stranger->waiter));
  EXPECT(bed.engine->Holds(second));
  bed.Step(0, second);
  EXPECT(!bed.engine->Holds(second));
  End(bed, first, Run::State::kEnded);
  bed.Step(0);
  bed.LogIs({"lookup 2", "update 2", "lookup 1", "update 1"});
}

// What a run that fails has enqueued, received and not sent is as if it had never been.
TEST(Engine, FailedCallsLeaveNothing) {
  Bed bed;
  const auto failing = Running();
  bed.Enqueue(0, 1, failing);
  bed.Enqueue(0, 2, failing);
  bed.Enqueue(0, 3);
  EXPECT_OK(bed.Lookup(*bed.Receive(0, failing)));
  const AnswerRef waiting = bed.Receive(0);
  EXPECT(waiting->waits());
  End(bed, failing, Run::State::kFailed);
  EXPECT_EQ(waiting->number(), 3);
  EXPECT(!bed.engine->Holds(failing));
  EXPECT_ERROR(bed.Send(0, failing), kPrecondition, "the run that this op is part of");
  EXPECT_ERROR(bed.Enqueue(0, 4, failing)->status, kPrecondition, "has failed");
  EXPECT_OK(bed.Lookup(*waiting));
  EXPECT_OK(bed.Send(0));
  bed.LogIs({"lookup 1", "lookup 3", "update 3"});
  EXPECT_EQ(bed.engine->Steps(), 1);
}

// A step that all cores have sent is applied, whatever becomes of its run.
TEST(Engine, WhatWasSentStays) {
  Bed bed(1, true);
  const auto failing = Running();
  bed.Enqueue(0, 1, failing);
  bed.Step(0, failing);
  EXPECT_EQ(bed.engine->Steps(), 1);
  End(bed, failing, Run::State::kFailed);
  EXPECT_EQ(bed.engine->Steps(), 1);
  EXPECT_OK(bed.Use());
  bed.LogIs({"lookup 1", "update 1", "use"});
}

// Runs of both cores do not share a step; runs of one core each do.
TEST(Engine, CallsMakeStepsOfTheirOwn) {
  Bed bed(2, true);
  const auto first = Running(), second = Running();
  for (int64_t core = 0; core < 2; ++core) {
    bed.Enqueue(core, 10 + core, first);
    bed.Enqueue(core, 20 + core, second);
  }
  const AnswerRef of_first = bed.Receive(0, first), of_second = bed.Receive(1, second);
  EXPECT_OK(bed.Lookup(*of_first));
  EXPECT_OK(bed.Lookup(*of_second));
  bed.Step(1, first);
  bed.Step(0, second);
  EXPECT_OK(bed.Send(0, first));
  EXPECT_OK(bed.Send(1, second));
  EXPECT_OK(bed.Use());
  bed.told->log.erase(bed.told->log.begin(), bed.told->log.begin() + 4);
  bed.LogIs({"update 10+11", "update 20+21", "use"});

  Bed shared(2);
  const auto left = Running(), right = Running();
  shared.Enqueue(0, 1, left);
  shared.Enqueue(1, 2, right);
  shared.Step(0, left);
  shared.Step(1, right);
  shared.LogIs({"lookup 1", "lookup 2", "update 1+2"});
}

TEST(Engine, WhatWasAbandonedIsTold) {
  Bed bed;
  const auto running = Running();
  bed.Enqueue(0, 1);
  bed.Enqueue(0, 2);
  bed.Enqueue(0, 3, running);
  EXPECT_EQ(bed.engine->Abandon(/*tell=*/true), 2);
  EXPECT_ERROR(bed.Enqueue(0, 4)->status, kPrecondition, "2 batches were dropped");
  EXPECT_OK(bed.Enqueue(0, 5)->status);
  EXPECT_EQ(bed.Receive(0, running)->number(), 3);
  // A step's own are no news.
  Bed one;
  one.Enqueue(0, 1);
  EXPECT_EQ(one.engine->Abandon(/*tell=*/true), 1);
  EXPECT_OK(one.Enqueue(0, 2)->status);
  // Of a run whose end is not sure.
  const auto lost = Running();
  one.Enqueue(0, 3, lost);
  End(one, lost, Run::State::kFailed, /*sure=*/false);
  EXPECT_ERROR(one.Send(0), kPrecondition, "1 batch was dropped");
}

// What is looked up next, in the tables as they are.
TEST(Engine, LookupsBeginAhead) {
  Bed bed;
  bed.allocate_outputs = [] { return OutputBuffersRef(); };
  bed.Enqueue(0, 1);
  bed.Enqueue(0, 2);  // The first is next.
  bed.LogIs({"ahead 1"});
  bed.Step(0);
  bed.Step(0);
  bed.LogIs({"lookup 1", "update 1", "lookup 2", "update 2"});
  bed.Enqueue(0, 3);
  EXPECT_OK(bed.Lookup(*bed.Receive(0)));
  bed.Enqueue(0, 4);  // An update comes first.
  EXPECT_OK(bed.Send(0));
  bed.Step(0);
  bed.LogIs({"ahead 3", "lookup 3", "update 3", "lookup 4", "update 4"});
  bed.Enqueue(0, 5, {}, Mode::kInference);
  EXPECT_OK(bed.Lookup(*bed.Receive(0)));
  bed.Enqueue(0, 6, {}, Mode::kBackwardOnly);
  bed.LogIs({"ahead 5", "lookup 5"});
  // Of each core.
  Bed two(2);
  two.allocate_outputs = bed.allocate_outputs;
  two.Enqueue(0, 1);
  two.Enqueue(1, 2);
  two.LogIs({"ahead 1", "ahead 2"});
}

// What is wrong with where a lookup should go leaves the batch where it was.
TEST(Engine, ALookupThatGoesNowhereIsTheNextOne) {
  Bed bed;
  bed.Enqueue(0, 1);
  EXPECT_ERROR(bed.engine->Lookup(&bed.exec, bed.Receive(0)->grant, nullptr,
                                  ResourceExhaustedError("no memory for outputs")),
               StatusCode::kResourceExhausted, "no memory for outputs");
  bed.LogIs({});
  bed.Step(0);
  bed.LogIs({"lookup 1", "update 1"});
}

// Each step takes the same from every row, so that a reader of a part of one sees rows differ.
TEST(Engine, ReadsSeeWholeUpdates) {
  constexpr int64_t kRows = 300, kSteps = 40;
  Configuration configuration;
  configuration.tables.resize(1);
  configuration.tables[0].name = "t";
  configuration.tables[0].rows = kRows;
  configuration.tables[0].dimension = 2;
  configuration.tables[0].hyper.learning_rate = 1;
  configuration.features.push_back({"f", 0, {kRows}});
  configuration.mode = Mode::kTraining;
  EXPECT_OK(Complete(&configuration));
  std::vector<int32_t> ids(kRows);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  Lookups lookups;
  lookups.ids = {ids.data(), false, kRows};
  const std::vector<float> gradients(2 * kRows, 1.f);
  Pool pool(3);
  const auto engine = Value(Engine::Create(configuration, MakeCpuTableStore(/*few_bytes=*/0)));
  std::atomic<bool> over{false}, good{true};
  std::atomic<int64_t> seen{0};
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 2; ++reader) {
    readers.emplace_back([&] {
      std::vector<float> out(2 * kRows);
      PackedBags bags;
      bags.samples = kRows;
      bags.ids = lookups.ids;
      float before = 1;
      while (!over) {
        PoolContext exec(pool);
        const Status status = engine->Read(&exec, [&](TableStore* store) {
          return store->LookUpPacked(&exec, bags, out.data());
        });
        const bool same =
            std::all_of(out.begin(), out.end(), [&](float x) { return x == out[0]; });
        if (!status.ok() || !same || out[0] > before) good = false;
        before = out[0];
        ++seen;
      }
    });
  }
  for (int64_t step = 0; step < kSteps || seen < kSteps; ++step) {
    PoolContext exec(pool);
    Batch batch;
    batch.mode = Mode::kTraining;
    batch.features.push_back(Value(MakeBags(configuration, 0, lookups, Combiner::kSum)));
    engine->Enqueue(&exec, 0, std::move(batch), [](const Status&) {});
    std::vector<float> out(2 * kRows);
    float* const outputs[] = {out.data()};
    std::promise<Engine::Grant> grant;  // A reader may be who makes it its turn.
    engine->Receive(&exec, 0, [&](const Status& status, const Engine::Grant& given) {
      if (!status.ok()) good = false;
      grant.set_value(given);
    });
    if (!engine->Lookup(&exec, grant.get_future().get(), outputs).ok()) good = false;
    if (!engine->Send(&exec, 0, {gradients.data()}, nullptr, {}).ok()) good = false;
  }
  over = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT(good);
}

TEST(Engine, RandomStepsAreInOrder) {
  Pool pool(3);
  ForEachIsa([&] {
    for (int64_t round = 0; round < testing::Rounds(12); ++round) {
      // However little there is to look up, it begins before it is received.
      StepsAreInOrder(testing::Seed(), pool, MakeCpuTableStore(/*few_bytes=*/0), [] {});
    }
  });
}

}  // namespace
}  // namespace opwright::embedding
