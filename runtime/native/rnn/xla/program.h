// A stack of recurrent layers as an XLA program. It computes what the functions of rnn/rnn.h
// compute.
//
// Both functions require a CallSpec that passed Validate and operands of the shapes that it
// implies. Lengths are between 0 and time. States are [layers * directions, batch, size]. The
// numbers of layers, units and other sizes are constants of the program. The values of arrays
// are not. The reserve has the ReserveLayout. Dropout masks are those of the CPU kernel for the
// same nonce.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "base/xla/builder.h"
#include "rnn/spec.h"
#include "xla/xla_data.pb.h"

namespace opwright::rnn {

struct XlaOperands {
  xla::PrimitiveType type;  // F16, BF16, F32 or F64.
  xla::XlaOp input;
  xla::XlaOp input_h;
  xla::XlaOp input_c;  // LSTM only.
  xla::XlaOp params;
  std::optional<xla::XlaOp> lengths;  // If absent, all lengths are `time`.
  // Whether every call draws the dropout masks of the CPU kernel's first call.
  bool resets_dropout = false;
};

struct XlaResults {
  xla::XlaOp output;
  xla::XlaOp output_h;
  xla::XlaOp output_c;  // LSTM only.
  xla::XlaOp reserve;   // Training only.
};

struct XlaGradients {
  xla::XlaOp input;
  xla::XlaOp input_h;
  xla::XlaOp input_c;  // LSTM only.
  xla::XlaOp params;
};

absl::StatusOr<XlaResults> BuildForward(const CallSpec& spec, const XlaOperands& operands,
                                        xla::XlaBuilder* builder);

// `results` are the results of the forward pass. `backprops` are the gradients of its outputs.
// The field `reserve` of `backprops` is not used.
absl::StatusOr<XlaGradients> BuildBackward(const CallSpec& spec, const XlaOperands& operands,
                                           const XlaResults& results,
                                           const XlaResults& backprops,
                                           xla::XlaBuilder* builder);

}  // namespace opwright::rnn
