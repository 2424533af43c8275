// The thread pools of the library: one for its ops, and one for calls from Python without an
// op.
#pragma once

#include <atomic>

#include "base/spinning_pool.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/lib/core/threadpool.h"
#include "tensorflow/core/platform/env.h"

namespace opwright {

inline std::atomic<tensorflow::thread::ThreadPool*>& DedicatedPool() {
  static std::atomic<tensorflow::thread::ThreadPool*> pool{nullptr};
  return pool;
}

// Gives all ops of the library their own pool with `threads` threads. This is for processes
// where TensorFlow's ops have only one thread. Only the first call sets the number of threads.
// The threads sleep between tasks, because spinning would take processors from TensorFlow's
// threads. The pool is never destroyed, because its threads may still run when the process
// ends. TensorFlow's pools are not destroyed either.
inline void UseDedicatedPool(int threads) {
  static const auto pool = new tensorflow::thread::ThreadPool(
      tensorflow::Env::Default(), tensorflow::ThreadOptions(), "opwright", threads,
      /*low_latency_hint=*/false);
  DedicatedPool() = pool;
}

// Returns the pool that runs the tasks of an op: the library's own pool if there is one,
// otherwise the pool of the op's device.
inline tensorflow::thread::ThreadPool* WorkerPool(tensorflow::OpKernelContext* context) {
  const auto dedicated = DedicatedPool().load();
  return dedicated ? dedicated : context->device()->tensorflow_cpu_worker_threads()->workers;
}

// Returns the pool for calls from Python without an op. The first call sets the number of
// threads, which includes the calling thread. The pool is never destroyed.
inline SpinningPool& DirectCallPool(int threads) {
  static SpinningPool* const pool = new SpinningPool(threads - 1);
  return *pool;
}

}  // namespace opwright
