// The execution context of a TensorFlow op: the threads that help it and its device's
// allocator.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/execution_context.h"
#include "base/tasks.h"
#include "base/tf/workers.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/lib/core/threadpool.h"

namespace opwright {

class DeviceContext : public ExecutionContext {
 public:
  explicit DeviceContext(tensorflow::OpKernelContext* context)
      : context_(context), workers_(WorkersOf(context)) {}

  int Threads() const override { return workers_->NumThreads(); }

  void For(int64_t count, const std::function<void(int64_t)>& task) override {
    Tasks::For(count, task, Threads(), *workers_);
  }

  std::shared_ptr<Background> Begin(int64_t count, std::function<void(int64_t)> task) override {
    return Tasks::Begin(count, std::move(task), Threads(), *workers_);
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
