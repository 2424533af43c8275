// The interface through which kernels get threads and memory from their caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <new>

namespace opwright {

// Tasks that run on other threads while the caller does other work.
class Background {
 public:
  virtual ~Background() = default;

  // Runs, in the calling thread, the tasks that have not begun. Waits for the others. Rethrows
  // the exception of a task. Returns false if Stop was called.
  virtual bool Finish() = 0;
  // Skips the tasks that have not begun, and waits for the others.
  virtual void Stop() = 0;
};

class ExecutionContext {
 public:
  virtual ~ExecutionContext() = default;

  // Returns how many tasks can run at the same time. The number includes the calling thread.
  virtual int Threads() const = 0;

  // Runs task(0) ... task(count - 1) in any order and partly in parallel. Returns after the
  // last task has ended. If a task throws, For rethrows the exception after the last running
  // task has ended.
  virtual void For(int64_t count, const std::function<void(int64_t)>& task) = 0;

  // Starts task(0) ... task(count - 1) on other threads and returns at once. Returns null if
  // there are no other threads. The caller must call Finish or Stop before it frees data that
  // the tasks use.
  virtual std::shared_ptr<Background> Begin(int64_t /*count*/,
                                            std::function<void(int64_t)> /*task*/) {
    return nullptr;
  }

  // Returns memory that is aligned to 64 bytes. The memory is freed with this object. Throws
  // std::bad_alloc.
  virtual void* Allocate(size_t bytes) = 0;

  template <class X>
  X* Allocate(int64_t count) {
    if (count < 0 ||
        static_cast<uint64_t>(count) > std::numeric_limits<int64_t>::max() / sizeof(X)) {
      throw std::bad_alloc();
    }
    return static_cast<X*>(Allocate(static_cast<size_t>(count) * sizeof(X)));
  }
};

}  // namespace opwright
