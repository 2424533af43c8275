// CudnnRNN, V2, V3 and their Backprop ops on the CPU. The kernels check arguments and call the
// functions of rnn.h.
#include <algorithm>
#include <atomic>
#include <optional>
#include <vector>

#include "base/tf/device_context.h"
#include "base/tf/register.h"
#include "rnn/layout.h"
#include "rnn/rnn.h"
#include "rnn/tf/call.h"
#include "rnn/weight_cache.h"
#include "tensorflow/core/framework/register_types.h"

namespace opwright::rnn {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// Returns the elements of a tensor in the element type of base/, or null for an absent tensor.
template <class T>
const Core<T>* Data(const Tensor& tensor) {
  return static_cast<const Core<T>*>(tensor.data());
}
template <class T>
Core<T>* Data(Tensor* tensor) {
  return tensor ? static_cast<Core<T>*>(tensor->data()) : nullptr;
}

absl::Status Allocate(OpKernelContext* context, int i, absl::Span<const int64_t> dims,
                      Tensor** tensor) {
  TensorShape shape;
  TF_RETURN_IF_ERROR(TensorShape::BuildTensorShape(dims, &shape));
  return context->allocate_output(i, shape, tensor);
}

template <int kVersion>
class RnnOp : public OpKernel {
 public:
  explicit RnnOp(OpKernelConstruction* context) : OpKernel(context), call_(context) {}

 protected:
  bool lstm() const { return call_.lstm(); }

  absl::Status Configure(OpKernelContext* context, bool training, CallSpec* spec) const {
    return call_.Configure(ShapesOf(context), training, spec);
  }

  // Copies the lengths, so that no other thread can change them after the check. Forward and
  // Backward do not check them again.
  absl::Status ReadLengths(OpKernelContext* context, const CallSpec& spec,
                           std::vector<int32_t>* lengths) const {
    if (kVersion < 3) return absl::OkStatus();
    TF_RETURN_IF_ERROR(call_.CheckLengthsShape(ShapesOf(context), spec));
    const auto values = context->input(call_.kLengths).template vec<int32_t>();
    lengths->assign(values.data(), values.data() + spec.batch);
    bool full;
    TF_RETURN_IF_ERROR(CheckLengths(*lengths, spec, &full));
    if (full) lengths->clear();
    return absl::OkStatus();
  }

  static auto ShapesOf(OpKernelContext* context) {
    return [context](int i) { return context->input(i).shape(); };
  }

  const RnnCall<kVersion> call_;
};

template <class T, int kVersion>
class ForwardOp : public RnnOp<kVersion> {
 public:
  explicit ForwardOp(OpKernelConstruction* context) : RnnOp<kVersion>(context) {
    OP_REQUIRES_OK(context, context->GetAttr("is_training", &training_));
  }

  void Compute(OpKernelContext* context) override {
    CallSpec spec;
    OP_REQUIRES_OK(context, this->Configure(context, training_, &spec));
    std::vector<int32_t> lengths;
    OP_REQUIRES_OK(context, this->ReadLengths(context, spec, &lengths));
    const bool lstm = this->lstm();
    const int64_t reserved = ReserveLayout(spec).size;

    Tensor *output, *output_h, *output_c, *reserve;
    OP_REQUIRES_OK(context, Allocate(context, 0, this->call_.OutputDims(spec), &output));
    OP_REQUIRES_OK(context, context->allocate_output(1, context->input(1).shape(), &output_h));
    OP_REQUIRES_OK(
        context, context->allocate_output(2, lstm ? context->input(2).shape() : TensorShape({}),
                                          &output_c));
    OP_REQUIRES_OK(context,
                   Allocate(context, 3, training_ ? Dims{reserved} : Dims{}, &reserve));
    if (!lstm) output_c->template scalar<T>()() = T(0);
    if (!training_) reserve->template scalar<T>()() = T(0);
    if (kVersion >= 2) {
      Tensor* host_reserved;
      OP_REQUIRES_OK(context, context->allocate_output(
                                  4, this->call_.HostReservedShape(training_), &host_reserved));
      host_reserved->template flat<int8_t>().setZero();
    }

    ForwardCall<Core<T>> call{};
    call.input = Data<T>(context->input(0));
    call.input_h = Data<T>(context->input(1));
    call.input_c = lstm ? Data<T>(context->input(2)) : nullptr;
    call.params = Data<T>(context->input(3));
    call.lengths = lengths.empty() ? nullptr : lengths.data();
    call.output = Data<T>(output);
    call.output_h = Data<T>(output_h);
    call.output_c = lstm ? Data<T>(output_c) : nullptr;
    call.reserve = training_ ? Data<T>(reserve) : nullptr;
    // Calls have different nonces only with dropout, because nothing else depends on the nonce.
    const bool counts = spec.drops() && !this->call_.resets_dropout();
    call.nonce = counts ? calls_.fetch_add(1) : 0;
    call.cache = &cache_;
    DeviceContext exec(context);
    Forward(spec, call, exec);
  }

  bool training_ = true;
  std::atomic<uint64_t> calls_{0};
  WeightCache cache_;
};

template <class T, int kVersion>
class BackwardOp : public RnnOp<kVersion> {
 public:
  using RnnOp<kVersion>::RnnOp;

  void Compute(OpKernelContext* context) override {
    CallSpec spec;
    OP_REQUIRES_OK(context, this->Configure(context, true, &spec));
    std::vector<int32_t> lengths;
    OP_REQUIRES_OK(context, this->ReadLengths(context, spec, &lengths));
    const bool lstm = this->lstm();
    const int64_t reserved = ReserveLayout(spec).size;
    OP_REQUIRES_OK(context, this->call_.CheckBackward(this->ShapesOf(context), spec, reserved));
    const int first = this->call_.kOutput;
    const Tensor& reserve = context->input(this->call_.kReserve);
    const TensorShape& state = context->input(1).shape();
    const TensorShape& cells = context->input(2).shape();
    const std::optional<uint64_t> nonce = ReadHeader(spec, Data<T>(reserve));
    OP_REQUIRES(context, nonce.has_value(),
                Invalid("reserve_space",
                        "was not written by this library's forward op with the same options "
                        "and shapes"));

    Tensor *input_backprop, *input_h_backprop, *input_c_backprop, *params_backprop;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, context->input(0).shape(), &input_backprop));
    OP_REQUIRES_OK(context, context->allocate_output(1, state, &input_h_backprop));
    OP_REQUIRES_OK(context, context->allocate_output(2, lstm ? cells : TensorShape({}),
                                                     &input_c_backprop));
    OP_REQUIRES_OK(context,
                   context->allocate_output(3, context->input(3).shape(), &params_backprop));
    if (!lstm) input_c_backprop->template scalar<T>()() = T(0);

    BackwardCall<Core<T>> call{};
    call.input = Data<T>(context->input(0));
    call.input_h = Data<T>(context->input(1));
    call.input_c = lstm ? Data<T>(context->input(2)) : nullptr;
    call.params = Data<T>(context->input(3));
    call.lengths = lengths.empty() ? nullptr : lengths.data();
    call.output = Data<T>(context->input(first));
    call.output_backprop = Data<T>(context->input(first + 3));
    call.output_h_backprop = Data<T>(context->input(first + 4));
    call.output_c_backprop = lstm ? Data<T>(context->input(first + 5)) : nullptr;
    call.reserve = Data<T>(reserve);
    call.nonce = *nonce;
    call.input_backprop = Data<T>(input_backprop);
    call.input_h_backprop = Data<T>(input_h_backprop);
    call.input_c_backprop = lstm ? Data<T>(input_c_backprop) : nullptr;
    call.params_backprop = Data<T>(params_backprop);
    // Elements past the parameters do not affect the outputs, so their gradient is zero.
    const int64_t size = ParamsSize(spec);
    std::fill(call.params_backprop + size,
              call.params_backprop + params_backprop->NumElements(), Core<T>{});
    DeviceContext exec(context);
    Backward(spec, call, exec);
  }
};

#define REGISTER(T)                                          \
  REGISTER_OP_OF("CudnnRNN", T, ForwardOp<T, 1>);            \
  REGISTER_OP_OF("CudnnRNNV2", T, ForwardOp<T, 2>);          \
  REGISTER_OP_OF("CudnnRNNV3", T, ForwardOp<T, 3>);          \
  REGISTER_OP_OF("CudnnRNNBackprop", T, BackwardOp<T, 1>);   \
  REGISTER_OP_OF("CudnnRNNBackpropV2", T, BackwardOp<T, 2>); \
  REGISTER_OP_OF("CudnnRNNBackpropV3", T, BackwardOp<T, 3>)
#define REGISTER_OP_OF(NAME, T, ...)                                                     \
  OPWRIGHT_REGISTER_KERNEL(NAME, .Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), \
                           __VA_ARGS__)

REGISTER(float);
REGISTER(double);
REGISTER(Eigen::half);
REGISTER(Eigen::bfloat16);

#undef REGISTER

}  // namespace
}  // namespace opwright::rnn
