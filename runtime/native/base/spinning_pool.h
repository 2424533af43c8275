// Threads for who calls again and again.
#pragma once

#include <pthread.h>

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

namespace opwright {

// To wake a sleeping thread takes a caller 30 us, and the thread as long again, in which
// thousands of rows are read: before they sleep these wait busily for what the next call
// brings, for about as long as it takes Python to make it.
class SpinningPool {
 public:
  // As many, or as the system gives.
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

  // Has one of them do it. With too much to do, as after a fork that they did not survive, they
  // leave it: a caller does what nobody has begun.
  void Schedule(std::function<void()> task) {
    bool enough;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (tasks_.size() >= kMostTasks * threads_.size()) return;
      tasks_.push_back(std::move(task));
      enough = ++unclaimed_ <= watching_;
    }
    if (!enough) more_.notify_one();
  }

 private:
  static constexpr std::chrono::microseconds kWatch{200};
  static constexpr size_t kMostTasks = 16;  // For each.

  void Work() {
    pthread_setname_np(pthread_self(), "opwright_helper");
    while (true) {
      bool claimed = Watch();
      std::unique_lock<std::mutex> lock(mutex_);
      // Who has stopped watching looks once more before it sleeps: none goes unseen.
      if (!claimed) more_.wait(lock, [&] { return (claimed = Claim()) || closed_; });
      if (!claimed) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
  }

  // Waits for a task for so long. Whoever else could run here, may.
  bool Watch() {
    const auto end = std::chrono::steady_clock::now() + kWatch;
    ++watching_;
    do {
      for (int i = 0; i < 16; ++i) {
        if (unclaimed_ > 0) {
          // Who claims one does not watch: nobody may count on it.
          --watching_;
          if (Claim()) return true;
          ++watching_;
        }
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
      }
      std::this_thread::yield();
    } while (std::chrono::steady_clock::now() < end);
    --watching_;
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
  std::atomic<int64_t> unclaimed_{0};  // Tasks that are there for whoever comes first.
  std::atomic<int64_t> watching_{0};
  int size_ = 0;
  std::vector<std::thread> threads_;  // After what they use.
};

}  // namespace opwright
