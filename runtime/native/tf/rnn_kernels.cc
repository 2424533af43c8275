// CudnnRNN, V2, V3 and their Backprop ops on the CPU: arguments are checked and core is
// called.
#include <atomic>
#include <new>
#include <optional>
#include <vector>

#include "core/rnn.h"
#include "core/weights.h"
#include "tensorflow/core/framework/register_types.h"
#include "tf/device_host.h"
#include "tf/rnn_call.h"

namespace opwright {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// A null pointer for an absent tensor; core's type for the present one's elements.
template <class T>
const Core<T>* Data(const Tensor& tensor) {
  return static_cast<const Core<T>*>(tensor.data());
}
template <class T>
Core<T>* Data(Tensor* tensor) {
  return tensor ? static_cast<Core<T>*>(tensor->data()) : nullptr;
}

template <int kVersion>
class RnnOp : public OpKernel {
 public:
  explicit RnnOp(OpKernelConstruction* context) : OpKernel(context), call_(context) {}

 protected:
  bool lstm() const { return call_.lstm(); }

  absl::Status Configure(OpKernelContext* context, bool training, Config* config) const {
    return call_.Configure(ShapesOf(context), training, config);
  }

  // Core trusts lengths: copied, so that nobody changes them after the check.
  absl::Status ReadLengths(OpKernelContext* context, const Config& config,
                           std::vector<int32_t>* lengths) const {
    if (kVersion < 3) return absl::OkStatus();
    if (auto status = call_.CheckLengthsShape(ShapesOf(context), config); !status.ok()) {
      return status;
    }
    const auto values = context->input(call_.kLengths).template vec<int32_t>();
    lengths->assign(values.data(), values.data() + config.batch);
    bool full;
    if (auto status = call_.CheckLengths(*lengths, config, &full); !status.ok()) return status;
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
    Config config;
    OP_REQUIRES_OK(context, this->Configure(context, training_, &config));
    std::vector<int32_t> lengths;
    OP_REQUIRES_OK(context, this->ReadLengths(context, config, &lengths));
    const bool lstm = this->lstm();
    const int64_t reserved = Reserve(config, sizeof(T)).size;

    Tensor *output, *output_h, *output_c, *reserve;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, this->call_.OutputShape(config), &output));
    OP_REQUIRES_OK(context,
                   context->allocate_output(1, context->input(1).shape(), &output_h));
    OP_REQUIRES_OK(context, context->allocate_output(
                                2, lstm ? context->input(2).shape() : TensorShape({}),
                                &output_c));
    OP_REQUIRES_OK(context, context->allocate_output(
                                3, training_ ? TensorShape({reserved}) : TensorShape({}),
                                &reserve));
    if (!lstm) output_c->template scalar<T>()() = T(0);
    if (!training_) reserve->template scalar<T>()() = T(0);
    if (kVersion >= 2) {
      Tensor* host_reserved;
      OP_REQUIRES_OK(context,
                     context->allocate_output(
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
    // Only dropout tells calls apart.
    call.nonce = config.drops() ? calls_.fetch_add(1) : 0;
    call.cache = &cache_;
    try {
      DeviceHost host(context);
      Forward(config, call, host);
    } catch (const std::bad_alloc&) {
      context->SetStatus(absl::ResourceExhaustedError("no memory for a CudnnRNN"));
    }
  }

 private:
  bool training_ = true;
  std::atomic<uint64_t> calls_{0};
  WeightCache<Core<T>> cache_;
};

template <class T, int kVersion>
class BackwardOp : public RnnOp<kVersion> {
 public:
  using RnnOp<kVersion>::RnnOp;

  void Compute(OpKernelContext* context) override {
    Config config;
    OP_REQUIRES_OK(context, this->Configure(context, true, &config));
    std::vector<int32_t> lengths;
    OP_REQUIRES_OK(context, this->ReadLengths(context, config, &lengths));
    const bool lstm = this->lstm();
    const int64_t reserved = Reserve(config, sizeof(T)).size;
    OP_REQUIRES_OK(context,
                   this->call_.CheckBackward(this->ShapesOf(context), config, reserved));
    const int first = this->call_.kOutput;
    const Tensor& reserve = context->input(this->call_.kReserve);
    const TensorShape& state = context->input(1).shape();
    const TensorShape& cells = context->input(2).shape();
    const std::optional<uint64_t> nonce = ReadHeader(config, sizeof(T), reserve.data());
    OP_REQUIRES(context, nonce.has_value(),
                Invalid("reserve_space",
                        "was not written by this library's forward op with the same options "
                        "and shapes"));

    Tensor *input_backprop, *input_h_backprop, *input_c_backprop, *params_backprop;
    OP_REQUIRES_OK(context, context->allocate_output(0, context->input(0).shape(),
                                                     &input_backprop));
    OP_REQUIRES_OK(context, context->allocate_output(1, state, &input_h_backprop));
    OP_REQUIRES_OK(context, context->allocate_output(2, lstm ? cells : TensorShape({}),
                                                     &input_c_backprop));
    OP_REQUIRES_OK(context, context->allocate_output(3, context->input(3).shape(),
                                                     &params_backprop));
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
    try {
      DeviceHost host(context);
      Backward(config, call, host);
    } catch (const std::bad_alloc&) {
      context->SetStatus(absl::ResourceExhaustedError("no memory for a CudnnRNN"));
    }
  }
};

#define REGISTER(T)                                                                        \
  REGISTER_OP_OF("CudnnRNN", T, (ForwardOp<T, 1>));                                        \
  REGISTER_OP_OF("CudnnRNNV2", T, (ForwardOp<T, 2>));                                      \
  REGISTER_OP_OF("CudnnRNNV3", T, (ForwardOp<T, 3>));                                      \
  REGISTER_OP_OF("CudnnRNNBackprop", T, (BackwardOp<T, 1>));                               \
  REGISTER_OP_OF("CudnnRNNBackpropV2", T, (BackwardOp<T, 2>));                             \
  REGISTER_OP_OF("CudnnRNNBackpropV3", T, (BackwardOp<T, 3>))
#define REGISTER_OP_OF(NAME, T, OP)                                      \
  REGISTER_KERNEL_BUILDER(Name(NAME)                                     \
                              .Device(tensorflow::DEVICE_CPU)            \
                              .TypeConstraint<T>("T")                    \
                              .Priority(kPriority),                      \
                          OP)

REGISTER(float);
REGISTER(double);
REGISTER(Eigen::half);
REGISTER(Eigen::bfloat16);

}  // namespace
}  // namespace opwright
