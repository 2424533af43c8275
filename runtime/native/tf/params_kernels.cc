// The CudnnRNN ops about parameters on the CPU: their number, and the packed vector's
// conversion from and to single matrices.
#include <cstring>
#include <limits>
#include <vector>

#include "core/config.h"
#include "tf/rnn_attrs.h"

namespace opwright {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// One canonical tensor and where it lies in the packed vector.
struct Piece {
  int64_t at;
  int64_t rows;
  int64_t columns;  // -1: a bias, of rank 1.

  int64_t size() const { return columns < 0 ? rows : rows * columns; }
  TensorShape shape() const {
    return columns < 0 ? TensorShape({rows}) : TensorShape({rows, columns});
  }
};

int64_t WeightsPerLayer(const Stack& stack) {
  return 2 * stack.gates() + (stack.projection > 0 ? 1 : 0);
}

// With skip_input, the first layer's input weights are there, without columns.
std::vector<Piece> Weights(const Stack& stack) {
  std::vector<Piece> pieces;
  const std::vector<LayerParams> layout = ParamsLayout(stack);
  for (size_t i = 0; i < layout.size(); ++i) {
    const int64_t layer = static_cast<int64_t>(i) / stack.dirs();
    const int64_t in = stack.has_input_weights(layer) ? stack.layer_input(layer) : 0;
    for (int64_t gate = 0; gate < stack.gates(); ++gate) {
      pieces.push_back({layout[i].input_weights + gate * stack.units * in, stack.units, in});
    }
    for (int64_t gate = 0; gate < stack.gates(); ++gate) {
      pieces.push_back({layout[i].recurrent_weights + gate * stack.units * stack.hidden(),
                        stack.units, stack.hidden()});
    }
    if (stack.projection > 0) {
      pieces.push_back({layout[i].projection, stack.projection, stack.units});
    }
  }
  return pieces;
}

std::vector<Piece> Biases(const Stack& stack) {
  std::vector<Piece> pieces;
  for (const LayerParams& layer : ParamsLayout(stack)) {
    for (const int64_t begin : {layer.input_bias, layer.recurrent_bias}) {
      for (int64_t gate = 0; gate < stack.gates(); ++gate) {
        pieces.push_back({begin + gate * stack.units, stack.units, -1});
      }
    }
  }
  return pieces;
}

class ParamsOp : public OpKernel {
 public:
  explicit ParamsOp(OpKernelConstruction* context) : OpKernel(context), attrs_(context) {}

 protected:
  absl::Status ReadStack(OpKernelContext* context, Stack* stack) const {
    static constexpr const char* kNames[] = {"num_layers", "num_units", "input_size"};
    int64_t sizes[3];
    for (int i = 0; i < 3; ++i) {
      const Tensor& tensor = context->input(i);
      if (!tensorflow::TensorShapeUtils::IsScalar(tensor.shape())) {
        return Invalid(kNames[i],
                       "must be a scalar, has the shape " + tensor.shape().DebugString());
      }
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
    OP_REQUIRES(context, size <= std::numeric_limits<S>::max(),
                Invalid("num_units", "there are " + std::to_string(size) +
                                         " parameters, too many for the dtype of params_size"));
    Tensor* output;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({1}), &output));
    output->vec<S>()(0) = static_cast<S>(size);
  }
};

// Both directions of the conversion: V1 has one number of tensors, V2 two.
class CanonicalOp : public ParamsOp {
 public:
  explicit CanonicalOp(OpKernelConstruction* context) : ParamsOp(context) {
    if (context->HasAttr("num_params")) {
      weights_attr_ = biases_attr_ = "num_params";
    }
    OP_REQUIRES_OK(context, context->GetAttr(weights_attr_, &weights_));
    OP_REQUIRES_OK(context, context->GetAttr(biases_attr_, &biases_));
  }

 protected:
  // Before any layout is made: so many layers have so many tensors.
  absl::Status CheckCounts(const Stack& stack) const {
    const int64_t stacked = stack.layers * stack.dirs();
    if (weights_ != stacked * WeightsPerLayer(stack)) {
      return Invalid(weights_attr_, "these layers have " +
                                        std::to_string(stacked * WeightsPerLayer(stack)) +
                                        " weights, not " + std::to_string(weights_));
    }
    if (biases_ != stacked * 2 * stack.gates()) {
      return Invalid(biases_attr_, "these layers have " +
                                       std::to_string(stacked * 2 * stack.gates()) +
                                       " biases, not " + std::to_string(biases_));
    }
    return absl::OkStatus();
  }

 private:
  std::string weights_attr_ = "num_params_weights", biases_attr_ = "num_params_biases";
  int weights_ = 0, biases_ = 0;
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
    const std::vector<Piece> weights = Weights(stack), biases = Biases(stack);
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
      if (shape != pieces[i].shape()) {
        return Invalid(std::string(name) + "[" + std::to_string(i) + "]",
                       "must have the shape " + pieces[i].shape().DebugString() + ", has " +
                           shape.DebugString());
      }
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
    const int64_t size = ParamsSize(stack);
    OP_REQUIRES(context, params.dims() == 1 && params.dim_size(0) == size,
                Invalid("params", "must have the shape [" + std::to_string(size) +
                                      "] for these layers, has " +
                                      params.shape().DebugString()));
    OP_REQUIRES_OK(context, Copy(context, "weights", Weights(stack), params));
    OP_REQUIRES_OK(context, Copy(context, "biases", Biases(stack), params));
  }

 private:
  absl::Status Copy(OpKernelContext* context, const char* name,
                    const std::vector<Piece>& pieces, const Tensor& params) const {
    OpOutputList list;
    if (auto status = context->output_list(name, &list); !status.ok()) return status;
    for (size_t i = 0; i < pieces.size(); ++i) {
      Tensor* to;
      if (auto status = list.allocate(static_cast<int>(i), pieces[i].shape(), &to);
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
