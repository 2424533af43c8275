// What the mathematics needs from its caller: threads and memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <new>

namespace opwright {

// Tasks that run on other threads while the caller does something else.
class Background {
 public:
  virtual ~Background() = default;

  // Runs the tasks that have not begun and waits for the others. Throws what a task threw.
  // Returns false if it was stopped.
  virtual bool Finish() = 0;
  // Leaves out the tasks that have not begun and waits for the others.
  virtual void Stop() = 0;
};

class ExecutionContext {
 public:
  virtual ~ExecutionContext() = default;

  // How many tasks can run at once, the caller's thread included.
  virtual int Threads() const = 0;

  // Runs task(0) ... task(count - 1) in any order, some of them at once, and returns after the
  // last. If a task throws, it throws that after the last running task ends.
  virtual void For(int64_t count, const std::function<void(int64_t)>& task) = 0;

  // Starts the same tasks on other threads and returns; null if there are none. The caller
  // finishes or stops them before it frees what the task uses.
  virtual std::shared_ptr<Background> Begin(int64_t /*count*/,
                                            std::function<void(int64_t)> /*task*/) {
    return nullptr;
  }

  // Memory aligned to 64 bytes that lives as long as this object. Throws std::bad_alloc.
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
