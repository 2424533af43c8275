// The threads that help the library's ops: the device's pool, or one of the library's own.
#pragma once

#include <atomic>

#include "base/spinning_pool.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/lib/core/threadpool.h"
#include "tensorflow/core/platform/env.h"

namespace opwright {

inline std::atomic<tensorflow::thread::ThreadPool*>& DedicatedPool() {
  static std::atomic<tensorflow::thread::ThreadPool*> workers{nullptr};
  return workers;
}

// From now on all ops are helped by a pool of as many threads, where TensorFlow's own ops shall
// have one each. Of two calls the first one counts. They sleep between tasks: TensorFlow's
// threads have a processor each already, which theirs would be wasted on by waiting busily.
// Like TensorFlow's pools it is never destroyed: its threads may be at work when the process
// ends.
inline void UseDedicatedPool(int threads) {
  static const auto workers = new tensorflow::thread::ThreadPool(
      tensorflow::Env::Default(), tensorflow::ThreadOptions(), "opwright", threads,
      /*low_latency_hint=*/false);
  DedicatedPool() = workers;
}

inline tensorflow::thread::ThreadPool* WorkerPool(tensorflow::OpKernelContext* context) {
  const auto own = DedicatedPool().load();
  return own ? own : context->device()->tensorflow_cpu_worker_threads()->workers;
}

// What helps calls that are no op's, with as many threads as ops had when somebody first asked,
// the caller's among them. Never destroyed either.
inline SpinningPool& DirectCallPool(int threads) {
  static SpinningPool* const pool = new SpinningPool(threads - 1);
  return *pool;
}

}  // namespace opwright
