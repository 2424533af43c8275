// Reads and checks a call of OpwrightKerasRNN. The checks depend only on shapes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/text.h"
#include "rnn/tf/call.h"

namespace opwright::rnn {

// The inputs in the order of the op.
enum KerasInput { kX, kH, kC, kKernel, kRecurrentKernel, kBias, kSequenceLengths };

class KerasCall {
 public:
  using TensorShape = tensorflow::TensorShape;

  explicit KerasCall(tensorflow::OpKernelConstruction* context) {
    std::string mode;
    OP_REQUIRES_OK(context, context->GetAttr("rnn_mode", &mode));
    cell_ = CellOf(mode);
  }

  bool lstm() const { return cell_ == Cell::kLstm; }

  // Accepts an empty batch, which the caller must handle. All fields of `spec` other than the
  // batch are then valid.
  template <class Shape>
  absl::Status Configure(const Shape& shape, CallSpec* spec, int64_t* biases) const {
    const TensorShape input = shape(kX), kernel = shape(kKernel);
    const TensorShape recurrent = shape(kRecurrentKernel), bias = shape(kBias);
    if (input.dims() != 3 || input.dim_size(1) == 0 || input.dim_size(2) == 0) {
      return Invalid("input",
                     "must be [batch, time, size] with steps and a size, has the shape " +
                         input.DebugString());
    }
    spec->cell = cell_;
    spec->time_major = false;
    spec->batch = input.dim_size(0);
    spec->time = input.dim_size(1);
    spec->input_size = input.dim_size(2);
    spec->units = recurrent.dims() == 2 ? recurrent.dim_size(0) : 0;
    CallSpec one = *spec;
    one.batch = std::max<int64_t>(1, spec->batch);
    TF_RETURN_IF_ERROR(ToAbsl(Validate(one)));
    const int64_t rows = spec->gates() * spec->units;
    TF_RETURN_IF_ERROR(CheckShape("kernel", kernel, {spec->input_size, rows}));
    TF_RETURN_IF_ERROR(CheckShape("recurrent_kernel", recurrent, {spec->units, rows}));
    if (bias.dims() != 2 || bias.dim_size(0) > 2 || bias.dim_size(1) != rows) {
      return Invalid(
          "bias", StrCat("must have the shape [0 to 2,", rows, "], has ", bias.DebugString()));
    }
    *biases = bias.dim_size(0);
    TF_RETURN_IF_ERROR(CheckShape("input_h", shape(kH), {spec->batch, spec->units}));
    if (lstm()) {
      TF_RETURN_IF_ERROR(CheckShape("input_c", shape(kC), {spec->batch, spec->units}));
    }
    return CheckShape("sequence_lengths", shape(kSequenceLengths), {spec->batch});
  }

 private:
  Cell cell_ = Cell::kLstm;
};

}  // namespace opwright::rnn
