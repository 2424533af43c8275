// The CUDA context that calls are made in.
#pragma once

#include <cuda.h>

#include "embedding/spec.h"

namespace opwright::embedding::cuda {

// A thread without a context has device 0 as its current one, whichever GPUs its program
// leaves alone: to go back to that device would make a context there. So contexts are entered
// and left, and no device is ever chosen.
class Context {
 public:
  // That of the calling thread; with none, the current device's is made.
  static StatusOr<Context> Current();

  // While it lives, it is the calling thread's.
  class Scope {
   public:
    explicit Scope(const Context& context);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    const bool entered_;
  };

  // None: scopes of it change nothing.
  Context() = default;

 private:
  CUcontext context_ = nullptr;
};

}  // namespace opwright::embedding::cuda
