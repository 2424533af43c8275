// Tasks that the calling thread shares with the threads of a pool.
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
#include "base/pause.h"

namespace opwright {

// A caller waits only for tasks that have begun. It never waits for a thread to become free.
class Tasks : public Background {
 public:
  Tasks(int64_t count, std::function<void(int64_t)> task)
      : count_(count), task_(std::move(task)) {}

  // Implements ExecutionContext::For on a pool. `threads` includes the calling thread. The
  // caller runs every task that no thread has taken, so callers that occupy all threads of the
  // pool cannot deadlock. If a task throws, For skips the tasks that have not begun and
  // rethrows the exception after the last running task has ended.
  template <class Pool>
  static void For(int64_t count, const std::function<void(int64_t)>& task, int threads,
                  Pool& pool) {
    const auto tasks = std::make_shared<Tasks>(count, std::cref(task));
    Schedule(tasks, std::min<int64_t>(threads, count) - 1, pool);
    tasks->Finish();
  }

  // Implements ExecutionContext::Begin on a pool.
  template <class Pool>
  static std::shared_ptr<Background> Begin(int64_t count, std::function<void(int64_t)> task,
                                           int threads, Pool& pool) {
    const int64_t workers = std::min<int64_t>(threads - 1, count);
    if (workers < 1) return nullptr;
    auto tasks = std::make_shared<Tasks>(count, std::move(task));
    Schedule(tasks, workers, pool);
    return tasks;
  }

  bool Finish() override {
    RunRemaining();
    Wait();
    // The exception is moved to the caller, which frees it. Otherwise a thread of the pool
    // could free it at a later time.
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
    return !stopped_;
  }

  void Stop() override {
    stopped_ = true;
    MarkDone(count_ - std::min(count_, next_.exchange(count_)));
    Wait();
  }

 private:
  // Schedules RunRemaining on up to `workers` threads of the pool.
  template <class Pool>
  static void Schedule(const std::shared_ptr<Tasks>& tasks, int64_t workers, Pool& pool) {
    try {
      for (int64_t i = 0; i < workers; ++i) {
        pool.Schedule([tasks] { tasks->RunRemaining(); });
      }
    } catch (const std::bad_alloc&) {  // Without memory, fewer threads take part.
    }
  }

  // A thread may call this after the caller has returned. The function to which `task_` refers
  // may then have been destroyed. No task is left then, so the thread does not call `task_`.
  void RunRemaining() {
    int64_t taken = 0;
    for (int64_t i; (i = next_.fetch_add(1)) < count_; ++taken) {
      if (!failed_) Run(i);
    }
    MarkDone(taken);
  }

  void Run(int64_t i) {
    try {
      task_(i);
    } catch (...) {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!failed_.exchange(true)) thrown_ = std::current_exception();
    }
  }

  void MarkDone(int64_t tasks) {
    if (tasks > 0 && done_.fetch_add(tasks) + tasks == count_) {
      std::lock_guard<std::mutex> lock(mutex_);
      finished_.notify_all();
    }
  }

  void Wait() {
    // Spin before sleeping, because the other threads usually finish at about the same time.
    for (int i = 0; i < 8000; ++i) {
      if (done_.load() == count_) return;
      Pause();
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
