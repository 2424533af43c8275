// Tests that tasks begin, finish, stop and throw.
#include "base/tasks.h"

#include <stdexcept>
#include <thread>
#include <vector>

#include "base/testing/pool.h"
#include "base/testing/testing.h"

namespace opwright {
namespace {

constexpr int64_t kTasks = 300;

TEST(Tasks, EachTaskRunsOnce) {
  Pool pool(3);
  PoolContext exec(pool);
  for (int64_t round = 0; round < testing::Rounds(50); ++round) {
    std::vector<std::atomic<int>> times(kTasks);
    const auto begun = exec.Begin(kTasks, [&](int64_t i) { ++times[static_cast<size_t>(i)]; });
    EXPECT(begun != nullptr);
    EXPECT(begun->Finish());
    exec.For(kTasks, [&](int64_t i) { ++times[static_cast<size_t>(i)]; });
    for (const auto& one : times) EXPECT_EQ(one.load(), 2);
  }
}

TEST(Tasks, BeginReturnsNullWithOneThread) {
  Pool pool(1);
  PoolContext exec(pool);
  EXPECT(exec.Begin(kTasks, [](int64_t) {}) == nullptr);
}

// After Stop has returned, the data of the tasks may be freed, whether or not the tasks had
// begun.
TEST(Tasks, NoTaskRunsAfterStop) {
  Pool pool(3);
  PoolContext exec(pool);
  for (int64_t round = 0; round < testing::Rounds(200); ++round) {
    auto times = std::make_unique<std::vector<std::atomic<int>>>(kTasks);
    auto& all = *times;
    const auto begun = exec.Begin(kTasks, [&](int64_t i) { ++all[static_cast<size_t>(i)]; });
    std::thread other([&] { begun->Stop(); });
    if (round % 2) begun->Stop();
    other.join();
    for (const auto& one : *times) EXPECT(one.load() <= 1);
    times.reset();
    EXPECT(!begun->Finish());
    begun->Stop();
  }
}

TEST(Tasks, ExceptionOfATaskIsRethrown) {
  Pool pool(3);
  PoolContext exec(pool);
  for (int64_t round = 0; round < testing::Rounds(20); ++round) {
    const auto task = [](int64_t i) {
      if (i == 7) throw std::runtime_error("seven");
    };
    const auto begun = exec.Begin(kTasks, task);
    int caught = 0;
    for (const bool begins : {true, false}) {
      try {
        begins ? static_cast<void>(begun->Finish()) : exec.For(kTasks, task);
      } catch (const std::runtime_error& error) {
        EXPECT_EQ(std::string(error.what()), "seven");
        ++caught;
      }
    }
    EXPECT_EQ(caught, 2);
  }
}

}  // namespace
}  // namespace opwright
