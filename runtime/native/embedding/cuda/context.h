// The CUDA context in which calls run.
#pragma once

#include <cuda.h>

#include "embedding/spec.h"

namespace opwright::embedding::cuda {

// Enters and leaves CUDA contexts, and does not switch devices with cudaSetDevice. The current
// device of a thread without a context is device 0, even if the program must not use that GPU.
// To switch back to device 0 would create a context on it.
class Context {
 public:
  // Returns the context of the calling thread. If the thread has none, creates the context of
  // the current device.
  static StatusOr<Context> Current();

  // Makes a context the calling thread's current context until the scope is destroyed.
  class Scope {
   public:
    explicit Scope(const Context& context);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    const bool entered_;
  };

  // An empty context. A scope of it has no effect.
  Context() = default;

 private:
  CUcontext context_ = nullptr;
};

}  // namespace opwright::embedding::cuda
