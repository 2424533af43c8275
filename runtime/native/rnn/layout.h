// How the parameters of an RNN and its reserve lie in memory.
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

// Overflows for a stack that is refused for it.
Checked CheckedParamsSize(const StackSpec& stack);
// All of these need a stack that passed Validate.
int64_t ParamsSize(const StackSpec& stack);
// By pseudo-layer: layer * dirs + direction.
std::vector<LayerParams> ParamsLayout(const StackSpec& stack);

// The packed vector's canonical tensors: the matrices and vectors that it consists of, one for
// each gate, as the CudnnRNN ops have them and in their order, which is that of cuDNN's linear
// layers.
struct CanonicalParam {
  int64_t at;  // Where it begins in the packed vector.
  int64_t rows;
  int64_t columns;  // -1: a bias, of rank 1.

  int64_t size() const { return columns < 0 ? rows : rows * columns; }
};

inline int64_t WeightsPerLayer(const StackSpec& stack) {
  return 2 * stack.gates() + (stack.projection > 0 ? 1 : 0);
}

// With skip_input, the first layer's input weights are there, without columns.
std::vector<CanonicalParam> CanonicalWeights(const StackSpec& stack);
std::vector<CanonicalParam> CanonicalBiases(const StackSpec& stack);

// One layer and direction as Keras has it: matrices lie by what they are multiplied with, so
// that a row holds all gates of all units. Its GRU's gates are z, r, h, this library's r, z, n.
template <class T>
struct KerasWeights {
  const T* kernel;            // [layer_input, gates, units]
  const T* recurrent_kernel;  // [units, gates, units]
  const T* bias;              // [biases, gates, units]
  int64_t biases;             // 0: none. 1: the sum of both. 2: the input's, the recurrent one.
};

// Where Keras has a gate.
inline int64_t KerasGate(Cell cell, int64_t gate) {
  return cell == Cell::kGru && gate < 2 ? 1 - gate : gate;
}

// What training keeps for the backward pass: a header, then arrays, all of the element type and
// all of it written. Kernels of every device keep the same, so that one may go on where another
// began.
//   gates  [pseudo-layer][time, batch, saved_gates, units]  after their activation
//   cells  [pseudo-layer][time, batch, units]              LSTM only
//   hidden [layer but the last][time, batch, width]        outputs between layers
// Gates: LSTM i, f, g, o; GRU n, r, z and R_n h + b_Rn; plain cells keep none. Steps past a
// sequence's length are zeros.
struct ReserveLayout {
  // The fingerprint of the configuration and the call's nonce, for dropout, in bytes from the
  // lowest on: every type holds whole numbers below 256, and takes none for NaN or infinity.
  static constexpr int64_t kWordElements = 8;
  static constexpr int64_t kHeaderElements = 2 * kWordElements;

  int64_t gates = 0;  // Offset of the first array, in elements.
  int64_t cells = 0;
  int64_t hidden = 0;
  int64_t size = 0;  // Of everything, in elements.
  int64_t saved_gates = 0;

  explicit ReserveLayout(const CallSpec& spec);
};

uint64_t Fingerprint(const CallSpec& spec, int64_t element_bytes);
// T: float, double, Half, BFloat16.
template <class T>
void WriteHeader(const CallSpec& spec, uint64_t nonce, T* reserve);
// The call's nonce, or nothing if the reserve is another configuration's.
template <class T>
std::optional<uint64_t> ReadHeader(const CallSpec& spec, const T* reserve);

}  // namespace opwright::rnn
