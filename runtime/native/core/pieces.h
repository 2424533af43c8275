// The matrices and vectors that the packed parameters consist of, one for each gate: the
// canonical tensors of the CudnnRNN ops, in their order, which is that of cuDNN's linear layers.
#pragma once

#include <cstdint>
#include <vector>

#include "core/config.h"

namespace opwright {

// One of them, and where it lies in the packed vector.
struct Piece {
  int64_t at;
  int64_t rows;
  int64_t columns;  // -1: a bias, of rank 1.

  int64_t size() const { return columns < 0 ? rows : rows * columns; }
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

}  // namespace opwright
