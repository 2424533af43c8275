// Tasks that the threads of a pool and their caller share out among themselves.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "base/execution_context.h"

namespace opwright {

// Waits for tasks that have begun, never for a thread to become free.
class Tasks : public Background {
 public:
  Tasks(int64_t count, std::function<void(int64_t)> task)
      : count_(count), task_(std::move(task)) {}

  // ExecutionContext::For with the threads of a pool, the caller being one of as many. The
  // caller does what nobody else has taken, so a pool full of callers cannot block itself. What
  // a task throws is thrown here, once none runs any more; tasks that have not begun are left
  // out.
  template <class Pool>
  static void For(int64_t count, const std::function<void(int64_t)>& task, int threads,
                  Pool& pool) {
    const auto tasks = std::make_shared<Tasks>(count, std::cref(task));
    Help(tasks, std::min<int64_t>(threads, count) - 1, pool);
    tasks->Finish();
  }

  // ExecutionContext::Begin likewise.
  template <class Pool>
  static std::shared_ptr<Background> Begin(int64_t count, std::function<void(int64_t)> task,
                                           int threads, Pool& pool) {
    const int64_t helpers = std::min<int64_t>(threads - 1, count);
    if (helpers < 1) return nullptr;
    auto tasks = std::make_shared<Tasks>(count, std::move(task));
    Help(tasks, helpers, pool);
    return tasks;
  }

  bool Finish() override {
    Work();
    Wait();
    // Whoever catches it lets go of it, and no thread of the pool later.
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
    return !stopped_;
  }

  void Stop() override {
    stopped_ = true;
    AreDone(count_ - std::min(count_, next_.exchange(count_)));
    Wait();
  }

 private:
  // Has as many threads of a pool take part as it gives.
  template <class Pool>
  static void Help(const std::shared_ptr<Tasks>& tasks, int64_t helpers, Pool& pool) {
    try {
      for (int64_t i = 0; i < helpers; ++i) {
        pool.Schedule([tasks] { tasks->Work(); });
      }
    } catch (const std::bad_alloc&) {  // Then with fewer of them.
    }
  }

  // Once no task is left, what they work with may be gone: only one taken before touches it.
  void Work() {
    int64_t did = 0;
    for (int64_t i; (i = next_.fetch_add(1)) < count_; ++did) {
      if (!failed_) Try(i);
    }
    AreDone(did);
  }

  void Try(int64_t i) {
    try {
      task_(i);
    } catch (...) {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!failed_.exchange(true)) thrown_ = std::current_exception();
    }
  }

  void AreDone(int64_t tasks) {
    if (tasks > 0 && done_.fetch_add(tasks) + tasks == count_) {
      std::lock_guard<std::mutex> lock(mutex_);
      finished_.notify_all();
    }
  }

  void Wait() {
    // The others finish at about the same time: look a few times before sleeping.
    for (int i = 0; i < 8000; ++i) {
      if (done_.load() == count_) return;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    std::unique_lock<std::mutex> lock(mutex_);
    finished_.wait(lock, [this] { return done_.load() == count_; });
  }

  const int64_t count_;
  const std::function<void(int64_t)> task_;
  std::atomic<int64_t> next_{0};
  std::atomic<int64_t> done_{0};
  std::atomic<bool> failed_{false};
  std::atomic<bool> stopped_{false};
  std::exception_ptr thrown_;
  std::mutex mutex_;
  std::condition_variable finished_;
};

}  // namespace opwright
