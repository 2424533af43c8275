// The memory layouts of an RNN's parameters and of its reserve.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/checked.h"
#include "base/float16.h"
#include "rnn/spec.h"

namespace opwright::rnn {

// The offsets at which the parameters of one layer and direction begin, in elements of
// `params`.
struct LayerParams {
  int64_t input_weights;      // [gates, units, layer_input]. Absent for a skipped input.
  int64_t recurrent_weights;  // [gates, units, hidden]
  int64_t projection;         // [projection, units]. Absent without projection.
  int64_t input_bias;         // [gates, units]
  int64_t recurrent_bias;     // [gates, units]
};

// The result overflows for a stack that Validate refuses.
Checked CheckedParamsSize(const StackSpec& stack);
// The functions below require a stack that passed Validate.
int64_t ParamsSize(const StackSpec& stack);
// Returns one element for each pseudo-layer. Its index is layer * dirs + direction.
std::vector<LayerParams> ParamsLayout(const StackSpec& stack);

// One canonical tensor: the matrix or the bias of one gate, as a part of the packed vector. The
// CudnnRNN ops list canonical tensors in the order of cuDNN's linear layers.
struct CanonicalParam {
  int64_t at;  // The element of the packed vector where the tensor begins.
  int64_t rows;
  int64_t columns;  // -1 for a bias, which has rank 1.

  int64_t size() const { return columns < 0 ? rows : rows * columns; }
};

inline int64_t WeightsPerLayer(const StackSpec& stack) {
  return 2 * stack.gates() + (stack.projection > 0 ? 1 : 0);
}

// With skip_input, the list includes the input weights of the first layer as matrices of 0
// columns.
std::vector<CanonicalParam> CanonicalWeights(const StackSpec& stack);
std::vector<CanonicalParam> CanonicalBiases(const StackSpec& stack);

// The weights of one layer and direction in Keras's layout. Each row of a matrix contains all
// gates of all units. Keras orders the gates of a GRU z, r, h. This library orders them r, z,
// n.
template <class T>
struct KerasWeights {
  const T* kernel;            // [layer_input, gates, units]
  const T* recurrent_kernel;  // [units, gates, units]
  const T* bias;              // [biases, gates, units]
  // 0: no bias. 1: one bias, the sum of both. 2: the input bias, then the recurrent bias.
  int64_t biases;
};

// The position that a gate of this library has in Keras's order.
inline int64_t KerasGate(Cell cell, int64_t gate) {
  return cell == Cell::kGru && gate < 2 ? 1 - gate : gate;
}

// The reserve contains the values that training saves for the backward pass: a header and three
// arrays, all of the element type. The forward pass writes every element, also those of
// padding. All devices use the same layout, so a device can run the backward pass of a forward
// pass that ran on another device.
//   gates  [pseudo-layer][time, batch, saved_gates, units]  gates after their activation
//   cells  [pseudo-layer][time, batch, units]               cell states, only of an LSTM
//   hidden [layer but the last][time, batch, width]         outputs between layers
// An LSTM saves the gates i, f, g, o. A GRU saves n, r, z and R_n h + b_Rn. Plain cells save no
// gates. Steps past the length of a sequence are zeros.
struct ReserveLayout {
  // The header contains two integers: the fingerprint of the configuration, and the nonce of
  // the call, which determines the dropout masks. Each byte of an integer is one element,
  // lowest byte first. Every element type represents the integers below 256 exactly.
  static constexpr int64_t kWordElements = 8;
  static constexpr int64_t kHeaderElements = 2 * kWordElements;

  int64_t gates = 0;  // Offsets of the arrays, in elements.
  int64_t cells = 0;
  int64_t hidden = 0;
  int64_t size = 0;  // The number of elements in the header and all arrays.
  int64_t saved_gates = 0;

  explicit ReserveLayout(const CallSpec& spec);
};

uint64_t Fingerprint(const CallSpec& spec, int64_t element_bytes);
// T is float, double, Half or BFloat16.
template <class T>
void WriteHeader(const CallSpec& spec, uint64_t nonce, T* reserve);
// Returns the nonce of the call. Returns nothing if another configuration wrote the reserve.
template <class T>
std::optional<uint64_t> ReadHeader(const CallSpec& spec, const T* reserve);

}  // namespace opwright::rnn
