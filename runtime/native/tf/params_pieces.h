// What the ops about parameters share: where canonical tensors lie in the packed vector, and
// how many there are.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tensorflow/core/framework/tensor_shape.h"
#include "tf/rnn_attrs.h"

namespace opwright {

// The inputs that say what the layers are.
constexpr const char* kSizeNames[] = {"num_layers", "num_units", "input_size"};

inline absl::Status CheckScalar(int i, const tensorflow::TensorShape& shape) {
  if (tensorflow::TensorShapeUtils::IsScalar(shape)) return absl::OkStatus();
  return Invalid(kSizeNames[i], "must be a scalar, has the shape " + shape.DebugString());
}

inline absl::Status CheckParams(const Stack& stack, const tensorflow::TensorShape& shape) {
  const int64_t size = ParamsSize(stack);
  if (shape.dims() == 1 && shape.dim_size(0) == size) return absl::OkStatus();
  return Invalid("params", "must have the shape [" + std::to_string(size) +
                               "] for these layers, has " + shape.DebugString());
}

template <class S>
absl::Status CheckFits(int64_t size) {
  if (size <= std::numeric_limits<S>::max()) return absl::OkStatus();
  return Invalid("num_units", "there are " + std::to_string(size) +
                                  " parameters, too many for the dtype of params_size");
}

// One canonical tensor and where it lies in the packed vector.
struct Piece {
  int64_t at;
  int64_t rows;
  int64_t columns;  // -1: a bias, of rank 1.

  int64_t size() const { return columns < 0 ? rows : rows * columns; }
  tensorflow::TensorShape shape() const {
    return columns < 0 ? tensorflow::TensorShape({rows})
                       : tensorflow::TensorShape({rows, columns});
  }
};

inline int64_t WeightsPerLayer(const Stack& stack) {
  return 2 * stack.gates() + (stack.projection > 0 ? 1 : 0);
}

// With skip_input, the first layer's input weights are there, without columns.
inline std::vector<Piece> WeightPieces(const Stack& stack) {
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

inline std::vector<Piece> BiasPieces(const Stack& stack) {
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

inline absl::Status CheckPiece(const char* name, size_t i, const Piece& piece,
                               const tensorflow::TensorShape& shape) {
  if (shape == piece.shape()) return absl::OkStatus();
  return Invalid(std::string(name) + "[" + std::to_string(i) + "]",
                 "must have the shape " + piece.shape().DebugString() + ", has " +
                     shape.DebugString());
}

// How many tensors a conversion is told that there are: V1 has one number, V2 two.
class CanonicalCounts {
 public:
  explicit CanonicalCounts(tensorflow::OpKernelConstruction* context) {
    if (context->HasAttr("num_params")) {
      weights_attr_ = biases_attr_ = "num_params";
    }
    OP_REQUIRES_OK(context, context->GetAttr(weights_attr_, &weights_));
    OP_REQUIRES_OK(context, context->GetAttr(biases_attr_, &biases_));
  }

  // Before any layout is made: so many layers have so many tensors.
  absl::Status Check(const Stack& stack) const {
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

}  // namespace opwright
