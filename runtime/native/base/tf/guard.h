// Wrappers that convert the exceptions of a kernel's constructor and of Compute to a status. No
// exception leaves a kernel.
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

// Returns the status for the exception that is currently handled.
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

// The kernel `Kernel`, with its exceptions converted.
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

  // `done` is called exactly once, by the kernel or by this function. After that call, the
  // context may not exist any more.
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

// The kernel `Kernel` for XLA, with its exceptions converted. The context is a template
// parameter, so that only XLA's kernels include its header.
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

// The factory that TensorFlow calls. On failure it returns null and sets the status of the
// context.
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
