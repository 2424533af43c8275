// Tests the order of lookups and updates, and calls that are refused, are cancelled or wait.
// The engine has a store that records its calls.
#include "embedding/engine.h"

#include "embedding/testing/recorded_engine.h"
#include "embedding/testing/scarce_memory.h"

namespace opwright::embedding {
namespace {

TEST(Engine, StepsAreLookedUpAfterThePreviousUpdate) {
  Bed bed;
  for (int64_t n = 0; n < 3; ++n) bed.Enqueue(0, n);
  for (int64_t n = 0; n < 3; ++n) bed.Step(0);
  bed.LogIs({"lookup 0", "update 0", "lookup 1", "update 1", "lookup 2", "update 2"});
  EXPECT_EQ(bed.engine->Steps(), 3);
}

TEST(Engine, QueuedBatchesCountsThoseThatAreNotReceived) {
  Bed bed(2);
  EXPECT_EQ(bed.engine->QueuedBatches(0), 0);
  bed.Enqueue(0, 0);
  bed.Enqueue(0, 1);
  EXPECT_EQ(bed.engine->QueuedBatches(0), 2);
  EXPECT_EQ(bed.engine->QueuedBatches(1), 0);
  bed.Receive(0);
  EXPECT_EQ(bed.engine->QueuedBatches(0), 1);
  EXPECT_EQ(bed.engine->QueuedBatches(2), 0);
}

TEST(Engine, PipelinedStepsAreLookedUpBeforeThePreviousUpdate) {
  Bed bed(1, true);
  for (int64_t n = 0; n < 4; ++n) bed.Enqueue(0, n);
  for (int64_t n = 0; n < 4; ++n) bed.Step(0);
  bed.LogIs(
      {"lookup 0", "lookup 1", "update 0", "lookup 2", "update 1", "lookup 3", "update 2"});
  EXPECT_EQ(bed.engine->Steps(), 4);
  // Use comes after all updates.
  EXPECT_OK(bed.Use());
  bed.LogIs({"update 3", "use"});
}

// The second step of a core waits until all cores have sent the gradients of the first step.
TEST(Engine, UpdateWaitsForGradientsOfAllCores) {
  Bed bed(2);
  for (int64_t n = 0; n < 2; ++n) {
    for (int64_t core = 0; core < 2; ++core) bed.Enqueue(core, 10 * core + n);
  }
  bed.Step(0);
  const AnswerRef next = bed.Receive(0);
  EXPECT(next->waits());
  EXPECT_EQ(bed.engine->WhatFor(next->waiter),
            "for the update of step 0, for which core 1 has not sent gradients "
            "(SendTPUEmbeddingGradients): call apply_gradients after dequeue, or enqueue with "
            "training=False");
  bed.Step(1);
  EXPECT_EQ(next->number(), 1);
  bed.LogIs({"lookup 0", "lookup 10", "update 0+10"});
  EXPECT_EQ(bed.engine->WhatFor(next->waiter), "");
}

// An update does not begin while a lookup is under way.
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

TEST(Engine, InferenceIsLookedUpAfterAllUpdates) {
  Bed bed(1, true);
  bed.Enqueue(0, 0);
  bed.Enqueue(0, 1, {}, Mode::kInference);
  bed.Step(0);
  bed.LogIs({"lookup 0"});
  EXPECT_OK(bed.Lookup(*bed.Receive(0)));
  bed.LogIs({"update 0", "lookup 1"});
  EXPECT_EQ(bed.engine->Steps(), 1);
  EXPECT_ERROR(
      bed.Send(0), kPrecondition,
      "no step of core 0 awaits gradients: RecvTPUEmbeddingActivations comes first, for a "
      "batch that was enqueued for training: call enqueue(..., training=True)");
}

TEST(Engine, ReadsComeAfterAllUpdates) {
  Bed bed(1, true);
  EXPECT_OK(bed.Read());
  for (int64_t n = 0; n < 3; ++n) bed.Enqueue(0, n);
  bed.Step(0);
  EXPECT_OK(bed.Read());
  bed.LogIs({"read", "lookup 0", "update 0", "read"});
  // A read is possible between the Receive and the Lookup of a batch, and between Lookup and
  // Send.
  const AnswerRef answer = bed.Receive(0);
  EXPECT_OK(bed.Read());
  EXPECT_OK(bed.Lookup(*answer));
  EXPECT_OK(bed.Read());
  EXPECT_OK(bed.Send(0));
  bed.LogIs({"read", "lookup 1", "read"});
  // A read reports an update that fails. The next read tries the update again.
  bed.record->update = InvalidArgumentError("no");
  EXPECT_ERROR(bed.Read(), StatusCode::kInvalidArgument, "the update of step 1 is put off: no");
  bed.record->lookup = InvalidArgumentError("not this one");
  EXPECT_ERROR(bed.Read(), StatusCode::kInvalidArgument, "not this one");
  EXPECT_OK(bed.Read());
  bed.LogIs({"update 1", "update 1", "read", "read"});
  bed.Step(0);
  EXPECT_EQ(bed.engine->Steps(), 3);
  bed.engine->Close("over");
  EXPECT_ERROR(bed.Read(), kPrecondition, "over");
}

TEST(Engine, LookUpPackedIsUnimplementedByDefault) {
  Bed bed;
  EXPECT_ERROR(bed.engine->Read(&bed.exec,
                                [&](TableStore* store) {
                                  return store->LookUpPacked(&bed.exec, {}, nullptr);
                                }),
               StatusCode::kUnimplemented, "enqueue the ids");
}

TEST(Engine, BackwardOnlyBatchesAreSentWithoutLookup) {
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

// Each allocation of the call fails in turn. Queues allocate memory only now and then, so it
// takes many batches until each allocation has failed.
TEST(Engine, EnqueueWithOneFailedAllocationLosesNoBatch) {
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
        // It was thrown before the engine had the batch.
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

TEST(Engine, SendForTablesThatCannotBeTrainedIsRefused) {
  for (const bool has_rule : {true, false}) {
    Bed bed;
    bed.configuration.tables[0].has_rate = false;
    if (!has_rule) bed.configuration.tables[0].optimizer = Optimizer::kUserDefinedProgram;
    bed.engine =
        Value(Engine::Create(bed.configuration, std::make_unique<Recorder>(bed.record)));
    bed.Enqueue(0, 1);
    EXPECT_OK(bed.Lookup(*bed.Receive(0)));
    EXPECT_ERROR(bed.Send(0), has_rule ? kPrecondition : StatusCode::kUnimplemented,
                 has_rule ? "without a learning_rate" : "no rule is public");
  }
}

TEST(Engine, FailedUpdateIsTriedAgain) {
  Bed bed;
  for (int64_t n = 0; n < 2; ++n) bed.Enqueue(0, n);
  EXPECT_OK(bed.Lookup(*bed.Receive(0)));
  bed.record->update = ResourceExhaustedError("no memory");
  EXPECT_ERROR(bed.Send(0), StatusCode::kResourceExhausted,
               "the update of step 0 is put off: no memory");
  EXPECT_EQ(bed.engine->Steps(), 1);
  bed.record->update = ResourceExhaustedError("no memory");
  EXPECT_ERROR(bed.Receive(0)->status, StatusCode::kResourceExhausted, "put off: no memory");
  EXPECT_EQ(bed.Receive(0)->number(), 1);
  bed.LogIs({"lookup 0", "update 0", "update 0", "update 0"});
}

TEST(Engine, FailedLookupPutsItsBatchBackIntoTheQueue) {
  Bed bed;
  for (int64_t n = 0; n < 2; ++n) bed.Enqueue(0, n);
  bed.record->lookup = ResourceExhaustedError("no memory");
  EXPECT_ERROR(bed.Lookup(*bed.Receive(0)), StatusCode::kResourceExhausted, "no memory");
  EXPECT_ERROR(bed.Send(0), kPrecondition, "no step");
  bed.Step(0);
  bed.Step(0);
  bed.LogIs({"lookup 0", "lookup 0", "update 0", "lookup 1", "update 1"});
}

// A batch is prepared once for its lookup and its update. A batch without lookup is prepared
// for its update.
TEST(Engine, BatchIsPreparedOnce) {
  Bed bed;
  bed.Enqueue(0, 0);
  bed.Enqueue(0, 1);
  bed.record->prepare = ResourceExhaustedError("no memory");
  EXPECT_ERROR(bed.Lookup(*bed.Receive(0)), StatusCode::kResourceExhausted, "no memory");
  EXPECT_EQ(bed.record->prepared, 1);
  bed.Step(0);
  EXPECT_EQ(bed.record->prepared, 2);
  EXPECT_OK(bed.Lookup(*bed.Receive(0)));
  bed.record->update = ResourceExhaustedError("no memory");
  EXPECT_ERROR(bed.Send(0), StatusCode::kResourceExhausted, "put off");
  EXPECT_OK(bed.Use());
  EXPECT_EQ(bed.record->prepared, 3);
  bed.Enqueue(0, 2, {}, Mode::kBackwardOnly);
  bed.record->prepare = ResourceExhaustedError("no memory");
  EXPECT_ERROR(bed.Send(0), StatusCode::kResourceExhausted,
               "the update of step 2 is put off: no memory");
  bed.record->update = ResourceExhaustedError("no memory");
  EXPECT_ERROR(bed.Use(), StatusCode::kResourceExhausted, "put off");
  EXPECT_OK(bed.Use());
  EXPECT_EQ(bed.record->prepared, 5);
  bed.LogIs({"lookup 0", "update 0", "lookup 1", "update 1", "update 1", "use", "update 2",
             "update 2", "use"});
}

// If a device finds an error after the update has returned, the next call returns that error
// and does nothing else.
TEST(Engine, LateUpdateErrorIsReportedByTheNextCall) {
  Bed bed;
  const Status late = InvalidArgumentError("gradients must be finite");
  for (int64_t n = 0; n < 2; ++n) bed.Enqueue(0, n);
  bed.record->late = late;
  EXPECT_ERROR(bed.Receive(0)->status, StatusCode::kInvalidArgument, "must be finite");
  EXPECT_OK(bed.Lookup(*bed.Receive(0)));
  bed.record->late = late;
  EXPECT_ERROR(bed.Send(0), StatusCode::kInvalidArgument, "must be finite");
  EXPECT_OK(bed.Send(0));
  bed.record->late = late;
  EXPECT_ERROR(bed.Use(), StatusCode::kInvalidArgument, "must be finite");
  bed.LogIs({"lookup 0", "update 0"});
}

TEST(Engine, CancelledReceiveGetsNoBatch) {
  Bed bed;
  const AnswerRef cancelled = bed.Receive(0), waiting = bed.Receive(0);
  EXPECT_EQ(bed.engine->WhatFor(waiting->waiter),
            "for a batch of core 0, for which none is enqueued: call enqueue before dequeue");
  EXPECT(bed.engine->Cancel(cancelled->waiter));
  EXPECT(!bed.engine->Cancel(cancelled->waiter));
  bed.Enqueue(0, 5);
  EXPECT(cancelled->waits());
  EXPECT_EQ(waiting->number(), 5);
  EXPECT(!bed.engine->Cancel(waiting->waiter));
}

TEST(Engine, ClosedEngineRefusesAllCalls) {
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

TEST(Engine, EnqueueToFullQueueWaits) {
  Bed bed;
  std::vector<AnswerRef> answers;
  for (int64_t n = 0; n < Engine::kMaxQueued + 2; ++n) answers.push_back(bed.Enqueue(0, n));
  EXPECT(!answers[Engine::kMaxQueued - 1]->waits());
  const AnswerRef waiting = answers[Engine::kMaxQueued];
  EXPECT(waiting->waits());
  EXPECT_EQ(
      bed.engine->WhatFor(waiting->waiter),
      "for capacity in the queue of core 0, which holds 128 batches; "
      "RecvTPUEmbeddingActivations takes one away. If this wait does not end, the program "
      "enqueues more batches than it dequeues: call enqueue once for each dequeue");
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

// The lookup of a batch begins ahead only if the batch is the next one, and no update comes
// before it.
TEST(Engine, LookupOfTheNextBatchBeginsAhead) {
  Bed bed;
  bed.allocate_outputs = [] { return OutputBuffersRef(); };
  bed.Enqueue(0, 1);
  bed.Enqueue(0, 2);  // Batch 1 is looked up before this one.
  bed.LogIs({"ahead 1"});
  bed.Step(0);
  bed.Step(0);
  bed.LogIs({"lookup 1", "update 1", "lookup 2", "update 2"});
  bed.Enqueue(0, 3);
  EXPECT_OK(bed.Lookup(*bed.Receive(0)));
  bed.Enqueue(0, 4);  // The update of batch 3 comes before its lookup.
  EXPECT_OK(bed.Send(0));
  bed.Step(0);
  bed.LogIs({"ahead 3", "lookup 3", "update 3", "lookup 4", "update 4"});
  bed.Enqueue(0, 5, {}, Mode::kInference);
  EXPECT_OK(bed.Lookup(*bed.Receive(0)));
  bed.Enqueue(0, 6, {}, Mode::kBackwardOnly);
  bed.LogIs({"ahead 5", "lookup 5"});
  // The next batch of each core is looked up ahead.
  Bed two(2);
  two.allocate_outputs = bed.allocate_outputs;
  two.Enqueue(0, 1);
  two.Enqueue(1, 2);
  two.LogIs({"ahead 1", "ahead 2"});
}

// If there is no memory for its outputs, a lookup does not begin, and its batch stays the next
// one.
TEST(Engine, LookupWithoutOutputsPutsItsBatchBackIntoTheQueue) {
  Bed bed;
  bed.Enqueue(0, 1);
  EXPECT_ERROR(bed.engine->Lookup(&bed.exec, bed.Receive(0)->grant, nullptr,
                                  ResourceExhaustedError("no memory for outputs")),
               StatusCode::kResourceExhausted, "no memory for outputs");
  bed.LogIs({});
  bed.Step(0);
  bed.LogIs({"lookup 1", "update 1"});
}

}  // namespace
}  // namespace opwright::embedding
