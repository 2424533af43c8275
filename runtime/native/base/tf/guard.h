// Exceptions end at the boundary of a kernel: what its constructor or Compute throws becomes a
// status.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tensorflow {
class XlaOpKernelContext;
}

namespace opwright {

// The status for the exception that is being handled.
inline absl::Status StatusOfException(const std::string& op) {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("no memory for " + op);
  } catch (const std::length_error&) {
    return absl::ResourceExhaustedError("no memory for " + op);
  } catch (const std::exception& error) {
    return absl::InternalError(op + ": " + error.what());
  } catch (...) {
    return absl::InternalError(op + ": an unknown exception");
  }
}

// The kernel, which lets no exception out.
template <class Kernel, class = void>
class Guarded : public Kernel {
 public:
  using Kernel::Kernel;

  void Compute(tensorflow::OpKernelContext* context) override {
    try {
      Kernel::Compute(context);
    } catch (...) {
      context->SetStatus(StatusOfException(this->type_string()));
    }
  }
};

template <class Kernel>
class Guarded<Kernel, std::enable_if_t<std::is_base_of_v<tensorflow::AsyncOpKernel, Kernel>>>
    : public Kernel {
 public:
  using Kernel::Kernel;
  using DoneCallback = tensorflow::AsyncOpKernel::DoneCallback;

  // Calls `done` once: the kernel does, or this function. After that the context may be gone.
  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) override {
    std::shared_ptr<std::atomic<bool>> called;
    try {
      called = std::make_shared<std::atomic<bool>>(false);
      Kernel::ComputeAsync(context, [called, done] {
        if (!called->exchange(true)) done();
      });
    } catch (...) {
      if (called && called->exchange(true)) return;
      context->SetStatus(StatusOfException(this->type_string()));
      done();
    }
  }
};

// A kernel of XLA. The context is a template parameter, so that only XLA's kernels include it.
template <class Kernel, class Context>
class GuardedCompile : public Kernel {
 public:
  using Kernel::Kernel;

  void Compile(Context* context) override {
    try {
      Kernel::Compile(context);
    } catch (...) {
      context->SetStatus(StatusOfException(this->type_string()));
    }
  }
};
template <class Kernel>
class Guarded<Kernel, std::void_t<decltype(&Kernel::Compile)>>
    : public GuardedCompile<Kernel, tensorflow::XlaOpKernelContext> {
 public:
  using GuardedCompile<Kernel, tensorflow::XlaOpKernelContext>::GuardedCompile;
};

// The factory that TensorFlow calls. On failure it returns null and sets the context's status.
template <class Kernel>
tensorflow::OpKernel* MakeGuarded(tensorflow::OpKernelConstruction* context) {
  try {
    return new Guarded<Kernel>(context);
  } catch (...) {
    context->SetStatus(StatusOfException(context->def().op()));
    return nullptr;
  }
}

}  // namespace opwright
