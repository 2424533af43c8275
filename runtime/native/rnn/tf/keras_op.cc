// OpwrightKerasRNN runs a layer of Keras in inference with Keras's own weights. The CudnnRNN
// ops need the weights as one vector. For a large layer, creating that vector takes as long as
// the layer itself. This op finds the packed weights of its last call in the cache.
#include <vector>

#include "base/tf/device_context.h"
#include "base/tf/register.h"
#include "rnn/rnn.h"
#include "rnn/tf/keras_call.h"
#include "rnn/weight_cache.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace opwright::rnn {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status InferShapes(InferenceContext* context) {
  ShapeHandle input, recurrent;
  TF_RETURN_IF_ERROR(context->WithRank(context->input(kX), 3, &input));
  TF_RETURN_IF_ERROR(context->WithRank(context->input(kRecurrentKernel), 2, &recurrent));
  const auto batch = context->Dim(input, 0), units = context->Dim(recurrent, 0);
  context->set_output(0, context->MakeShape({batch, context->Dim(input, 1), units}));
  context->set_output(1, context->Matrix(batch, units));
  std::string mode;
  TF_RETURN_IF_ERROR(context->GetAttr("rnn_mode", &mode));
  context->set_output(
      2, CellOf(mode) == Cell::kLstm ? context->Matrix(batch, units) : context->Scalar());
  return absl::OkStatus();
}

// Only an LSTM uses input_c and output_c. Other cells ignore input_c and set output_c to 0.
REGISTER_OP("OpwrightKerasRNN")
    .Input("input: T")             // [batch, time, size]
    .Input("input_h: T")           // [batch, units]
    .Input("input_c: T")           // [batch, units]
    .Input("kernel: T")            // [size, gates * units]
    .Input("recurrent_kernel: T")  // [units, gates * units]
    .Input("bias: T")              // [0, 1 or 2, gates * units]
    .Input("sequence_lengths: int32")
    .Output("output: T")
    .Output("output_h: T")
    .Output("output_c: T")
    .Attr("T: {bfloat16, half, float, double}")
    .Attr("rnn_mode: {'rnn_relu', 'rnn_tanh', 'lstm', 'gru'}")
    .SetShapeFn(InferShapes);

template <class T>
class KerasOp : public OpKernel {
 public:
  explicit KerasOp(OpKernelConstruction* context) : OpKernel(context), call_(context) {}

  void Compute(OpKernelContext* context) override {
    CallSpec spec;
    KerasWeights<Core<T>> weights;
    OP_REQUIRES_OK(context, call_.Configure([&](int i) { return context->input(i).shape(); },
                                            &spec, &weights.biases));
    // The lengths are copied, so that no other thread can change them after the check.
    const auto given = context->input(kSequenceLengths).template flat<int32_t>();
    std::vector<int32_t> lengths(given.data(), given.data() + given.size());
    bool full;
    OP_REQUIRES_OK(context, CheckLengths(lengths, spec, &full));

    const bool lstm = call_.lstm();
    TensorShape shape;
    OP_REQUIRES_OK(context,
                   TensorShape::BuildTensorShape({spec.batch, spec.time, spec.units}, &shape));
    Tensor *output, *output_h, *output_c;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &output));
    const TensorShape& state = context->input(kH).shape();
    OP_REQUIRES_OK(context, context->allocate_output(1, state, &output_h));
    OP_REQUIRES_OK(context,
                   context->allocate_output(2, lstm ? state : TensorShape({}), &output_c));
    if (!lstm) output_c->template flat<T>()(0) = T(0);
    if (spec.batch == 0) return;

    const auto data = [&](int i) {
      return static_cast<const Core<T>*>(context->input(i).data());
    };
    weights.kernel = data(kKernel);
    weights.recurrent_kernel = data(kRecurrentKernel);
    weights.bias = data(kBias);
    ForwardCall<Core<T>> call{};
    call.input = data(kX);
    call.input_h = data(kH);
    call.input_c = lstm ? data(kC) : nullptr;
    call.keras = &weights;
    call.lengths = full ? nullptr : lengths.data();
    call.output = static_cast<Core<T>*>(output->data());
    call.output_h = static_cast<Core<T>*>(output_h->data());
    call.output_c = lstm ? static_cast<Core<T>*>(output_c->data()) : nullptr;
    call.cache = &cache_;
    DeviceContext exec(context);
    Forward(spec, call, exec);
  }

 private:
  const KerasCall call_;
  WeightCache cache_;
};

#define REGISTER(T)                            \
  OPWRIGHT_REGISTER_KERNEL("OpwrightKerasRNN", \
                           .Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), KerasOp<T>)

REGISTER(float);
REGISTER(double);
REGISTER(Eigen::half);
REGISTER(Eigen::bfloat16);

#undef REGISTER

}  // namespace
}  // namespace opwright::rnn
