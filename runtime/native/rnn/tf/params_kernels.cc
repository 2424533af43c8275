// The CudnnRNN parameter ops on the CPU. They compute the number of parameters, and convert
// between the packed vector and canonical tensors.
#include <cstring>
#include <vector>

#include "base/tf/register.h"
#include "rnn/tf/params_canonical.h"

namespace opwright::rnn {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Tensor;
using tensorflow::TensorShape;

class ParamsOp : public OpKernel {
 public:
  explicit ParamsOp(OpKernelConstruction* context) : OpKernel(context), attrs_(context) {}

 protected:
  absl::Status ReadStack(OpKernelContext* context, StackSpec* stack) const {
    int64_t sizes[3];
    for (int i = 0; i < 3; ++i) {
      const Tensor& tensor = context->input(i);
      TF_RETURN_IF_ERROR(CheckScalar(i, tensor.shape()));
      sizes[i] = tensor.scalar<int32_t>()();
    }
    *stack = attrs_.MakeStack(sizes[0], sizes[1], sizes[2]);
    TF_RETURN_IF_ERROR(ToAbsl(Validate(*stack)));
    return absl::OkStatus();
  }

  const RnnAttrs attrs_;
};

template <class S>
class ParamsSizeOp : public ParamsOp {
 public:
  using ParamsOp::ParamsOp;

  void Compute(OpKernelContext* context) override {
    StackSpec stack;
    OP_REQUIRES_OK(context, ReadStack(context, &stack));
    const int64_t size = ParamsSize(stack);
    OP_REQUIRES_OK(context, CheckFits<S>(size));
    Tensor* output;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({1}), &output));
    output->vec<S>()(0) = static_cast<S>(size);
  }
};

// The base class of the conversions in both directions.
class CanonicalOp : public ParamsOp {
 public:
  explicit CanonicalOp(OpKernelConstruction* context) : ParamsOp(context), counts_(context) {}

 protected:
  absl::Status CheckCounts(const StackSpec& stack) const { return counts_.Validate(stack); }

 private:
  const CanonicalCounts counts_;
};

template <class T>
class CanonicalToParamsOp : public CanonicalOp {
 public:
  using CanonicalOp::CanonicalOp;

  void Compute(OpKernelContext* context) override {
    StackSpec stack;
    OP_REQUIRES_OK(context, ReadStack(context, &stack));
    OP_REQUIRES_OK(context, CheckCounts(stack));
    // Check all tensors before the vector is allocated, because sizes may be arbitrarily large.
    const std::vector<CanonicalParam> weights = CanonicalWeights(stack),
                                      biases = CanonicalBiases(stack);
    OP_REQUIRES_OK(context, CheckShapes(context, "weights", weights));
    OP_REQUIRES_OK(context, CheckShapes(context, "biases", biases));
    Tensor* params;
    TensorShape shape;
    OP_REQUIRES_OK(context, TensorShape::BuildTensorShape({ParamsSize(stack)}, &shape));
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &params));
    OP_REQUIRES_OK(context, Copy(context, "weights", weights, params));
    OP_REQUIRES_OK(context, Copy(context, "biases", biases, params));
  }

  absl::Status CheckShapes(OpKernelContext* context, const char* name,
                           const std::vector<CanonicalParam>& canonical) const {
    OpInputList list;
    TF_RETURN_IF_ERROR(context->input_list(name, &list));
    for (size_t i = 0; i < canonical.size(); ++i) {
      const TensorShape& shape = list[static_cast<int>(i)].shape();
      TF_RETURN_IF_ERROR(CheckCanonicalParam(name, i, canonical[i], shape));
    }
    return absl::OkStatus();
  }

  absl::Status Copy(OpKernelContext* context, const char* name,
                    const std::vector<CanonicalParam>& canonical, Tensor* params) const {
    OpInputList list;
    TF_RETURN_IF_ERROR(context->input_list(name, &list));
    for (size_t i = 0; i < canonical.size(); ++i) {
      if (canonical[i].size() == 0) continue;
      std::memcpy(static_cast<void*>(params->flat<T>().data() + canonical[i].at),
                  list[static_cast<int>(i)].data(), canonical[i].size() * sizeof(T));
    }
    return absl::OkStatus();
  }
};

template <class T>
class ParamsToCanonicalOp : public CanonicalOp {
 public:
  using CanonicalOp::CanonicalOp;

  void Compute(OpKernelContext* context) override {
    StackSpec stack;
    OP_REQUIRES_OK(context, ReadStack(context, &stack));
    OP_REQUIRES_OK(context, CheckCounts(stack));
    const Tensor& params = context->input(3);
    OP_REQUIRES_OK(context, CheckParams(stack, params.shape()));
    OP_REQUIRES_OK(context, Copy(context, "weights", CanonicalWeights(stack), params));
    OP_REQUIRES_OK(context, Copy(context, "biases", CanonicalBiases(stack), params));
  }

  absl::Status Copy(OpKernelContext* context, const char* name,
                    const std::vector<CanonicalParam>& canonical, const Tensor& params) const {
    OpOutputList list;
    TF_RETURN_IF_ERROR(context->output_list(name, &list));
    for (size_t i = 0; i < canonical.size(); ++i) {
      TensorShape shape;
      TF_RETURN_IF_ERROR(TensorShape::BuildTensorShape(DimsOf(canonical[i]), &shape));
      Tensor* to;
      TF_RETURN_IF_ERROR(list.allocate(static_cast<int>(i), shape, &to));
      if (canonical[i].size() == 0) continue;
      std::memcpy(to->data(), params.flat<T>().data() + canonical[i].at,
                  canonical[i].size() * sizeof(T));
    }
    return absl::OkStatus();
  }
};

#define REGISTER(T)                                                              \
  REGISTER_SIZE(T, int32_t);                                                     \
  REGISTER_SIZE(T, int64_t);                                                     \
  REGISTER_CONVERSION("CudnnRNNCanonicalToParams", T, CanonicalToParamsOp<T>);   \
  REGISTER_CONVERSION("CudnnRNNCanonicalToParamsV2", T, CanonicalToParamsOp<T>); \
  REGISTER_CONVERSION("CudnnRNNParamsToCanonical", T, ParamsToCanonicalOp<T>);   \
  REGISTER_CONVERSION("CudnnRNNParamsToCanonicalV2", T, ParamsToCanonicalOp<T>)
#define REGISTER_SIZE(T, S)                                                          \
  OPWRIGHT_REGISTER_KERNEL(                                                          \
      "CudnnRNNParamsSize",                                                          \
      .Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T").TypeConstraint<S>("S"), \
      ParamsSizeOp<S>)
#define REGISTER_CONVERSION(NAME, T, ...)                                                \
  OPWRIGHT_REGISTER_KERNEL(NAME, .Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), \
                           __VA_ARGS__)

REGISTER(float);
REGISTER(double);
REGISTER(Eigen::half);
REGISTER(Eigen::bfloat16);

#undef REGISTER

}  // namespace
}  // namespace opwright::rnn
