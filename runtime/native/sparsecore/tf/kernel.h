// Functions that all SparseCore kernels share. They check shapes and access inputs and outputs.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "base/text.h"
#include "base/tf/status.h"
#include "sparsecore/triples.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::sparsecore {

inline absl::Status CheckRank(const char* name, const tensorflow::Tensor& tensor, int rank) {
  if (tensor.dims() == rank) return absl::OkStatus();
  return Invalid(
      name, StrCat("must be of rank ", rank, ", has the shape ", tensor.shape().DebugString()));
}

inline absl::Status CheckShape(const std::string& name, const tensorflow::Tensor& tensor,
                               const tensorflow::TensorShape& shape, const char* like) {
  if (tensor.shape() == shape) return absl::OkStatus();
  return Invalid(name, "must have the shape " + shape.DebugString() + ", as " + like +
                           ", has " + tensor.shape().DebugString());
}

// A kernel whose Compute returns a status.
class Kernel : public tensorflow::OpKernel {
 public:
  using tensorflow::OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* context) override {
    OP_REQUIRES_OK(context, Run(context));
  }

 protected:
  virtual absl::Status Run(tensorflow::OpKernelContext* context) = 0;
};

inline int64_t IntAttr(tensorflow::OpKernelConstruction* context, const char* name) {
  int64_t value = 0;
  context->SetStatus(context->GetAttr(name, &value));
  return value;
}

// Allocates a vector as output i of a context or of a list of outputs.
template <class Outputs>
absl::Status NewVector(Outputs* outputs, int i, int64_t size, tensorflow::Tensor** tensor) {
  tensorflow::TensorShape shape;
  TF_RETURN_IF_ERROR(tensorflow::TensorShape::BuildTensorShape({size}, &shape));
  if constexpr (std::is_same_v<Outputs, tensorflow::OpOutputList>) {
    return outputs->allocate(i, shape, tensor);
  } else {
    return outputs->allocate_output(i, shape, tensor);
  }
}

inline int32_t* Ints(tensorflow::Tensor* tensor) { return tensor->flat<int32_t>().data(); }
inline const int32_t* Ints(const tensorflow::Tensor& tensor) {
  return tensor.flat<int32_t>().data();
}
inline float* Floats(tensorflow::Tensor* tensor) { return tensor->flat<float>().data(); }
inline const float* Floats(const tensorflow::Tensor& tensor) {
  return tensor.flat<float>().data();
}

inline absl::Status SetScalar(tensorflow::OpKernelContext* context, const char* name,
                              int64_t value) {
  tensorflow::Tensor* tensor;
  TF_RETURN_IF_ERROR(context->allocate_output(name, tensorflow::TensorShape({}), &tensor));
  tensor->flat<int32_t>()(0) = static_cast<int32_t>(value);
  return absl::OkStatus();
}

// Returns views of the triples of each list element. `names` contains the names of the three
// inputs.
inline absl::Status ReadTripleLists(const tensorflow::OpInputList& samples,
                                    const tensorflow::OpInputList& rows,
                                    const tensorflow::OpInputList& gains,
                                    const char* const (&names)[3],
                                    std::vector<TriplesView>* views) {
  for (int i = 0; i < samples.size(); ++i) {
    const tensorflow::Tensor* const tensors[] = {&samples[i], &rows[i], &gains[i]};
    for (int k = 0; k < 3; ++k) {
      const std::string name = StrCat(names[k], "[", i, "]");
      TF_RETURN_IF_ERROR(CheckRank(name.c_str(), *tensors[k], 1));
      TF_RETURN_IF_ERROR(CheckShape(name, *tensors[k], samples[i].shape(), names[0]));
    }
    views->push_back(
        {Ints(samples[i]), Ints(rows[i]), Floats(gains[i]), samples[i].dim_size(0)});
  }
  return absl::OkStatus();
}

}  // namespace opwright::sparsecore
