// The execution context of a TensorFlow op. It uses a thread pool and the allocator of the op's
// device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/execution_context.h"
#include "base/spinning_pool.h"
#include "base/tasks.h"
#include "base/tf/workers.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/lib/core/threadpool.h"

namespace opwright {

// An execution context whose threads are the calling thread and the threads of a pool.
template <class Pool>
class PoolContext : public ExecutionContext {
 public:
  PoolContext(Pool& pool, int threads) : pool_(pool), threads_(threads) {}

  int Threads() const override { return threads_; }

  void For(int64_t count, const std::function<void(int64_t)>& task) override {
    Tasks::For(count, task, threads_, pool_);
  }

  std::shared_ptr<Background> Begin(int64_t count, std::function<void(int64_t)> task) override {
    return Tasks::Begin(count, std::move(task), threads_, pool_);
  }

 private:
  Pool& pool_;
  const int threads_;
};

class DeviceContext : public PoolContext<tensorflow::thread::ThreadPool> {
 public:
  explicit DeviceContext(tensorflow::OpKernelContext* context)
      : PoolContext(*WorkerPool(context), WorkerPool(context)->NumThreads()),
        context_(context) {}

  // Small requests share a block of memory. The first requests use a buffer inside this object.
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

  // Memory is allocated on the host, because this code runs on the host even in an op on a GPU.
  static tensorflow::AllocatorAttributes OnHost() {
    tensorflow::AllocatorAttributes attributes;
    attributes.set_on_host(true);
    return attributes;
  }

  tensorflow::OpKernelContext* const context_;
  std::vector<tensorflow::Tensor> blocks_;
  alignas(64) char first_[16 << 10];  // Enough memory for a step of a small layer.
  char* next_ = first_;
  size_t left_ = sizeof first_;
};

// The execution context of a call from Python without an op.
class HostContext : public PoolContext<SpinningPool> {
 public:
  explicit HostContext(SpinningPool& pool) : PoolContext(pool, pool.size() + 1) {}

  void* Allocate(size_t bytes) override {
    int64_t size;
    tensorflow::TensorShape shape;
    if (!Narrow(bytes, &size) ||
        !tensorflow::TensorShape::BuildTensorShape({size}, &shape).ok()) {
      throw std::bad_alloc();
    }
    const tensorflow::Tensor tensor(tensorflow::cpu_allocator(), tensorflow::DT_INT8, shape);
    if (!tensor.IsInitialized()) throw std::bad_alloc();
    blocks_.push_back(tensor);
    return tensor.data();
  }

 private:
  std::vector<tensorflow::Tensor> blocks_;
};

}  // namespace opwright
