// Tests hosts that run out of memory, or lose contact in the middle of a step. Every call ends
// with an error. If the hosts can still reach each other, the next step works.
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "embedding/testing/scarce_memory.h"
#include "embedding/testing/two_engines.h"

namespace opwright::embedding {
namespace {

using std::chrono::milliseconds;

constexpr size_t kLarge = 100'000;  // In bytes. The ids of kManySamples samples take more.
constexpr int64_t kManySamples = 5000;

std::vector<float> StepsOfManySamples(int64_t steps) {
  std::vector<float> rows(10);
  rows[0] = rows[3] = -static_cast<float>(steps * kManySamples);
  return rows;
}

void EnqueueWithoutMemoryIsRefusedOnAllHosts(Mode mode) {
  TwoEngines hosts(false, kManySamples);
  hosts.Step(0, 3);
  OnEach(2, [&](int64_t h) {
    Batch batch = hosts.MakeBatch(5, mode);
    if (h == 1) {
      Status enqueued;
      {
        const ScarceMemory scarce = ScarceMemory::FromBytes(kLarge);
        enqueued = hosts.Enqueue(1, std::move(batch));
        EXPECT(scarce.was_short());
      }
      EXPECT_ERROR(hosts.Send(1, 1), StatusCode::kFailedPrecondition,
                   "no step of core 0 awaits gradients");
      EXPECT_ERROR(enqueued, StatusCode::kResourceExhausted,
                   "no memory for what a batch needs of other hosts");
      return;
    }
    EXPECT_OK(hosts.Enqueue(0, std::move(batch)));
    const Status status =
        mode == Mode::kBackwardOnly ? hosts.Send(0, 1) : hosts.LookUp(0).status();
    EXPECT_ERROR(status, StatusCode::kInvalidArgument,
                 "host 1 refuses the batch: no memory for what a batch needs of other hosts");
  });
  hosts.Step(3, 0);
  hosts.ExpectRows(StepsOfManySamples(2));
}

TEST(HostsFailures, TrainingBatchWithoutMemoryIsRefusedOnAllHosts) {
  EnqueueWithoutMemoryIsRefusedOnAllHosts(Mode::kTraining);
}

TEST(HostsFailures, BackwardOnlyBatchWithoutMemoryIsRefusedOnAllHosts) {
  EnqueueWithoutMemoryIsRefusedOnAllHosts(Mode::kBackwardOnly);
}

// Each allocation of an Enqueue on host 1 fails in turn. Afterwards, both hosts have the batch
// or both have dropped it.
TEST(HostsFailures, EnqueueWithOneFailedAllocationKeepsHostsConsistent) {
  TwoEngines hosts;
  int64_t steps = 0, refused = 0;
  bool was_short = true;
  for (int64_t block = 0; was_short; ++block) {
    std::vector<Status> enqueued(2);
    OnEach(2, [&](int64_t h) {
      Batch batch = hosts.MakeBatch(5);
      if (h == 0) {
        enqueued[0] = hosts.Enqueue(0, std::move(batch));
        return;
      }
      Pool pool(1);  // Its thread is created before memory is scarce.
      PoolContext exec(pool);
      const Engine::OnQueued on_queued = [&](const Status& status) { enqueued[1] = status; };
      const ScarceMemory scarce = ScarceMemory::AtBlock(block);
      try {
        hosts.engine(1).Enqueue(&exec, 0, std::move(batch), on_queued);
      } catch (const std::bad_alloc&) {
        // It was thrown before the engine had the batch.
        enqueued[1] = ResourceExhaustedError("thrown");
      }
      was_short = scarce.was_short();
    });
    EXPECT_OK(enqueued[0]);
    const bool has_two = enqueued[1].ok();
    if (!has_two && enqueued[1].message() == "thrown") {
      hosts.engine(1).Refuse(enqueued[1]);
    }
    OnEach(2, [&](int64_t h) {
      if (has_two) {
        EXPECT_OK(hosts.LookUp(h).status());
        EXPECT_OK(hosts.Send(h, 1));
      } else if (h == 0) {
        EXPECT_ERROR(hosts.LookUp(0).status(), StatusCode::kInvalidArgument,
                     "host 1 refuses the batch");
      }
    });
    ++(has_two ? steps : refused);
  }
  EXPECT(refused > 3);
  EXPECT(steps > 0);
  std::vector<float> rows(10);
  rows[5] = -2.f * static_cast<float>(steps);
  hosts.ExpectRows(rows, steps);
}

// An exchange in which rows and gradients fail after a delay, as if the other host were lost.
class SeveredExchange : public ThreadExchange {
 public:
  using ThreadExchange::ThreadExchange;

  static constexpr milliseconds kRows{300}, kGradients{600};

 protected:
  Status DoAllToAll(Channel channel, int64_t number, const std::vector<Buffer>& out,
                    const std::vector<Buffer>& in) override {
    if (channel != Channel::kRows && channel != Channel::kGradients) {
      return ThreadExchange::DoAllToAll(channel, number, out, in);
    }
    std::this_thread::sleep_for(channel == Channel::kRows ? kRows : kGradients);
    return FailedPreconditionError("host 1 does not answer");
  }
};

std::shared_ptr<Exchange> MakeSevered(std::shared_ptr<Mailboxes> mailboxes, int64_t host) {
  return std::make_shared<SeveredExchange>(std::move(mailboxes), 2, host);
}

TEST(HostsFailures, StepIsDroppedIfLookupAndSendFailConcurrently) {
  TwoEngines hosts(false, 1, MakeSevered);
  OnEach(2, [&](int64_t h) {
    hosts.Enqueue(h, 5);
    const Engine::Grant grant = hosts.Receive(h);
    std::future<Status> lookup =
        std::async(std::launch::async, [&] { return hosts.LookUp(h, grant).status(); });
    std::this_thread::sleep_for(SeveredExchange::kRows / 3);
    EXPECT_ERROR(hosts.Send(h, 1), StatusCode::kFailedPrecondition, "host 1 does not answer");
    EXPECT_ERROR(lookup.get(), StatusCode::kFailedPrecondition, "host 1 does not answer");
    EXPECT_EQ(hosts.engine(h).Steps(), 0);
    // No batch and no part of the step is left.
    EXPECT_EQ(hosts.engine(h).Abandon(false), 0);
    EXPECT_ERROR(hosts.Send(h, 1), StatusCode::kFailedPrecondition,
                 "no step of core 0 awaits gradients");
  });
}

TEST(HostsFailures, SecondSendOfAStepDuringTheFirstIsRefused) {
  TwoEngines hosts;
  OnEach(2, [&](int64_t h) {
    hosts.Enqueue(h, 5);
    EXPECT_OK(hosts.LookUp(h).status());
  });
  // The first Send waits for the other host.
  std::future<Status> first = std::async(std::launch::async, [&] { return hosts.Send(0, 1); });
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_ERROR(hosts.Send(0, 1), StatusCode::kFailedPrecondition,
               "no step of core 0 awaits gradients");
  EXPECT_OK(hosts.Send(1, 1));
  EXPECT_OK(first.get());
  std::vector<float> rows(10);
  rows[5] = -2;
  hosts.ExpectRows(rows, 1);
}

}  // namespace
}  // namespace opwright::embedding
