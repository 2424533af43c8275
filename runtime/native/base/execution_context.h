// What the mathematics asks of whoever runs it: threads and memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <new>

namespace opwright {

// Tasks that other threads have begun with while the caller does something else.
class Background {
 public:
  virtual ~Background() = default;

  // Does the tasks that nobody has begun and waits for the others; throws what they threw.
  // False if it was stopped.
  virtual bool Finish() = 0;
  // Leaves out the tasks that nobody has begun and waits for the others.
  virtual void Stop() = 0;
};

class ExecutionContext {
 public:
  virtual ~ExecutionContext() = default;

  // How many tasks can run at once, the caller's own thread included.
  virtual int Threads() const = 0;

  // Runs task(0) ... task(count - 1) in any order, some of them at once, and returns
  // after the last. What a task throws, it throws when no task runs any more.
  virtual void For(int64_t count, const std::function<void(int64_t)>& task) = 0;

  // Begins with the same on other threads and returns; null where there are none. Whoever
  // holds it finishes or stops it before what the task works with is gone.
  virtual std::shared_ptr<Background> Begin(int64_t /*count*/,
                                            std::function<void(int64_t)> /*task*/) {
    return nullptr;
  }

  // Memory aligned to 64 bytes that lives as long as this; throws std::bad_alloc.
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
