// The CudnnRNN ops for XLA, which compiles them under jit_compile and for TPUs. The kernels
// check arguments and build the programs of xla/program.h.
#include <cstdint>
#include <optional>
#include <vector>

#include "base/tf/register_xla.h"
#include "base/tf/xla_call.h"
#include "rnn/tf/call.h"
#include "rnn/tf/keras_call.h"
#include "rnn/tf/params_canonical.h"
#include "rnn/xla/program.h"

namespace opwright::rnn {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::TensorShape;
using tensorflow::XlaOpKernel;
using tensorflow::XlaOpKernelContext;

// Reads the shapes of all inputs, which must be static.
absl::Status ReadShapes(XlaOpKernelContext* context, std::vector<TensorShape>* shapes) {
  XlaCall call(context);
  TF_RETURN_IF_ERROR(call.ReadShapes());
  shapes->resize(static_cast<size_t>(context->num_inputs()));
  for (int i = 0; i < context->num_inputs(); ++i) {
    TensorShape* const shape = &(*shapes)[static_cast<size_t>(i)];
    TF_RETURN_IF_ERROR(TensorShape::BuildTensorShape(call.shape(i), shape));
  }
  return absl::OkStatus();
}

// Checks lengths that are compile-time constants. Other lengths are clamped to the range,
// because a program cannot fail while it runs. Leaves `lengths` empty if all lengths are
// constants equal to spec.time.
absl::Status ReadLengths(XlaOpKernelContext* context, int i, const CallSpec& spec,
                         std::optional<xla::XlaOp>* lengths) {
  std::vector<int64_t> known;
  if (context->ConstantInputAsIntVector(i, &known).ok()) {
    bool full;
    TF_RETURN_IF_ERROR(
        CheckLengths(std::vector<int32_t>(known.begin(), known.end()), spec, &full));
    if (full) return absl::OkStatus();
  }
  xla::XlaBuilder* const builder = context->builder();
  *lengths = xla::Clamp(xla::ConstantR0<int32_t>(builder, 0), context->Input(i),
                        xla::ConstantR0<int32_t>(builder, static_cast<int32_t>(spec.time)));
  return absl::OkStatus();
}

template <int kVersion>
class XlaRnnOp : public XlaOpKernel {
 public:
  explicit XlaRnnOp(OpKernelConstruction* context) : XlaOpKernel(context), call_(context) {}

 protected:
  using Call = RnnCall<kVersion>;

  bool lstm() const { return call_.lstm(); }

  absl::Status Read(XlaOpKernelContext* context, bool training,
                    std::vector<TensorShape>* shapes, CallSpec* spec,
                    XlaOperands* operands) const {
    TF_RETURN_IF_ERROR(ReadShapes(context, shapes));
    const auto shape = [&](int i) { return (*shapes)[i]; };
    TF_RETURN_IF_ERROR(call_.Configure(shape, training, spec));
    operands->type = context->input_xla_type(0);
    operands->input = context->Input(0);
    operands->input_h = State(context, 1, *spec, spec->hidden());
    if (lstm()) operands->input_c = State(context, 2, *spec, spec->units);
    operands->resets_dropout = call_.resets_dropout();
    operands->params = context->Input(3);
    if (kVersion < 3) return absl::OkStatus();
    TF_RETURN_IF_ERROR(call_.CheckLengthsShape(shape, *spec));
    return ReadLengths(context, Call::kLengths, *spec, &operands->lengths);
  }

  // Returns a state in the shape of the program, which does not depend on time_major.
  static xla::XlaOp State(XlaOpKernelContext* context, int i, const CallSpec& spec,
                          int64_t size) {
    return xla::Reshape(context->Input(i), {spec.layers * spec.dirs(), spec.batch, size});
  }

  const Call call_;
};

template <int kVersion>
class XlaForwardOp : public XlaRnnOp<kVersion> {
 public:
  explicit XlaForwardOp(OpKernelConstruction* context) : XlaRnnOp<kVersion>(context) {
    OP_REQUIRES_OK(context, context->GetAttr("is_training", &training_));
  }

  void Compile(XlaOpKernelContext* context) override {
    std::vector<TensorShape> shapes;
    CallSpec spec;
    XlaOperands operands;
    OP_REQUIRES_OK(context, this->Read(context, training_, &shapes, &spec, &operands));
    xla::XlaBuilder* const builder = context->builder();
    const auto made = BuildForward(spec, operands, builder);
    OP_REQUIRES_OK(context, made.status());

    const xla::XlaOp dummy = xla::Zero(builder, operands.type);
    context->SetOutput(0, made->output);
    context->SetOutput(1, xla::Reshape(made->output_h, shapes[1].dim_sizes()));
    context->SetOutput(
        2, this->lstm() ? xla::Reshape(made->output_c, shapes[2].dim_sizes()) : dummy);
    context->SetOutput(3, training_ ? made->reserve : dummy);
    if (kVersion >= 2) {
      const TensorShape shape = this->call_.HostReservedShape(training_);
      context->SetOutput(4, xla::Broadcast(xla::Zero(builder, xla::S8), shape.dim_sizes()));
    }
  }

  bool training_ = true;
};

template <int kVersion>
class XlaBackwardOp : public XlaRnnOp<kVersion> {
 public:
  using XlaRnnOp<kVersion>::XlaRnnOp;

  void Compile(XlaOpKernelContext* context) override {
    std::vector<TensorShape> shapes;
    CallSpec spec;
    XlaOperands operands;
    OP_REQUIRES_OK(context, this->Read(context, true, &shapes, &spec, &operands));
    const auto shape = [&](int i) { return shapes[i]; };
    OP_REQUIRES_OK(context, this->call_.CheckBackward(shape, spec, ReserveLayout(spec).size));
    const int first = this->call_.kOutput;
    XlaResults results, backprops;
    results.output = context->Input(first);
    results.reserve = context->Input(this->call_.kReserve);
    backprops.output = context->Input(first + 3);
    backprops.output_h = this->State(context, first + 4, spec, spec.hidden());
    if (this->lstm()) {
      backprops.output_c = this->State(context, first + 5, spec, spec.units);
    }
    const auto made = BuildBackward(spec, operands, results, backprops, context->builder());
    OP_REQUIRES_OK(context, made.status());

    context->SetOutput(0, made->input);
    context->SetOutput(1, xla::Reshape(made->input_h, shapes[1].dim_sizes()));
    context->SetOutput(2, this->lstm() ? xla::Reshape(made->input_c, shapes[2].dim_sizes())
                                       : xla::Zero(context->builder(), operands.type));
    // Elements past the parameters do not affect the outputs, so their gradient is zero.
    const int64_t rest = shapes[3].dim_size(0) - ParamsSize(spec);
    const xla::XlaOp zero = xla::Zero(context->builder(), operands.type);
    context->SetOutput(
        3, rest == 0 ? made->params : xla::PadInDim(made->params, zero, 0, 0, rest));
  }
};

class XlaKerasOp : public XlaOpKernel {
 public:
  explicit XlaKerasOp(OpKernelConstruction* context) : XlaOpKernel(context), call_(context) {}

  void Compile(XlaOpKernelContext* context) override {
    std::vector<TensorShape> shapes;
    OP_REQUIRES_OK(context, ReadShapes(context, &shapes));
    CallSpec spec;
    int64_t biases = 0;
    OP_REQUIRES_OK(context, call_.Configure([&](int i) { return shapes[i]; }, &spec, &biases));
    XlaOperands operands;
    OP_REQUIRES_OK(context, ReadLengths(context, kSequenceLengths, spec, &operands.lengths));
    operands.type = context->input_xla_type(kX);
    const xla::XlaOp zero = xla::Zero(context->builder(), operands.type);
    if (!call_.lstm()) context->SetOutput(2, zero);
    if (spec.batch == 0) {
      context->SetOutput(0, xla::Broadcast(zero, {0, spec.time, spec.units}));
      context->SetOutput(1, context->Input(kH));
      if (call_.lstm()) context->SetOutput(2, context->Input(kC));
      return;
    }
    const int64_t state[] = {1, spec.batch, spec.units};
    operands.input = context->Input(kX);
    operands.input_h = xla::Reshape(context->Input(kH), state);
    if (call_.lstm()) operands.input_c = xla::Reshape(context->Input(kC), state);
    operands.params = Params(context, spec, biases);
    const auto made = BuildForward(spec, operands, context->builder());
    OP_REQUIRES_OK(context, made.status());
    context->SetOutput(0, made->output);
    context->SetOutput(1, xla::Reshape(made->output_h, {spec.batch, spec.units}));
    if (!call_.lstm()) return;
    context->SetOutput(2, xla::Reshape(made->output_c, {spec.batch, spec.units}));
  }

 private:
  static xla::XlaOp Params(XlaOpKernelContext* context, const CallSpec& spec, int64_t biases) {
    std::vector<xla::XlaOp> flat;
    // Splits a matrix whose rows contain all gates into one matrix for each gate.
    const auto append = [&](xla::XlaOp matrix, int64_t columns) {
      for (int64_t i = 0; i < spec.gates(); ++i) {
        const int64_t first = KerasGate(spec.cell, i) * spec.units;
        const xla::XlaOp gate = xla::SliceInDim(matrix, first, first + spec.units, 1, 1);
        flat.push_back(xla::Reshape(xla::Transpose(gate, {1, 0}), {columns * spec.units}));
      }
    };
    append(context->Input(kKernel), spec.input_size);
    append(context->Input(kRecurrentKernel), spec.units);
    for (int64_t i = 0; i < biases; ++i) {
      append(xla::SliceInDim(context->Input(kBias), i, i + 1, 1, 0), 1);
    }
    if (biases < 2) {
      const xla::XlaOp zero = xla::Zero(context->builder(), context->input_xla_type(kX));
      flat.push_back(xla::Broadcast(zero, {(2 - biases) * spec.gates() * spec.units}));
    }
    return xla::ConcatInDim(context->builder(), flat, 0);
  }

  const KerasCall call_;
};

// The base class of the parameter ops. The sizes of the layers are constants of the program.
class XlaParamsOp : public XlaOpKernel {
 public:
  explicit XlaParamsOp(OpKernelConstruction* context) : XlaOpKernel(context), attrs_(context) {}

 protected:
  absl::Status ReadStack(XlaOpKernelContext* context, std::vector<TensorShape>* shapes,
                         StackSpec* stack) const {
    TF_RETURN_IF_ERROR(ReadShapes(context, shapes));
    int64_t sizes[3];
    for (int i = 0; i < 3; ++i) {
      TF_RETURN_IF_ERROR(CheckScalar(i, (*shapes)[i]));
      if (!context->ConstantInputAsIntScalar(i, &sizes[i]).ok()) {
        return Invalid(kSizeNames[i], "must be known when the program is compiled");
      }
    }
    *stack = attrs_.MakeStack(sizes[0], sizes[1], sizes[2]);
    TF_RETURN_IF_ERROR(ToAbsl(Validate(*stack)));
    return absl::OkStatus();
  }

  const RnnAttrs attrs_;
};

class XlaParamsSizeOp : public XlaParamsOp {
 public:
  using XlaParamsOp::XlaParamsOp;

  void Compile(XlaOpKernelContext* context) override {
    std::vector<TensorShape> shapes;
    StackSpec stack;
    OP_REQUIRES_OK(context, ReadStack(context, &shapes, &stack));
    const int64_t size = ParamsSize(stack);
    tensorflow::Tensor made(context->expected_output_dtype(0), TensorShape({1}));
    if (made.dtype() == tensorflow::DT_INT32) {
      OP_REQUIRES_OK(context, CheckFits<int32_t>(size));
      made.vec<int32_t>()(0) = static_cast<int32_t>(size);
    } else {
      made.vec<int64_t>()(0) = size;
    }
    context->SetConstantOutput(0, made);
  }
};

class XlaCanonicalOp : public XlaParamsOp {
 public:
  explicit XlaCanonicalOp(OpKernelConstruction* context)
      : XlaParamsOp(context), counts_(context) {}

 protected:
  const CanonicalCounts counts_;
};

class XlaCanonicalToParamsOp : public XlaCanonicalOp {
 public:
  using XlaCanonicalOp::XlaCanonicalOp;

  void Compile(XlaOpKernelContext* context) override {
    std::vector<TensorShape> shapes;
    StackSpec stack;
    OP_REQUIRES_OK(context, ReadStack(context, &shapes, &stack));
    OP_REQUIRES_OK(context, counts_.Validate(stack));
    // The packed vector contains the tensors in this order.
    std::vector<xla::XlaOp> flat;
    OP_REQUIRES_OK(context, Append(context, "weights", CanonicalWeights(stack), &flat));
    OP_REQUIRES_OK(context, Append(context, "biases", CanonicalBiases(stack), &flat));
    context->SetOutput(0, xla::ConcatInDim(context->builder(), flat, 0));
  }

  static absl::Status Append(XlaOpKernelContext* context, const char* name,
                             const std::vector<CanonicalParam>& canonical,
                             std::vector<xla::XlaOp>* flat) {
    std::vector<xla::XlaOp> given;
    std::vector<TensorShape> shapes;
    TF_RETURN_IF_ERROR(context->InputList(name, &given, &shapes));
    for (size_t i = 0; i < canonical.size(); ++i) {
      TF_RETURN_IF_ERROR(CheckCanonicalParam(name, i, canonical[i], shapes[i]));
      flat->push_back(xla::Reshape(given[i], {canonical[i].size()}));
    }
    return absl::OkStatus();
  }
};

class XlaParamsToCanonicalOp : public XlaCanonicalOp {
 public:
  using XlaCanonicalOp::XlaCanonicalOp;

  void Compile(XlaOpKernelContext* context) override {
    std::vector<TensorShape> shapes;
    StackSpec stack;
    OP_REQUIRES_OK(context, ReadStack(context, &shapes, &stack));
    OP_REQUIRES_OK(context, counts_.Validate(stack));
    OP_REQUIRES_OK(context, CheckParams(stack, shapes[3]));
    int output = 0;
    for (const std::vector<CanonicalParam>& canonical :
         {CanonicalWeights(stack), CanonicalBiases(stack)}) {
      for (const CanonicalParam& param : canonical) {
        const xla::XlaOp flat =
            xla::SliceInDim(context->Input(3), param.at, param.at + param.size(), 1, 0);
        context->SetOutput(output++, xla::Reshape(flat, DimsOf(param)));
      }
    }
  }
};

#define REGISTER(NAME, OP) OPWRIGHT_REGISTER_XLA(NAME, .TypeConstraint("T", kTypes), OP)

constexpr tensorflow::DataType kTypes[] = {tensorflow::DT_BFLOAT16, tensorflow::DT_HALF,
                                           tensorflow::DT_FLOAT, tensorflow::DT_DOUBLE};

REGISTER("CudnnRNN", XlaForwardOp<1>);
REGISTER("CudnnRNNV2", XlaForwardOp<2>);
REGISTER("CudnnRNNV3", XlaForwardOp<3>);
REGISTER("CudnnRNNBackprop", XlaBackwardOp<1>);
REGISTER("CudnnRNNBackpropV2", XlaBackwardOp<2>);
REGISTER("CudnnRNNBackpropV3", XlaBackwardOp<3>);
REGISTER("OpwrightKerasRNN", XlaKerasOp);
REGISTER("CudnnRNNParamsSize", XlaParamsSizeOp);
REGISTER("CudnnRNNCanonicalToParams", XlaCanonicalToParamsOp);
REGISTER("CudnnRNNCanonicalToParamsV2", XlaCanonicalToParamsOp);
REGISTER("CudnnRNNParamsToCanonical", XlaParamsToCanonicalOp);
REGISTER("CudnnRNNParamsToCanonicalV2", XlaParamsToCanonicalOp);

const bool kConstantsRegistered = RegisterXlaConstants(
    {"CudnnRNNParamsSize", "CudnnRNNCanonicalToParams", "CudnnRNNCanonicalToParamsV2",
     "CudnnRNNParamsToCanonical", "CudnnRNNParamsToCanonicalV2"},
    {kSizeNames[0], kSizeNames[1], kSizeNames[2]});

#undef REGISTER

}  // namespace
}  // namespace opwright::rnn
