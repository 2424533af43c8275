// CudnnRNN, V2, V3 and their Backprop ops on the CPU: arguments are checked and core is
// called.
#include <atomic>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "core/rnn.h"
#include "core/weights.h"
#include "tensorflow/core/framework/register_types.h"
#include "tf/device_host.h"
#include "tf/rnn_attrs.h"

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

absl::Status CheckShape(const char* name, const Tensor& tensor, const TensorShape& shape) {
  if (tensor.shape() == shape) return absl::OkStatus();
  return Invalid(name, "must have the shape " + shape.DebugString() + ", has " +
                           tensor.shape().DebugString());
}

template <int kVersion>
class RnnOp : public OpKernel {
 public:
  explicit RnnOp(OpKernelConstruction* context) : OpKernel(context), attrs_(context) {
    if (kVersion == 3) {
      OP_REQUIRES_OK(context, context->GetAttr("time_major", &time_major_));
    }
  }

 protected:
  bool lstm() const { return attrs_.cell() == Cell::kLstm; }

  // Reads the first inputs, which forward and backward ops share, into a configuration.
  absl::Status Configure(OpKernelContext* context, bool training, Config* config) const {
    const Tensor& input = context->input(0);
    const Tensor& input_h = context->input(1);
    const Tensor& input_c = context->input(2);
    const Tensor& params = context->input(3);
    if (input.dims() != 3) {
      return Invalid("input", "must be of rank 3, has the shape " + input.shape().DebugString());
    }
    if (input_h.dims() != 3) {
      return Invalid("input_h",
                     "must be of rank 3, has the shape " + input_h.shape().DebugString());
    }
    const int64_t time = input.dim_size(time_major_ ? 0 : 1);
    const int64_t batch = input.dim_size(time_major_ ? 1 : 0);
    if (time == 0 || batch == 0 || input.dim_size(2) == 0) {
      return Invalid("input", "must not be empty, has the shape " + input.shape().DebugString());
    }
    const int64_t stacked = input_h.dim_size(time_major_ ? 0 : 1);
    if (stacked == 0 || stacked % attrs_.dirs() != 0) {
      return Invalid("input_h", "its dimension of layers * directions must be a positive "
                                "multiple of " +
                                    std::to_string(attrs_.dirs()) + ", the shape is " +
                                    input_h.shape().DebugString());
    }
    const int64_t projection = attrs_.projection();
    if (projection > 0 && !lstm()) {
      return Invalid("num_proj",
                     "only an lstm has a projection; must be 0, is " + std::to_string(projection));
    }
    int64_t units = input_h.dim_size(2);
    if (projection > 0) {
      if (input_c.dims() != 3) {
        return Invalid("input_c",
                       "must be of rank 3, has the shape " + input_c.shape().DebugString());
      }
      units = input_c.dim_size(2);
      if (projection > units) {
        return Invalid("num_proj", "must be at most num_units = " + std::to_string(units) +
                                       ", is " + std::to_string(projection));
      }
    }
    if (units == 0) {
      return Invalid("input_h", "must not be empty, has the shape " +
                                    input_h.shape().DebugString());
    }
    if (auto status = CheckShape(
            "input_h", input_h, StateShape(stacked, batch, projection > 0 ? projection : units));
        !status.ok()) {
      return status;
    }
    if (lstm()) {
      if (auto status = CheckShape("input_c", input_c, StateShape(stacked, batch, units));
          !status.ok()) {
        return status;
      }
    }
    static_cast<Stack&>(*config) =
        attrs_.MakeStack(stacked / attrs_.dirs(), units, input.dim_size(2));
    config->time = time;
    config->batch = batch;
    config->time_major = time_major_;
    config->training = training;
    config->dropout = attrs_.dropout();
    config->seed = attrs_.seed();
    if (auto error = Check(*config)) return Invalid(*error);
    const int64_t size = ParamsSize(*config);
    if (params.dims() != 1 || params.dim_size(0) != size) {
      return Invalid("params", "must have the shape [" + std::to_string(size) +
                                   "] for these layers, has " + params.shape().DebugString());
    }
    return absl::OkStatus();
  }

  // Core trusts lengths: copied, so that nobody changes them after the check.
  absl::Status ReadLengths(OpKernelContext* context, const Config& config,
                           std::vector<int32_t>* lengths) const {
    if (kVersion < 3) return absl::OkStatus();
    const Tensor& tensor = context->input(4);
    if (auto status = CheckShape("sequence_lengths", tensor, TensorShape({config.batch}));
        !status.ok()) {
      return status;
    }
    const auto values = tensor.vec<int32_t>();
    lengths->assign(values.data(), values.data() + config.batch);
    bool full = true;
    for (const int32_t length : *lengths) {
      if (length < 0 || length > config.time) {
        return Invalid("sequence_lengths", "each must lie between 0 and the number of steps, " +
                                               std::to_string(config.time) + "; one is " +
                                               std::to_string(length));
      }
      full = full && length == config.time;
    }
    if (full) lengths->clear();
    return absl::OkStatus();
  }

  // The shape that callers see; the elements lie as [layers * dirs, batch, size] always.
  TensorShape StateShape(int64_t stacked, int64_t batch, int64_t size) const {
    return time_major_ ? TensorShape({stacked, batch, size}) : TensorShape({batch, stacked, size});
  }
  TensorShape OutputShape(const Config& config) const {
    return time_major_ ? TensorShape({config.time, config.batch, config.width()})
                       : TensorShape({config.batch, config.time, config.width()});
  }

  const RnnAttrs attrs_;

 private:
  bool time_major_ = true;
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
    OP_REQUIRES_OK(context, context->allocate_output(0, this->OutputShape(config), &output));
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
                         4, kVersion == 2 && training_ ? TensorShape({2}) : TensorShape({}),
                         &host_reserved));
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
    call.nonce = calls_.fetch_add(1);
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
    const int first = kVersion == 3 ? 5 : 4;
    const Tensor& output = context->input(first);
    const Tensor& output_h = context->input(first + 1);
    const Tensor& output_c = context->input(first + 2);
    const Tensor& output_backprop = context->input(first + 3);
    const Tensor& output_h_backprop = context->input(first + 4);
    const Tensor& output_c_backprop = context->input(first + 5);
    const Tensor& reserve = context->input(first + 6);
    const TensorShape shape = this->OutputShape(config);
    const TensorShape& state = context->input(1).shape();
    const TensorShape& cells = context->input(2).shape();
    OP_REQUIRES_OK(context, CheckShape("output", output, shape));
    OP_REQUIRES_OK(context, CheckShape("output_backprop", output_backprop, shape));
    OP_REQUIRES_OK(context, CheckShape("output_h", output_h, state));
    OP_REQUIRES_OK(context, CheckShape("output_h_backprop", output_h_backprop, state));
    if (lstm) {
      OP_REQUIRES_OK(context, CheckShape("output_c", output_c, cells));
      OP_REQUIRES_OK(context, CheckShape("output_c_backprop", output_c_backprop, cells));
    }
    const int64_t reserved = Reserve(config, sizeof(T)).size;
    OP_REQUIRES(context, reserve.dims() == 1 && reserve.dim_size(0) == reserved,
                Invalid("reserve_space", "must have the shape [" + std::to_string(reserved) +
                                             "] for these layers, has " +
                                             reserve.shape().DebugString() +
                                             "; take it from the forward op in training"));
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
    call.output = Data<T>(output);
    call.output_backprop = Data<T>(output_backprop);
    call.output_h_backprop = Data<T>(output_h_backprop);
    call.output_c_backprop = lstm ? Data<T>(output_c_backprop) : nullptr;
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
