// The configuration of an RNN, and its valid sizes.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "rnn/kernels/cell.h"

namespace opwright::rnn {

// The configuration of the layers, without the sizes of the sequences.
struct StackSpec {
  Cell cell = Cell::kLstm;
  bool skip_input = false;
  bool bidirectional = false;
  int64_t layers = 1;
  int64_t units = 0;
  int64_t input_size = 0;
  // The size of the projection of an LSTM's hidden state. 0 means no projection.
  int64_t projection = 0;

  int64_t dirs() const { return bidirectional ? 2 : 1; }
  int64_t gates() const { return cell == Cell::kLstm ? 4 : cell == Cell::kGru ? 3 : 1; }
  // The size of a hidden state. With a projection it differs from the size of a cell state.
  int64_t hidden() const { return projection > 0 ? projection : units; }
  // The size of a layer's output at each step, which is also the input size of the next layer.
  int64_t width() const { return dirs() * hidden(); }
  int64_t layer_input(int64_t layer) const { return layer == 0 ? input_size : width(); }
  bool has_input_weights(int64_t layer) const { return layer > 0 || !skip_input; }
};

inline bool SameStack(const StackSpec& a, const StackSpec& b) {
  return a.cell == b.cell && a.skip_input == b.skip_input &&
         a.bidirectional == b.bidirectional && a.layers == b.layers && a.units == b.units &&
         a.input_size == b.input_size && a.projection == b.projection;
}

// The configuration of one call: the layers and the sizes of the sequences.
struct CallSpec : StackSpec {
  int64_t time = 0;
  int64_t batch = 0;
  bool time_major = true;
  bool training = false;
  float dropout = 0;  // The dropout rate between layers. It applies only in training.
  uint64_t seed = 0;

  bool drops() const { return training && dropout > 0 && layers > 1; }
};

// The error names the first field that is out of range or that makes a size overflow.
Status Validate(const StackSpec& stack);
Status Validate(const CallSpec& spec);

}  // namespace opwright::rnn
