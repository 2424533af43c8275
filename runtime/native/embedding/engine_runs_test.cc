// Tests which run may use which batches, and what happens to the batches of runs that end or
// fail.
#include "embedding/engine.h"

#include "embedding/testing/recorded_engine.h"

namespace opwright::embedding {
namespace {

// A run receives its own batches, and the batches that ended runs have left, the oldest first.
TEST(EngineRuns, RunsReceiveTheirOwnBatches) {
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

// The queued batches and the incomplete steps of a failed run are dropped.
TEST(EngineRuns, BatchesOfFailedRunAreDropped) {
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

// A step whose gradients all cores have sent updates the tables even if its run fails.
TEST(EngineRuns, CompleteStepOfFailedRunIsApplied) {
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

// Two runs that use both cores do not share a step. Two runs that use one core each do.
TEST(EngineRuns, RunsShareStepsOnlyIfEachUsesOneCore) {
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
  bed.record->log.erase(bed.record->log.begin(), bed.record->log.begin() + 4);
  bed.LogIs({"update 10+11", "update 20+21", "use"});

  Bed shared(2);
  const auto left = Running(), right = Running();
  shared.Enqueue(0, 1, left);
  shared.Enqueue(1, 2, right);
  shared.Step(0, left);
  shared.Step(1, right);
  shared.LogIs({"lookup 1", "lookup 2", "update 1+2"});
}

TEST(EngineRuns, AbandonedBatchesAreReported) {
  Bed bed;
  const auto running = Running();
  bed.Enqueue(0, 1);
  bed.Enqueue(0, 2);
  bed.Enqueue(0, 3, running);
  EXPECT_EQ(bed.engine->Abandon(/*tell=*/true), 2);
  EXPECT_ERROR(bed.Enqueue(0, 4)->status, kPrecondition, "2 batches were dropped");
  EXPECT_OK(bed.Enqueue(0, 5)->status);
  EXPECT_EQ(bed.Receive(0, running)->number(), 3);
  // The batches of one step are not reported.
  Bed one;
  one.Enqueue(0, 1);
  EXPECT_EQ(one.engine->Abandon(/*tell=*/true), 1);
  EXPECT_OK(one.Enqueue(0, 2)->status);
  // The dropped batches of a run are reported if its failure is only assumed.
  const auto lost = Running();
  one.Enqueue(0, 3, lost);
  End(one, lost, Run::State::kFailed, /*sure=*/false);
  EXPECT_ERROR(one.Send(0), kPrecondition, "1 batch was dropped");
}

}  // namespace
}  // namespace opwright::embedding
