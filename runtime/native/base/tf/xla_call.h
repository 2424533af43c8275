// What a kernel for XLA reads of its call: shapes, tensors, and numbers that are known when the
// program is compiled. Errors name the op's arguments.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "base/text.h"
#include "base/tf/status.h"
#include "base/tf/xla_op_kernel.h"
#include "base/xla/builder.h"
#include "tensorflow/core/framework/op.h"
#include "xla/shape_util.h"

namespace opwright {

using Sizes = std::vector<int64_t>;

inline std::string Text(const Sizes& sizes) {
  return StrCat("[", absl::StrJoin(sizes, ","), "]");
}

class XlaCall {
 public:
  static constexpr int kNone = -1;

  explicit XlaCall(tensorflow::XlaOpKernelContext* context) : context_(context) {}

  // Reads the shapes of all inputs. If XLA knows only a bound of a shape, and it is not that of
  // input `bounded`, the error is Unimplemented. If auto-clustering chose the node, TensorFlow
  // then runs it without XLA.
  absl::Status ReadShapes(int bounded = kNone) {
    for (int i = 0; i < context_->num_inputs(); ++i) {
      if (context_->input_type(i) == tensorflow::DT_RESOURCE) {
        shapes_.emplace_back();
        continue;
      }
      const auto shape = context_->InputXlaShape(i);
      if (!shape.ok()) return shape.status();
      if (shape->is_dynamic() && i != bounded) {
        return absl::UnimplementedError(StrCat(NameOf(i), ": must have a static shape, has ",
                                               xla::ShapeUtil::HumanString(*shape)));
      }
      const auto sizes = shape->dimensions();
      shapes_.emplace_back(sizes.begin(), sizes.end());
    }
    return absl::OkStatus();
  }

  int num_inputs() const { return context_->num_inputs(); }
  const Sizes& shape(int i) const { return shapes_[static_cast<size_t>(i)]; }
  int64_t rank(int i) const { return static_cast<int64_t>(shape(i).size()); }
  int64_t count(int i) const {
    int64_t product = 1;  // XLA's own shapes do not overflow.
    for (const int64_t size : shape(i)) product *= size;
    return product;
  }
  xla::XlaOp input(int i) const { return context_->Input(i); }
  xla::PrimitiveType type(int i) const { return context_->input_xla_type(i); }
  tensorflow::DataType dtype(int i) const { return context_->input_type(i); }
  xla::XlaBuilder* builder() const { return context_->builder(); }
  tensorflow::XlaOpKernelContext* context() const { return context_; }

  // Returns the name of input i. Lists are the last inputs, and all elements of a list have its
  // name.
  std::string NameOf(int i) const {
    const tensorflow::OpDef* def;
    const std::string& op = context_->op_kernel().type_string();
    if (!tensorflow::OpRegistry::Global()->LookUpOpDef(op, &def).ok()) return op;
    return def->input_arg(std::min(i, def->input_arg_size() - 1)).name();
  }
  absl::Status Refuse(int i, const std::string& problem) const {
    return Invalid(NameOf(i), problem);
  }

  // The error for an input that must be known, in the words of TensorFlow.
  absl::Status NotKnown(int i, const std::string& advice) const {
    const tensorflow::OpKernel& kernel = context_->op_kernel();
    return absl::InvalidArgumentError(StrCat("Input ", i, " to node `", kernel.name(),
                                             "` with op ", kernel.type_string(),
                                             " must be a compile-time constant. ", advice));
  }

  absl::Status WantRank(int i, int64_t rank) const {
    if (this->rank(i) == rank) return absl::OkStatus();
    const std::string wanted = rank == 0 ? "be a scalar" : StrCat("have rank ", rank);
    return Refuse(i, StrCat("must ", wanted, ", has the shape ", Text(shape(i))));
  }
  absl::Status WantShape(int i, const Sizes& wanted) const {
    if (shape(i) == wanted) return absl::OkStatus();
    return Refuse(i, StrCat("must have the shape ", Text(wanted), ", has ", Text(shape(i))));
  }

  // Reads integers that must be known when the program is compiled.
  absl::Status Known(int i, Sizes* values) const {
    return context_->ConstantInputReshapedToIntVector(i, values);
  }
  absl::Status Known(int i, int64_t* value) const {
    TF_RETURN_IF_ERROR(WantRank(i, 0));
    Sizes values;
    TF_RETURN_IF_ERROR(Known(i, &values));
    *value = values[0];
    return absl::OkStatus();
  }
  // Reads a size: it must not be below `least`.
  absl::Status KnownSize(int i, int64_t least, int64_t* value) const {
    TF_RETURN_IF_ERROR(Known(i, value));
    if (*value >= least) return absl::OkStatus();
    return Refuse(i, StrCat("must be at least ", least, ", is ", *value));
  }

  // Refuses a shape of 2^40 elements or more, for which XLA would end the process. `name` is
  // the input that has the sizes.
  absl::Status CheckSize(const std::string& name, const Sizes& sizes) const {
    int64_t elements = 1;
    bool zero = false;
    for (const int64_t size : sizes) zero |= size == 0;
    for (const int64_t size : sizes) {
      if (size < 0 || size >= kMost || (!zero && size >= kMost / elements)) {
        return Invalid(name, StrCat("the shape ", Text(sizes), " is too large or negative"));
      }
      if (!zero) elements *= size;
    }
    return absl::OkStatus();
  }
  void Set(int i, xla::XlaOp value) { context_->SetOutput(i, value); }

 private:
  static constexpr int64_t kMost = int64_t{1} << 40;

  tensorflow::XlaOpKernelContext* const context_;
  std::vector<Sizes> shapes_;
};

// A kernel whose inputs have static shapes, but for that of BoundedInput.
class XlaKernel : public tensorflow::XlaOpKernel {
 public:
  using tensorflow::XlaOpKernel::XlaOpKernel;

  void Compile(tensorflow::XlaOpKernelContext* context) override {
    XlaCall call(context);
    OP_REQUIRES_OK(context, call.ReadShapes(BoundedInput()));
    OP_REQUIRES_OK(context, Build(&call));
  }

 protected:
  virtual absl::Status Build(XlaCall* call) const = 0;
  // The input that may have a shape of which XLA knows a bound. Its sizes are then the bounds.
  virtual int BoundedInput() const { return XlaCall::kNone; }
};

}  // namespace opwright
