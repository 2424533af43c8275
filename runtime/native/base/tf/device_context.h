// The execution context of a TensorFlow op: its device's thread pool and its allocator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/execution_context.h"
#include "base/tasks.h"
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
    const auto tasks = std::make_shared<Tasks>(count, std::cref(task));
    Tasks::Help(tasks, std::min<int64_t>(Threads(), count) - 1, *workers_);
    tasks->Finish();
  }

  std::shared_ptr<Background> Begin(int64_t count, std::function<void(int64_t)> task) override {
    const int64_t helpers = std::min<int64_t>(Threads() - 1, count);
    if (helpers < 1) return nullptr;
    auto tasks = std::make_shared<Tasks>(count, std::move(task));
    Tasks::Help(tasks, helpers, *workers_);
    return tasks;
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

  tensorflow::OpKernelContext* const context_;
  tensorflow::thread::ThreadPool* const workers_;
  std::vector<tensorflow::Tensor> blocks_;
  alignas(64) char first_[16 << 10];  // What a step of a small layer needs.
  char* next_ = first_;
  size_t left_ = sizeof first_;
};

}  // namespace opwright
