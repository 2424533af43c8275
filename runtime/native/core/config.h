// What an RNN is, and how its parameters and its reserve lie in memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"

namespace opwright {

enum class Cell { kRelu, kTanh, kLstm, kGru };

// The layers, whatever they run over.
struct Stack {
  Cell cell = Cell::kLstm;
  bool skip_input = false;
  bool bidirectional = false;
  int64_t layers = 1;
  int64_t units = 0;
  int64_t input_size = 0;
  int64_t projection = 0;  // 0: none.

  int64_t dirs() const { return bidirectional ? 2 : 1; }
  int64_t gates() const {
    return cell == Cell::kLstm ? 4 : cell == Cell::kGru ? 3 : 1;
  }
  // Size of a hidden state, which differs from a cell state's under projection.
  int64_t hidden() const { return projection > 0 ? projection : units; }
  // Size of what a layer puts out at each step, and so of what the next one reads.
  int64_t width() const { return dirs() * hidden(); }
  int64_t layer_input(int64_t layer) const { return layer == 0 ? input_size : width(); }
  bool has_input_weights(int64_t layer) const { return layer > 0 || !skip_input; }
};

inline bool SameStack(const Stack& a, const Stack& b) {
  return a.cell == b.cell && a.skip_input == b.skip_input &&
         a.bidirectional == b.bidirectional && a.layers == b.layers && a.units == b.units &&
         a.input_size == b.input_size && a.projection == b.projection;
}

// One call.
struct Config : Stack {
  int64_t time = 0;
  int64_t batch = 0;
  bool time_major = true;
  bool training = false;
  float dropout = 0;  // Between layers, in training.
  uint64_t seed = 0;

  bool drops() const { return training && dropout > 0 && layers > 1; }
};

// Names the first member that is out of range or makes a size overflow.
std::optional<Error> Check(const Stack& stack);
std::optional<Error> Check(const Config& config);

// Where the parameters of one layer and direction begin, in elements of `params`.
struct LayerParams {
  int64_t input_weights;      // [gates, units, layer_input], or nothing.
  int64_t recurrent_weights;  // [gates, units, hidden]
  int64_t projection;         // [projection, units], or nothing.
  int64_t input_bias;         // [gates, units]
  int64_t recurrent_bias;     // [gates, units]
};

// Both ask for a stack that passed Check.
int64_t ParamsSize(const Stack& stack);
// By pseudo-layer: layer * dirs + direction.
std::vector<LayerParams> ParamsLayout(const Stack& stack);

// What training keeps for the backward pass: a header, then arrays of the element type.
//   gates  [pseudo-layer][time, batch, kept_gates, units]  after their activation
//   cells  [pseudo-layer][time, batch, units]              LSTM only
//   hidden [layer but the last][time, batch, width]        outputs between layers
// Gates: LSTM i, f, g, o; GRU n, r, z and R_n h + b_Rn; plain cells keep none.
struct Reserve {
  static constexpr int64_t kHeaderBytes = 24;

  int64_t gates = 0;  // Offset of the first array, in elements.
  int64_t cells = 0;
  int64_t hidden = 0;
  int64_t size = 0;  // Of everything, in elements.
  int64_t kept_gates = 0;

  Reserve(const Config& config, int64_t element_bytes);
};

struct ReserveHeader {
  uint64_t magic;
  uint64_t fingerprint;  // Of the configuration.
  uint64_t nonce;        // Of the call, for dropout.
};
static_assert(sizeof(ReserveHeader) == Reserve::kHeaderBytes, "");

ReserveHeader MakeHeader(const Config& config, int64_t element_bytes, uint64_t nonce);
// The call's nonce, or nothing if the reserve is another configuration's.
std::optional<uint64_t> ReadHeader(const Config& config, int64_t element_bytes,
                                   const void* reserve);

}  // namespace opwright
