// Helpers for tests without TensorFlow: a thread pool, memory that ends where an array ends,
// and random numbers.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "base/execution_context.h"
#include "base/tasks.h"

namespace opwright {

// A pool of threads that runs every scheduled task before it is destroyed.
class Pool {
 public:
  explicit Pool(int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { Work(); });
    }
  }

  ~Pool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  int size() const { return static_cast<int>(threads_.size()); }

  void Schedule(std::function<void()> task) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

 private:
  void Work() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return closed_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
  bool closed_ = false;
};

// An execution context on a Pool. The calling thread runs the tasks that the pool has not
// begun, and then waits for the others.
class PoolContext : public ExecutionContext {
 public:
  explicit PoolContext(Pool& pool) : pool_(pool) {}

  int Threads() const override { return pool_.size(); }

  void For(int64_t count, const std::function<void(int64_t)>& task) override {
    Tasks::For(count, task, Threads(), pool_);
  }

  std::shared_ptr<Background> Begin(int64_t count, std::function<void(int64_t)> task) override {
    return Tasks::Begin(count, std::move(task), Threads(), pool_);
  }

  void* Allocate(size_t bytes) override {
    void* memory = std::aligned_alloc(64, std::max<size_t>(64, (bytes + 63) / 64 * 64));
    if (!memory) throw std::bad_alloc();
    memory_.emplace_back(memory, &std::free);
    return memory;
  }

 private:
  Pool& pool_;
  std::vector<std::unique_ptr<void, decltype(&std::free)>> memory_;
};

struct Random {
  uint64_t state = 1;
  uint64_t Next() { return state = state * 6364136223846793005u + 1442695040888963407u; }
  int64_t Below(int64_t limit) { return static_cast<int64_t>((Next() >> 33) % limit); }
  double Uniform() { return static_cast<double>(Next() >> 11) / (1ull << 53) - 0.5; }
};

}  // namespace opwright
