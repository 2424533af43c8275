// The execution context of a TensorFlow op: its device's thread pool and its allocator.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "base/execution_context.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/lib/core/threadpool.h"

namespace opwright {

class DeviceContext : public ExecutionContext {
 public:
  explicit DeviceContext(tensorflow::OpKernelContext* context)
      : context_(context),
        workers_(context->device()->tensorflow_cpu_worker_threads()->workers) {}

  int Threads() const override { return workers_->NumThreads(); }

  // Waits for tasks that have begun, never for a thread to become free: the caller does
  // what nobody else has taken, so a pool full of callers cannot block itself. What a task
  // throws is thrown here, once none runs any more; tasks that have not begun are left out.
  void For(int64_t count, const std::function<void(int64_t)>& task) override {
    auto shared = std::make_shared<Shared>(count, &task);
    const int64_t helpers = std::min<int64_t>(Threads(), count) - 1;
    try {
      for (int64_t i = 0; i < helpers; ++i) {
        workers_->Schedule([shared] { shared->Work(); });
      }
    } catch (const std::bad_alloc&) {  // Then with fewer of them.
    }
    shared->Work();
    shared->Wait();
    if (shared->thrown) std::rethrow_exception(shared->thrown);
  }

  // Small requests share a block; the first ones need none.
  void* Allocate(size_t bytes) override {
    const size_t size = (bytes + 63) / 64 * 64;
    if (size > left_) {
      const size_t block = std::max<size_t>(size, kBlockBytes);
      tensorflow::Tensor tensor;
      if (block < size ||
          !context_
               ->allocate_temp(tensorflow::DT_INT8,
                               tensorflow::TensorShape({static_cast<int64_t>(block)}), &tensor,
                               OnHost())
               .ok()) {
        throw std::bad_alloc();
      }
      char* const data = static_cast<char*>(tensor.data());
      blocks_.push_back(tensor);
      if (block - size < left_) return data;
      next_ = data;
      left_ = block;
    }
    void* const memory = next_;
    next_ += size;
    left_ -= size;
    return memory;
  }

 private:
  static constexpr size_t kBlockBytes = 64 << 10;

  // Of an op on a GPU too: what it does here, it does on the host.
  static tensorflow::AllocatorAttributes OnHost() {
    tensorflow::AllocatorAttributes attributes;
    attributes.set_on_host(true);
    return attributes;
  }

  struct Shared {
    Shared(int64_t tasks, const std::function<void(int64_t)>* run) : count(tasks), task(run) {}

    // Once no task is left, `task` may be gone: it is only used for one taken before.
    void Work() {
      int64_t did = 0;
      for (int64_t i; (i = next.fetch_add(1)) < count; ++did) {
        if (!failed) Try(i);
      }
      if (did > 0 && done.fetch_add(did) + did == count) {
        std::lock_guard<std::mutex> lock(mutex);
        finished.notify_all();
      }
    }

    void Try(int64_t i) {
      try {
        (*task)(i);
      } catch (...) {
        std::lock_guard<std::mutex> lock(mutex);
        if (!failed.exchange(true)) thrown = std::current_exception();
      }
    }

    void Wait() {
      // The others finish at about the same time: look a few times before sleeping.
      for (int i = 0; i < 8000; ++i) {
        if (done.load() == count) return;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
      }
      std::unique_lock<std::mutex> lock(mutex);
      finished.wait(lock, [this] { return done.load() == count; });
    }

    const int64_t count;
    const std::function<void(int64_t)>* const task;
    std::atomic<int64_t> next{0};
    std::atomic<int64_t> done{0};
    std::atomic<bool> failed{false};
    std::exception_ptr thrown;
    std::mutex mutex;
    std::condition_variable finished;
  };

  tensorflow::OpKernelContext* const context_;
  tensorflow::thread::ThreadPool* const workers_;
  std::vector<tensorflow::Tensor> blocks_;
  alignas(64) char first_[16 << 10];  // What a step of a small layer needs.
  char* next_ = first_;
  size_t left_ = sizeof first_;
};

}  // namespace opwright
