// Checks that the parameter ops share: the shapes and the number of canonical tensors.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_join.h"
#include "base/text.h"
#include "rnn/layout.h"
#include "rnn/tf/attrs.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace opwright::rnn {

// The names of the inputs that contain the sizes of the layers.
constexpr const char* kSizeNames[] = {"num_layers", "num_units", "input_size"};

inline absl::Status CheckScalar(int i, const tensorflow::TensorShape& shape) {
  if (tensorflow::TensorShapeUtils::IsScalar(shape)) return absl::OkStatus();
  return Invalid(kSizeNames[i], "must be a scalar, has the shape " + shape.DebugString());
}

// The vector may be longer than the parameters, as in TensorFlow's GPU kernels. The additional
// elements are not read.
inline absl::Status CheckParams(const StackSpec& stack, const tensorflow::TensorShape& shape) {
  const int64_t size = ParamsSize(stack);
  if (shape.dims() == 1 && shape.dim_size(0) >= size) return absl::OkStatus();
  return Invalid(
      "params", StrCat("must have the shape [", size,
                       "] for these layers, or be a longer vector, has ", shape.DebugString()));
}

template <class S>
absl::Status CheckFits(int64_t size) {
  if (size <= std::numeric_limits<S>::max()) return absl::OkStatus();
  return Invalid("num_units", StrCat("there are ", size,
                                     " parameters, too many for the dtype of params_size"));
}

inline absl::InlinedVector<int64_t, 3> DimsOf(const CanonicalParam& param) {
  if (param.columns < 0) return {param.rows};
  return {param.rows, param.columns};
}

// Accepts a tensor of any shape with the right number of elements, as TensorFlow's GPU kernels
// do. The layers of TensorFlow 1 restore flat tensors.
inline absl::Status CheckCanonicalParam(const char* name, size_t i, const CanonicalParam& param,
                                        const tensorflow::TensorShape& shape) {
  if (shape.num_elements() == param.size()) return absl::OkStatus();
  return Invalid(
      StrCat(name, "[", i, "]"),
      StrCat("must have the ", param.size(), " elements of [",
             absl::StrJoin(DimsOf(param), ","), "], has the shape ", shape.DebugString()));
}

// The numbers of tensors, which are attrs of the conversion ops. The first version has one
// attr, and V2 has two.
class CanonicalCounts {
 public:
  explicit CanonicalCounts(tensorflow::OpKernelConstruction* context) {
    if (context->HasAttr("num_params")) {
      weights_attr_ = biases_attr_ = "num_params";
    }
    OP_REQUIRES_OK(context, context->GetAttr(weights_attr_, &weights_));
    OP_REQUIRES_OK(context, context->GetAttr(biases_attr_, &biases_));
  }

  // Call this before a layout is created, because this check bounds the number of layers and so
  // the size of the layout.
  absl::Status Validate(const StackSpec& stack) const {
    const int64_t stacked = stack.layers * stack.dirs();
    if (weights_ != stacked * WeightsPerLayer(stack)) {
      return Invalid(weights_attr_,
                     StrCat("these layers have ", stacked * WeightsPerLayer(stack),
                            " weights, not ", weights_));
    }
    if (biases_ != stacked * 2 * stack.gates()) {
      return Invalid(biases_attr_, StrCat("these layers have ", stacked * 2 * stack.gates(),
                                          " biases, not ", biases_));
    }
    return absl::OkStatus();
  }

 private:
  std::string weights_attr_ = "num_params_weights", biases_attr_ = "num_params_biases";
  int weights_ = 0, biases_ = 0;
};

}  // namespace opwright::rnn
