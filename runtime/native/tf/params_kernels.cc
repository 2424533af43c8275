// The CudnnRNN ops about parameters on the CPU: their number, and the packed vector's
// conversion from and to single matrices.
#include <cstring>
#include <vector>

#include "tf/params_pieces.h"

namespace opwright {
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
  absl::Status ReadStack(OpKernelContext* context, Stack* stack) const {
    int64_t sizes[3];
    for (int i = 0; i < 3; ++i) {
      const Tensor& tensor = context->input(i);
      if (auto status = CheckScalar(i, tensor.shape()); !status.ok()) return status;
      sizes[i] = tensor.scalar<int32_t>()();
    }
    *stack = attrs_.MakeStack(sizes[0], sizes[1], sizes[2]);
    if (auto error = Check(*stack)) return Invalid(*error);
    return absl::OkStatus();
  }

  const RnnAttrs attrs_;
};

template <class S>
class ParamsSizeOp : public ParamsOp {
 public:
  using ParamsOp::ParamsOp;

  void Compute(OpKernelContext* context) override {
    Stack stack;
    OP_REQUIRES_OK(context, ReadStack(context, &stack));
    const int64_t size = ParamsSize(stack);
    OP_REQUIRES_OK(context, CheckFits<S>(size));
    Tensor* output;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({1}), &output));
    output->vec<S>()(0) = static_cast<S>(size);
  }
};

// Both directions of the conversion.
class CanonicalOp : public ParamsOp {
 public:
  explicit CanonicalOp(OpKernelConstruction* context) : ParamsOp(context), counts_(context) {}

 protected:
  absl::Status CheckCounts(const Stack& stack) const { return counts_.Check(stack); }

 private:
  const CanonicalCounts counts_;
};

template <class T>
class CanonicalToParamsOp : public CanonicalOp {
 public:
  using CanonicalOp::CanonicalOp;

  void Compute(OpKernelContext* context) override {
    Stack stack;
    OP_REQUIRES_OK(context, ReadStack(context, &stack));
    OP_REQUIRES_OK(context, CheckCounts(stack));
    // All of them before the vector is made: sizes may ask for any amount of memory.
    const std::vector<Piece> weights = WeightPieces(stack), biases = BiasPieces(stack);
    OP_REQUIRES_OK(context, CheckShapes(context, "weights", weights));
    OP_REQUIRES_OK(context, CheckShapes(context, "biases", biases));
    Tensor* params;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, TensorShape({ParamsSize(stack)}), &params));
    OP_REQUIRES_OK(context, Copy(context, "weights", weights, params));
    OP_REQUIRES_OK(context, Copy(context, "biases", biases, params));
  }

 private:
  absl::Status CheckShapes(OpKernelContext* context, const char* name,
                           const std::vector<Piece>& pieces) const {
    OpInputList list;
    if (auto status = context->input_list(name, &list); !status.ok()) return status;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const TensorShape& shape = list[static_cast<int>(i)].shape();
      if (auto status = CheckPiece(name, i, pieces[i], shape); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Copy(OpKernelContext* context, const char* name,
                    const std::vector<Piece>& pieces, Tensor* params) const {
    OpInputList list;
    if (auto status = context->input_list(name, &list); !status.ok()) return status;
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].size() == 0) continue;
      std::memcpy(static_cast<void*>(params->flat<T>().data() + pieces[i].at),
                  list[static_cast<int>(i)].data(), pieces[i].size() * sizeof(T));
    }
    return absl::OkStatus();
  }
};

template <class T>
class ParamsToCanonicalOp : public CanonicalOp {
 public:
  using CanonicalOp::CanonicalOp;

  void Compute(OpKernelContext* context) override {
    Stack stack;
    OP_REQUIRES_OK(context, ReadStack(context, &stack));
    OP_REQUIRES_OK(context, CheckCounts(stack));
    const Tensor& params = context->input(3);
    OP_REQUIRES_OK(context, CheckParams(stack, params.shape()));
    OP_REQUIRES_OK(context, Copy(context, "weights", WeightPieces(stack), params));
    OP_REQUIRES_OK(context, Copy(context, "biases", BiasPieces(stack), params));
  }

 private:
  absl::Status Copy(OpKernelContext* context, const char* name,
                    const std::vector<Piece>& pieces, const Tensor& params) const {
    OpOutputList list;
    if (auto status = context->output_list(name, &list); !status.ok()) return status;
    for (size_t i = 0; i < pieces.size(); ++i) {
      Tensor* to;
      if (auto status = list.allocate(static_cast<int>(i), ShapeOf(pieces[i]), &to);
          !status.ok()) {
        return status;
      }
      if (pieces[i].size() == 0) continue;
      std::memcpy(to->data(), params.flat<T>().data() + pieces[i].at,
                  pieces[i].size() * sizeof(T));
    }
    return absl::OkStatus();
  }
};

#define REGISTER(T)                                                                       \
  REGISTER_KERNEL_BUILDER(Name("CudnnRNNParamsSize")                                      \
                              .Device(tensorflow::DEVICE_CPU)                             \
                              .TypeConstraint<T>("T")                                     \
                              .TypeConstraint<int32_t>("S")                               \
                              .Priority(kPriority),                                       \
                          ParamsSizeOp<int32_t>);                                         \
  REGISTER_KERNEL_BUILDER(Name("CudnnRNNParamsSize")                                      \
                              .Device(tensorflow::DEVICE_CPU)                             \
                              .TypeConstraint<T>("T")                                     \
                              .TypeConstraint<int64_t>("S")                               \
                              .Priority(kPriority),                                       \
                          ParamsSizeOp<int64_t>);                                         \
  REGISTER_CONVERSION("CudnnRNNCanonicalToParams", T, CanonicalToParamsOp<T>);            \
  REGISTER_CONVERSION("CudnnRNNCanonicalToParamsV2", T, CanonicalToParamsOp<T>);          \
  REGISTER_CONVERSION("CudnnRNNParamsToCanonical", T, ParamsToCanonicalOp<T>);            \
  REGISTER_CONVERSION("CudnnRNNParamsToCanonicalV2", T, ParamsToCanonicalOp<T>)
#define REGISTER_CONVERSION(NAME, T, OP)                      \
  REGISTER_KERNEL_BUILDER(Name(NAME)                          \
                              .Device(tensorflow::DEVICE_CPU) \
                              .TypeConstraint<T>("T")         \
                              .Priority(kPriority),           \
                          OP)

REGISTER(float);
REGISTER(double);
REGISTER(Eigen::half);
REGISTER(Eigen::bfloat16);

}  // namespace
}  // namespace opwright
