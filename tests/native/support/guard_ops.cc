// Ops whose kernels throw where the attr `where` says, to see what becomes of it.
#include <atomic>
#include <chrono>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/tf/device_context.h"
#include "base/tf/register.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

namespace opwright {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

void Throw(const std::string& what) {
  if (what == "bad_alloc") throw std::bad_alloc();
  if (what == "length_error") throw std::length_error("too long");
  if (what == "logic_error") throw std::logic_error("not logical");
  if (what == "int") throw 1;
}

template <class Base>
class ThrowingOp : public Base {
 public:
  explicit ThrowingOp(OpKernelConstruction* context) : Base(context) {
    OP_REQUIRES_OK(context, context->GetAttr("what", &what_));
    OP_REQUIRES_OK(context, context->GetAttr("where", &where_));
    if (where_ == "construction") Throw(what_);
  }

 protected:
  std::string what_, where_;
};

class SyncOp : public ThrowingOp<OpKernel> {
 public:
  using ThrowingOp::ThrowingOp;

  // One task throws, while others use what this function has: they must have ended when it
  // does.
  void ThrowInTasks(OpKernelContext* context) {
    constexpr int64_t kTasks = 64;
    struct Under {
      explicit Under(std::atomic<int>* count) : at(count) { ++*at; }
      ~Under() { --*at; }
      std::atomic<int>* at;
    };
    std::atomic<int> under_way{0};
    try {
      DeviceContext(context).For(kTasks, [&](int64_t i) {
        const Under under(&under_way);
        if (i % 3 == 1) Throw(what_);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      });
    } catch (...) {
      if (under_way != 0) throw std::logic_error("tasks were under way");
      throw;
    }
  }

  void Compute(OpKernelContext* context) override {
    if (where_ == "work") Throw(what_);
    if (where_ == "task") ThrowInTasks(context);
    context->set_output(0, context->input(0));
  }
};

class AsyncOp : public ThrowingOp<AsyncOpKernel> {
 public:
  using ThrowingOp::ThrowingOp;

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    if (where_ == "work") Throw(what_);
    context->set_output(0, context->input(0));
    done();
    if (where_ == "after") Throw(what_);  // The context may be gone.
  }
};

#define REGISTER(NAME, ...)                                     \
  REGISTER_OP(NAME)                                             \
      .Input("x: float")                                        \
      .Output("y: float")                                       \
      .Attr("what: string")                                     \
      .Attr("where: string")                                    \
      .SetIsStateful()                                          \
      .SetShapeFn(tensorflow::shape_inference::UnchangedShape); \
  OPWRIGHT_REGISTER_CPU(NAME, __VA_ARGS__)

REGISTER("OpwrightThrows", SyncOp);
REGISTER("OpwrightThrowsAsync", AsyncOp);

}  // namespace
}  // namespace opwright
