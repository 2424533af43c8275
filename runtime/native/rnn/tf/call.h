// Reads and checks a call of the CudnnRNN ops. The checks depend only on shapes, so that the
// kernels of all devices give the same errors.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/text.h"
#include "rnn/layout.h"
#include "rnn/tf/params_canonical.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace opwright::rnn {

// The shape that an input must have. The product of its sizes may be larger than any tensor,
// because the sizes come from other inputs.
using Dims = absl::InlinedVector<int64_t, 3>;

inline absl::Status CheckShape(const char* name, const tensorflow::TensorShape& given,
                               const Dims& wanted) {
  bool same = static_cast<size_t>(given.dims()) == wanted.size();
  for (int i = 0; same && i < given.dims(); ++i) {
    same = given.dim_size(i) == wanted[static_cast<size_t>(i)];
  }
  if (same) return absl::OkStatus();
  return Invalid(name, "must have the shape [" + absl::StrJoin(wanted, ",") + "], has " +
                           given.DebugString());
}

// Checks that each length is between 0 and spec.time. Sets `full` to whether every length is
// spec.time.
inline absl::Status CheckLengths(absl::Span<const int32_t> lengths, const CallSpec& spec,
                                 bool* full) {
  *full = true;
  for (const int32_t length : lengths) {
    if (length < 0 || length > spec.time) {
      return Invalid("sequence_lengths",
                     StrCat("each must lie between 0 and the number of steps, ", spec.time,
                            "; one is ", length));
    }
    *full = *full && length == spec.time;
  }
  return absl::OkStatus();
}

// Reads the arguments of a CudnnRNN op of version kVersion (1, 2 or 3), or of its Backprop op.
// The parameter `shape` of the functions is a callable: shape(i) returns the shape of input i.
template <int kVersion>
class RnnCall {
 public:
  using TensorShape = tensorflow::TensorShape;

  // The index of the input sequence_lengths, which only version 3 has.
  static constexpr int kLengths = 4;
  // The index of the first input that only the backward op has. These inputs are output,
  // output_h, output_c, the gradients of these three, and reserve_space.
  static constexpr int kOutput = kVersion == 3 ? 5 : 4;
  static constexpr int kReserve = kOutput + 6;

  explicit RnnCall(tensorflow::OpKernelConstruction* context) : attrs_(context) {
    if (kVersion == 3) {
      OP_REQUIRES_OK(context, context->GetAttr("time_major", &time_major_));
    }
  }

  bool lstm() const { return attrs_.cell() == Cell::kLstm; }
  bool resets_dropout() const { return attrs_.resets_dropout(); }

  // Sets `spec` from the attrs and from the inputs that the forward and the Backprop op share:
  // input, input_h, input_c and params.
  template <class Shape>
  absl::Status Configure(const Shape& shape, bool training, CallSpec* spec) const {
    const TensorShape input = shape(0), input_h = shape(1), input_c = shape(2);
    const TensorShape params = shape(3);
    if (input.dims() != 3) {
      return Invalid("input", "must be of rank 3, has the shape " + input.DebugString());
    }
    if (input_h.dims() != 3) {
      return Invalid("input_h", "must be of rank 3, has the shape " + input_h.DebugString());
    }
    const int64_t time = input.dim_size(time_major_ ? 0 : 1);
    const int64_t batch = input.dim_size(time_major_ ? 1 : 0);
    if (time == 0 || batch == 0 || input.dim_size(2) == 0) {
      return Invalid("input", "must not be empty, has the shape " + input.DebugString());
    }
    const int64_t stacked = input_h.dim_size(time_major_ ? 0 : 1);
    if (stacked == 0 || stacked % attrs_.dirs() != 0) {
      return Invalid("input_h",
                     StrCat("its dimension of layers * directions must be a positive "
                            "multiple of ",
                            attrs_.dirs(), ", the shape is ", input_h.DebugString()));
    }
    const int64_t projection = attrs_.projection();
    if (projection > 0 && !lstm()) {
      return Invalid("num_proj",
                     StrCat("only an lstm has a projection; must be 0, is ", projection));
    }
    int64_t units = input_h.dim_size(2);
    if (projection > 0) {
      if (input_c.dims() != 3) {
        return Invalid("input_c", "must be of rank 3, has the shape " + input_c.DebugString());
      }
      units = input_c.dim_size(2);
      if (projection > units) {
        return Invalid("num_proj",
                       StrCat("must be at most num_units = ", units, ", is ", projection));
      }
    }
    if (units == 0) {
      return Invalid("input_h", "must not be empty, has the shape " + input_h.DebugString());
    }
    TF_RETURN_IF_ERROR(
        CheckState("input_h", input_h, stacked, batch, projection > 0 ? projection : units));
    if (lstm()) TF_RETURN_IF_ERROR(CheckState("input_c", input_c, stacked, batch, units));
    static_cast<StackSpec&>(*spec) =
        attrs_.MakeStack(stacked / attrs_.dirs(), units, input.dim_size(2));
    spec->time = time;
    spec->batch = batch;
    spec->time_major = time_major_;
    spec->training = training;
    spec->dropout = attrs_.dropout();
    spec->seed = attrs_.seed();
    TF_RETURN_IF_ERROR(ToAbsl(Validate(*spec)));
    return CheckParams(*spec, params);
  }

  template <class Shape>
  absl::Status CheckLengthsShape(const Shape& shape, const CallSpec& spec) const {
    return CheckShape("sequence_lengths", shape(kLengths), {spec.batch});
  }

  // Checks the inputs that only the Backprop op has. reserve_space must have `reserved`
  // elements.
  template <class Shape>
  absl::Status CheckBackward(const Shape& shape, const CallSpec& spec, int64_t reserved) const {
    static constexpr const char* kNames[] = {
        "output",          "output_h",          "output_c",
        "output_backprop", "output_h_backprop", "output_c_backprop"};
    const auto dims_of = [&](int i) {
      const auto dims = shape(i).dim_sizes();
      return Dims(dims.begin(), dims.end());
    };
    const Dims wanted[] = {OutputDims(spec), dims_of(1), dims_of(2)};
    for (const int i : {0, 3, 1, 4, 2, 5}) {
      if (i % 3 == 2 && !lstm()) continue;
      TF_RETURN_IF_ERROR(CheckShape(kNames[i], shape(kOutput + i), wanted[i % 3]));
    }
    const TensorShape reserve = shape(kReserve);
    if (reserve.dims() != 1 || reserve.dim_size(0) != reserved) {
      return Invalid("reserve_space", StrCat("must have the shape [", reserved,
                                             "] for these layers, has ", reserve.DebugString(),
                                             "; take it from the forward op in training"));
    }
    return absl::OkStatus();
  }

  // Returns the shape of a state tensor. In memory, the elements are [layers * dirs, batch,
  // size] for both values of time_major, although the shape differs.
  Dims StateDims(int64_t stacked, int64_t batch, int64_t size) const {
    return time_major_ ? Dims{stacked, batch, size} : Dims{batch, stacked, size};
  }
  // The shape of the other time_major is a likely mistake, so the message states this one.
  absl::Status CheckState(const char* name, const TensorShape& given, int64_t stacked,
                          int64_t batch, int64_t size) const {
    const absl::Status checked = CheckShape(name, given, StateDims(stacked, batch, size));
    if (checked.ok() || time_major_) return checked;
    return absl::Status(checked.code(),
                        StrCat(checked.message(),
                               "; with time_major=False, states are [batch, layers * "
                               "directions, units]"));
  }
  Dims OutputDims(const CallSpec& spec) const {
    return time_major_ ? Dims{spec.time, spec.batch, spec.width()}
                       : Dims{spec.batch, spec.time, spec.width()};
  }
  // Returns the shape of the output host_reserved of versions 2 and 3, as TensorFlow's GPU
  // kernel has it. These kernels do not use that output.
  TensorShape HostReservedShape(bool training) const {
    return kVersion == 2 && training ? TensorShape({2}) : TensorShape({});
  }

 private:
  const RnnAttrs attrs_;
  bool time_major_ = true;
};

}  // namespace opwright::rnn
