// A stack of recurrent layers as an XLA program: what rnn/rnn.h computes, for whatever XLA
// compiles for.
//
// Both functions ask for a CallSpec that passed Validate, operands of the shapes it implies
// (the states' as [layers * directions, batch, size]) and lengths between 0 and time. Layers,
// units and sizes are constants of the program; what an array holds never is. What is kept for
// the backward pass lies as the ReserveLayout says, and where a nonce is the same, so are
// dropout's masks.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "rnn/spec.h"
#include "rnn/xla/builder.h"
#include "xla/xla_data.pb.h"

namespace opwright::rnn {

struct XlaOperands {
  xla::PrimitiveType type;  // F16, BF16, F32 or F64.
  xla::XlaOp input;
  xla::XlaOp input_h;
  xla::XlaOp input_c;  // LSTM only.
  xla::XlaOp params;
  std::optional<xla::XlaOp> lengths;  // None: all are `time`.
  bool resets_dropout =
      false;  // The masks of every call are those of the CPU kernel's first one.
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

// `results` are the forward call's; `backprops` the gradients of its outputs, with nothing in
// place of the reserve's.
absl::StatusOr<XlaGradients> BuildBackward(const CallSpec& spec, const XlaOperands& operands,
                                           const XlaResults& results,
                                           const XlaResults& backprops,
                                           xla::XlaBuilder* builder);

}  // namespace opwright::rnn
