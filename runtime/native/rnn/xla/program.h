// A stack of recurrent layers as an XLA program, which computes what rnn/rnn.h computes.
//
// Both functions require a CallSpec that passed Validate, operands of the shapes it implies,
// and lengths between 0 and time. The states are [layers * directions, batch, size]. Layers,
// units and sizes are constants of the program; the values of arrays never are. The reserve has
// the ReserveLayout. Dropout masks are those of the CPU for the same nonce.
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

// `results` are those of the forward pass. `backprops` are the gradients of its outputs; their
// `reserve` is not used.
absl::StatusOr<XlaGradients> BuildBackward(const CallSpec& spec, const XlaOperands& operands,
                                           const XlaResults& results,
                                           const XlaResults& backprops,
                                           xla::XlaBuilder* builder);

}  // namespace opwright::rnn
