// Calls of functions that are attrs of an op, and kernels that call them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/tf/guard.h"
#include "base/tf/status.h"
#include "tensorflow/core/common_runtime/function_body.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::sparsecore {

// A kernel that calls functions. It waits for no function, because functions run on the threads
// of kernels. Each step of the kernel starts the next one.
class AsyncKernel : public tensorflow::AsyncOpKernel {
 public:
  using tensorflow::AsyncOpKernel::AsyncOpKernel;

  void ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) override {
    RunStep(context, done, [&] { return Start(context, done); });
  }

 protected:
  // A step that succeeds has called `done` last, or has started the step that will.
  virtual absl::Status Start(tensorflow::OpKernelContext* context,
                             const DoneCallback& done) = 0;

  // Runs a step, and ends the kernel if the step fails.
  template <class Step>
  void RunStep(tensorflow::OpKernelContext* context, const DoneCallback& done,
               const Step& step) const {
    absl::Status status;
    try {
      status = step();
    } catch (...) {
      status = StatusOfException(type_string());
    }
    if (status.ok()) return;
    context->SetStatus(status);
    done();
  }
};

// A function that an attr of an op names.
class FunctionAttr {
 public:
  using Results = std::vector<tensorflow::Tensor>;
  using Then = std::function<void(const absl::Status&, Results&)>;

  FunctionAttr(tensorflow::OpKernelConstruction* context, const char* name) : name_(name) {
    context->SetStatus(context->GetAttr(name, &function_));
  }

  // Starts a call, which will call `then` once. Refuses a function that does not take tensors
  // of the types of `arguments`, or that does not return `results` tensors of float32. If
  // `optional`, it may return none instead.
  absl::Status Call(tensorflow::OpKernelContext* context, const Results& arguments,
                    size_t results, bool optional, Then then) const {
    tensorflow::FunctionLibraryRuntime* const library = context->function_library();
    if (!library) return absl::InternalError(name_ + ": this runtime does not run functions");
    tensorflow::FunctionLibraryRuntime::Handle handle;
    TF_RETURN_IF_ERROR(Named(library->Instantiate(
        function_.name(), tensorflow::AttrSlice(&function_.attr()), &handle)));
    TF_RETURN_IF_ERROR(
        CheckTypes(library->GetFunctionBody(handle), arguments, results, optional));
    tensorflow::FunctionLibraryRuntime::Options options(context->step_id());
    options.rendezvous = context->rendezvous();
    options.cancellation_manager = context->cancellation_manager();
    options.collective_executor = context->collective_executor();
    options.step_container = context->step_container();
    options.stats_collector = context->stats_collector();
    options.runner = context->runner();
    options.run_all_kernels_inline = context->run_all_kernels_inline();
    auto returned = std::make_shared<Results>();
    library->Run(options, handle, arguments, returned.get(),
                 [this, returned, then = std::move(then)](const absl::Status& status) {
                   then(NamedOrPlain(status), *returned);
                 });
    return absl::OkStatus();
  }

  // Refuses a result that does not have `shape`.
  absl::Status CheckResult(const tensorflow::Tensor& result,
                           const tensorflow::TensorShape& shape) const {
    if (result.shape() == shape) return absl::OkStatus();
    return Invalid(name_, "the function must return a tensor of the shape " +
                              shape.DebugString() + ", returns " +
                              result.shape().DebugString());
  }

  const std::string& name() const { return name_; }

 private:
  absl::Status Named(const absl::Status& status) const {
    if (status.ok()) return status;
    return absl::Status(status.code(), StrCat(name_, ": ", std::string(status.message())));
  }

  // Does not throw, because TensorFlow calls it.
  absl::Status NamedOrPlain(const absl::Status& status) const {
    try {
      return Named(status);
    } catch (...) {
      return status;
    }
  }

  absl::Status CheckTypes(const tensorflow::FunctionBody* body, const Results& arguments,
                          size_t results, bool optional) const {
    if (!body) return absl::InternalError(name_ + ": the function has no body");
    tensorflow::DataTypeVector wanted;
    for (const tensorflow::Tensor& argument : arguments) wanted.push_back(argument.dtype());
    const tensorflow::DataTypeVector floats(results, tensorflow::DT_FLOAT);
    if (body->arg_types != wanted) {
      return Invalid(name_, "the function must take " + Words(wanted) + ", takes " +
                                Words(body->arg_types));
    }
    if (body->ret_types == floats || (optional && body->ret_types.empty())) {
      return absl::OkStatus();
    }
    return Invalid(name_, "the function must return " + Words(floats) +
                              (optional ? " or nothing" : "") + ", returns " +
                              Words(body->ret_types));
  }

  static std::string Words(const tensorflow::DataTypeVector& types) {
    std::string text;
    for (const tensorflow::DataType type : types) {
      text += (text.empty() ? "(" : ", ") + tensorflow::DataTypeString(type);
    }
    return text.empty() ? "nothing" : text + ")";
  }

  const std::string name_;
  tensorflow::NameAttrList function_;
};

}  // namespace opwright::sparsecore
