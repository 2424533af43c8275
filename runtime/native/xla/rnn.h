// A stack of recurrent layers as an XLA program: what core/rnn.h computes, for whatever XLA
// compiles for.
//
// Both functions ask for a Config that passed Check, operands of the shapes it implies (the
// states' as [layers * directions, batch, size]) and lengths between 0 and time. Layers, units
// and sizes are constants of the program; what an array holds never is.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "core/config.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/xla_data.pb.h"

namespace opwright {

// What training keeps for the backward pass, in elements: the nonce of the call's dropout, in
// pieces that every type holds exactly, then the arrays of core's Reserve. Never as long as
// that one, so neither kernel takes what the other kept.
int64_t XlaReserveSize(const Config& config);

struct XlaOperands {
  xla::PrimitiveType type;  // F16, BF16, F32 or F64.
  xla::XlaOp input;
  xla::XlaOp input_h;
  xla::XlaOp input_c;  // LSTM only.
  xla::XlaOp params;
  std::optional<xla::XlaOp> lengths;  // None: all are `time`.
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

absl::StatusOr<XlaResults> BuildForward(const Config& config, const XlaOperands& operands,
                                        xla::XlaBuilder* builder);

// `results` are the forward call's; `backprops` the gradients of its outputs, with nothing in
// place of the reserve's.
absl::StatusOr<XlaGradients> BuildBackward(const Config& config, const XlaOperands& operands,
                                           const XlaResults& results,
                                           const XlaResults& backprops,
                                           xla::XlaBuilder* builder);

}  // namespace opwright
