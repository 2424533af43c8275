// The thread pools of the library: of its ops, and of calls that Python makes without an op.
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

// Gives all ops of the library a pool of their own with so many threads, for processes where
// TensorFlow's ops have one thread each. The first call decides. The threads sleep between
// tasks: spinning would take processors from TensorFlow's threads. Like TensorFlow's pools it
// is never destroyed, because its threads may still run when the process ends.
inline void UseDedicatedPool(int threads) {
  static const auto pool = new tensorflow::thread::ThreadPool(
      tensorflow::Env::Default(), tensorflow::ThreadOptions(), "opwright", threads,
      /*low_latency_hint=*/false);
  DedicatedPool() = pool;
}

// The pool that runs the tasks of an op: the dedicated one, or that of its device.
inline tensorflow::thread::ThreadPool* WorkerPool(tensorflow::OpKernelContext* context) {
  const auto dedicated = DedicatedPool().load();
  return dedicated ? dedicated : context->device()->tensorflow_cpu_worker_threads()->workers;
}

// The pool of calls that Python makes without an op. The first call sets the number of threads,
// the caller's included. It is never destroyed either.
inline SpinningPool& DirectCallPool(int threads) {
  static SpinningPool* const pool = new SpinningPool(threads - 1);
  return *pool;
}

}  // namespace opwright
