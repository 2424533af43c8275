// A pool of threads that spin for a short time before they sleep.
#pragma once

#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/pause.h"

namespace opwright {

// Waking a sleeping thread costs the caller 30 us, and the thread starts another 30 us later. A
// lookup reads thousands of rows in that time. The threads therefore spin before they sleep,
// for about as long as Python takes until its next call.
class SpinningPool {
 public:
  // Starts `threads` threads, or fewer if the system does not allow so many.
  explicit SpinningPool(int threads) {
    try {
      threads_.reserve(static_cast<size_t>(std::max(threads, 0)));
      for (; size_ < threads; ++size_) {
        threads_.emplace_back([this] { Work(); });
      }
    } catch (const std::exception&) {
    }
  }

  ~SpinningPool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
    }
    more_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  int size() const { return size_; }

  // Runs the task in one of the threads. Drops the task if the queue is full. The queue fills
  // up in the child after a fork, because the child does not have these threads. This is safe,
  // because callers run the tasks that have not begun.
  void Schedule(std::function<void()> task) {
    bool enough;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (tasks_.size() >= kMaxTasks * threads_.size()) return;
      tasks_.push_back(std::move(task));
      enough = ++unclaimed_ <= spinning_;
    }
    if (!enough) more_.notify_one();
  }

 private:
  static constexpr std::chrono::microseconds kSpin{200};
  static constexpr size_t kMaxTasks = 16;  // The limit for each thread.

  void Work() {
    // pthread_setname_np is not used, because it needs glibc 2.34.
    prctl(PR_SET_NAME, "opwright_pool");
    while (true) {
      bool claimed = Spin();
      std::unique_lock<std::mutex> lock(mutex_);
      // A thread that has stopped spinning checks for a task once more before it sleeps.
      // Otherwise it could miss a task that was scheduled in between.
      if (!claimed) more_.wait(lock, [&] { return (claimed = Claim()) || closed_; });
      if (!claimed) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
  }

  // Spins until it claims a task or until kSpin has passed. Yields the processor to other
  // threads in between.
  bool Spin() {
    const auto end = std::chrono::steady_clock::now() + kSpin;
    ++spinning_;
    do {
      for (int i = 0; i < 16; ++i) {
        if (unclaimed_ > 0) {
          // A thread that claims a task does not spin any more, so Schedule must not count it.
          --spinning_;
          if (Claim()) return true;
          ++spinning_;
        }
        Pause();
      }
      std::this_thread::yield();
    } while (std::chrono::steady_clock::now() < end);
    --spinning_;
    return false;
  }

  bool Claim() {
    int64_t unclaimed = unclaimed_;
    while (unclaimed > 0 && !unclaimed_.compare_exchange_weak(unclaimed, unclaimed - 1)) {
    }
    return unclaimed > 0;
  }

  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<std::function<void()>> tasks_;
  bool closed_ = false;
  std::atomic<int64_t> unclaimed_{0};  // The number of tasks that no thread has claimed.
  std::atomic<int64_t> spinning_{0};
  int size_ = 0;
  // The threads are the last member, because they use the members above.
  std::vector<std::thread> threads_;
};

}  // namespace opwright
