// How a call of the CudnnRNN ops is read and checked: from shapes alone, so that kernels of
// every device say the same.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tf/params_pieces.h"

namespace opwright {

inline absl::Status CheckShape(const char* name, const tensorflow::TensorShape& given,
                               const tensorflow::TensorShape& shape) {
  if (given == shape) return absl::OkStatus();
  return Invalid(name, "must have the shape " + shape.DebugString() + ", has " +
                           given.DebugString());
}

// The functions take `shape(i)`, the shape of input i.
template <int kVersion>
class RnnCall {
 public:
  using TensorShape = tensorflow::TensorShape;

  static constexpr int kLengths = 4;  // The input, in version 3.
  // The first of the inputs that only the backward op has: output, output_h, output_c, their
  // three gradients, reserve_space.
  static constexpr int kOutput = kVersion == 3 ? 5 : 4;
  static constexpr int kReserve = kOutput + 6;

  explicit RnnCall(tensorflow::OpKernelConstruction* context) : attrs_(context) {
    if (kVersion == 3) {
      OP_REQUIRES_OK(context, context->GetAttr("time_major", &time_major_));
    }
  }

  bool lstm() const { return attrs_.cell() == Cell::kLstm; }

  // Reads the first inputs, which forward and backward ops share, into a configuration.
  template <class Shape>
  absl::Status Configure(const Shape& shape, bool training, Config* config) const {
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
      return Invalid("input_h", "its dimension of layers * directions must be a positive "
                                "multiple of " +
                                    std::to_string(attrs_.dirs()) + ", the shape is " +
                                    input_h.DebugString());
    }
    const int64_t projection = attrs_.projection();
    if (projection > 0 && !lstm()) {
      return Invalid("num_proj",
                     "only an lstm has a projection; must be 0, is " + std::to_string(projection));
    }
    int64_t units = input_h.dim_size(2);
    if (projection > 0) {
      if (input_c.dims() != 3) {
        return Invalid("input_c", "must be of rank 3, has the shape " + input_c.DebugString());
      }
      units = input_c.dim_size(2);
      if (projection > units) {
        return Invalid("num_proj", "must be at most num_units = " + std::to_string(units) +
                                       ", is " + std::to_string(projection));
      }
    }
    if (units == 0) {
      return Invalid("input_h", "must not be empty, has the shape " + input_h.DebugString());
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
    return CheckParams(*config, params);
  }

  template <class Shape>
  absl::Status CheckLengthsShape(const Shape& shape, const Config& config) const {
    return CheckShape("sequence_lengths", shape(kLengths), TensorShape({config.batch}));
  }

  // Whether every sequence has all steps comes back in `full`.
  absl::Status CheckLengths(absl::Span<const int32_t> lengths, const Config& config,
                            bool* full) const {
    *full = true;
    for (const int32_t length : lengths) {
      if (length < 0 || length > config.time) {
        return Invalid("sequence_lengths", "each must lie between 0 and the number of steps, " +
                                               std::to_string(config.time) + "; one is " +
                                               std::to_string(length));
      }
      *full = *full && length == config.time;
    }
    return absl::OkStatus();
  }

  // The backward op's other inputs; its kernel keeps `reserved` elements.
  template <class Shape>
  absl::Status CheckBackward(const Shape& shape, const Config& config,
                             int64_t reserved) const {
    static constexpr const char* kNames[] = {
        "output",          "output_h",          "output_c",
        "output_backprop", "output_h_backprop", "output_c_backprop"};
    const TensorShape shapes[] = {OutputShape(config), shape(1), shape(2)};
    for (const int i : {0, 3, 1, 4, 2, 5}) {
      if (i % 3 == 2 && !lstm()) continue;
      if (auto status = CheckShape(kNames[i], shape(kOutput + i), shapes[i % 3]);
          !status.ok()) {
        return status;
      }
    }
    const TensorShape reserve = shape(kReserve);
    if (reserve.dims() != 1 || reserve.dim_size(0) != reserved) {
      return Invalid("reserve_space", "must have the shape [" + std::to_string(reserved) +
                                          "] for these layers, has " + reserve.DebugString() +
                                          "; take it from the forward op in training");
    }
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
  // Of the dummy that versions 2 and 3 have.
  TensorShape HostReservedShape(bool training) const {
    return kVersion == 2 && training ? TensorShape({2}) : TensorShape({});
  }

 private:
  const RnnAttrs attrs_;
  bool time_major_ = true;
};

}  // namespace opwright
