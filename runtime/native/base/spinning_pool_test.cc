// Tests a pool whose threads spin or sleep, a pool with too few threads, and a pool without
// threads.
#include "base/spinning_pool.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "base/tasks.h"
#include "base/testing/testing.h"

namespace opwright {
namespace {

constexpr int64_t kCount = 300;

void DoAll(SpinningPool& pool) {
  std::vector<std::atomic<int>> times(kCount);
  Tasks::For(
      kCount, [&](int64_t i) { ++times[static_cast<size_t>(i)]; }, pool.size() + 1, pool);
  for (const auto& one : times) EXPECT_EQ(one.load(), 1);
}

TEST(SpinningPool, EachTaskRunsOnce) {
  for (int threads : {0, 1, 3}) {
    SpinningPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (int64_t round = 0; round < testing::Rounds(50); ++round) {
      DoAll(pool);
      // After this pause the threads spin, sleep, or are about to sleep.
      std::this_thread::sleep_for(std::chrono::microseconds(40 * (round % 10)));
    }
  }
}

TEST(SpinningPool, CallersShareItsThreads) {
  SpinningPool pool(2);
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int64_t round = 0; round < testing::Rounds(50); ++round) DoAll(pool);
    });
  }
  for (std::thread& caller : callers) caller.join();
}

// Tasks that wait for each other end only if each of them has a thread. Spinning threads take
// some of the tasks. Schedule must wake a sleeping thread for each of the others.
TEST(SpinningPool, EachWaitingTaskHasAThread) {
  constexpr int64_t kThreads = 3;
  std::mutex mutex;
  std::condition_variable changed;
  int64_t met = 0;
  const auto meet = [&](int64_t count) {
    std::unique_lock<std::mutex> lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(60), [&] { return met >= count; });
  };
  SpinningPool pool(kThreads);
  for (int64_t round = 1; round <= testing::Rounds(50); ++round) {
    for (int64_t i = 0; i < kThreads; ++i) {
      pool.Schedule([&, round] {
        {
          std::lock_guard<std::mutex> lock(mutex);
          ++met;
        }
        changed.notify_all();
        meet(kThreads * round);
      });
      // The tasks are scheduled at once or with pauses in between.
      std::this_thread::sleep_for(std::chrono::microseconds(100 * (round % 4)));
    }
    EXPECT(meet(kThreads * round));
  }
}

TEST(SpinningPool, DropsTasksBeyondItsQueue) {
  std::atomic<int> done{0};
  {
    std::mutex busy;
    SpinningPool pool(1);
    std::unique_lock<std::mutex> lock(busy);
    for (int i = 0; i < 1000; ++i) {
      pool.Schedule([&] {
        std::lock_guard<std::mutex> free(busy);
        ++done;
      });
    }
    lock.unlock();
  }
  EXPECT(done.load() >= 1 && done.load() < 100);
  SpinningPool none(0);
  none.Schedule([&] { done = 0; });
  EXPECT(done.load() > 0);
}

TEST(SpinningPool, RunsScheduledTasksBeforeItEnds) {
  std::atomic<int> done{0};
  {
    SpinningPool pool(2);
    for (int i = 0; i < 20; ++i) pool.Schedule([&] { ++done; });
  }
  EXPECT_EQ(done.load(), 20);
}

}  // namespace
}  // namespace opwright
