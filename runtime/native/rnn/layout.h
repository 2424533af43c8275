// The memory layouts of an RNN's parameters and of its reserve.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/checked.h"
#include "base/float16.h"
#include "rnn/spec.h"

namespace opwright::rnn {

// Where the parameters of one layer and direction begin, in elements of `params`.
struct LayerParams {
  int64_t input_weights;      // [gates, units, layer_input], or nothing.
  int64_t recurrent_weights;  // [gates, units, hidden]
  int64_t projection;         // [projection, units], or nothing.
  int64_t input_bias;         // [gates, units]
  int64_t recurrent_bias;     // [gates, units]
};

// The result has overflowed for a stack that Validate refuses.
Checked CheckedParamsSize(const StackSpec& stack);
// All of these require a stack that passed Validate.
int64_t ParamsSize(const StackSpec& stack);
// By pseudo-layer: layer * dirs + direction.
std::vector<LayerParams> ParamsLayout(const StackSpec& stack);

// A canonical tensor of the packed vector: the matrix or the bias of one gate. The CudnnRNN ops
// list them in the order of cuDNN's linear layers.
struct CanonicalParam {
  int64_t at;  // Where it begins in the packed vector.
  int64_t rows;
  int64_t columns;  // -1: a bias, of rank 1.

  int64_t size() const { return columns < 0 ? rows : rows * columns; }
};

inline int64_t WeightsPerLayer(const StackSpec& stack) {
  return 2 * stack.gates() + (stack.projection > 0 ? 1 : 0);
}

// With skip_input the list has the input weights of the first layer, without columns.
std::vector<CanonicalParam> CanonicalWeights(const StackSpec& stack);
std::vector<CanonicalParam> CanonicalBiases(const StackSpec& stack);

// The weights of one layer and direction in Keras's layout: a row of a matrix holds all gates
// of all units. Keras orders the gates of a GRU z, r, h; this library orders them r, z, n.
template <class T>
struct KerasWeights {
  const T* kernel;            // [layer_input, gates, units]
  const T* recurrent_kernel;  // [units, gates, units]
  const T* bias;              // [biases, gates, units]
  int64_t biases;             // 0: none. 1: the sum of both. 2: the input's, the recurrent one.
};

// The position of a gate in Keras's order.
inline int64_t KerasGate(Cell cell, int64_t gate) {
  return cell == Cell::kGru && gate < 2 ? 1 - gate : gate;
}

// The reserve is what training saves for the backward pass: a header and arrays, all of the
// element type. Every element is written. All devices use the same layout, so that one device
// can run the backward pass of another.
//   gates  [pseudo-layer][time, batch, saved_gates, units]  after their activation
//   cells  [pseudo-layer][time, batch, units]              LSTM only
//   hidden [layer but the last][time, batch, width]        outputs between layers
// Gates: LSTM i, f, g, o; GRU n, r, z and R_n h + b_Rn; plain cells save none. Steps past a
// sequence's length are zeros.
struct ReserveLayout {
  // The header: the fingerprint of the configuration and the call's nonce, for dropout. Each is
  // one element per byte, the lowest first, because every type holds the integers below 256.
  static constexpr int64_t kWordElements = 8;
  static constexpr int64_t kHeaderElements = 2 * kWordElements;

  int64_t gates = 0;  // Offset of the first array, in elements.
  int64_t cells = 0;
  int64_t hidden = 0;
  int64_t size = 0;  // In elements, of the header and all arrays.
  int64_t saved_gates = 0;

  explicit ReserveLayout(const CallSpec& spec);
};

uint64_t Fingerprint(const CallSpec& spec, int64_t element_bytes);
// T: float, double, Half, BFloat16.
template <class T>
void WriteHeader(const CallSpec& spec, uint64_t nonce, T* reserve);
// The nonce of the call, or nothing if the reserve is that of another configuration.
template <class T>
std::optional<uint64_t> ReadHeader(const CallSpec& spec, const T* reserve);

}  // namespace opwright::rnn
