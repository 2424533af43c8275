// The base class of the forward and the backward program.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/xla/builder.h"
#include "rnn/layout.h"
#include "rnn/spec.h"
#include "rnn/xla/program.h"
#include "xla/shape_util.h"
#include "xla/xla_data.pb.h"

namespace opwright::rnn {

using Ops = std::vector<xla::XlaOp>;

// The weights of one layer and direction, in the type of storage.
struct LayerWeights {
  xla::XlaOp input;           // [gates * units, layer_input]. Absent if skipped.
  xla::XlaOp recurrent;       // [gates * units, hidden]
  xla::XlaOp projection;      // [projection, units]. Absent without projection.
  xla::XlaOp input_bias;      // [gates * units]
  xla::XlaOp recurrent_bias;  // [gates * units]
};

// The base class of both passes. All sequences are [time, batch, width].
class Program {
 public:
  Program(const CallSpec& spec, const XlaOperands& operands, xla::XlaBuilder* builder)
      : spec_(spec),
        operands_(operands),
        builder_(builder),
        type_(operands.type),
        compute_(type_ == xla::F64 ? xla::F64 : xla::F32),
        time_(spec.time),
        batch_(spec.batch),
        units_(spec.units),
        reserve_(spec),
        layout_(ParamsLayout(spec)) {}

 protected:
  bool lstm() const { return spec_.cell == Cell::kLstm; }
  bool gru() const { return spec_.cell == Cell::kGru; }
  int64_t rows() const { return spec_.gates() * units_; }
  int64_t saved_width() const { return (spec_.gates() == 1 ? 0 : 4) * units_; }

  xla::XlaOp Wide(xla::XlaOp x) const { return xla::ConvertElementType(x, compute_); }
  xla::XlaOp Narrow(xla::XlaOp x) const { return xla::ConvertElementType(x, type_); }
  xla::XlaOp Zeros(xla::PrimitiveType type, std::vector<int64_t> dims) const {
    return xla::Broadcast(xla::Zero(builder_, type), dims);
  }

  // Converts a sequence from the caller's layout to [time, batch, width], or back.
  xla::XlaOp Sequence(xla::XlaOp x) const {
    return spec_.time_major ? x : xla::Transpose(x, {1, 0, 2});
  }

  // Returns one pseudo-layer of a state [layers * dirs, batch, size], in the type of
  // computation.
  xla::XlaOp StateOf(xla::XlaOp states, int64_t pseudo, int64_t size) const {
    const xla::XlaOp one = xla::SliceInDim(states, pseudo, pseudo + 1, 1, 0);
    return Wide(xla::Reshape(one, {batch_, size}));
  }
  xla::XlaOp JoinStates(const Ops& states, int64_t size) const {
    Ops made;
    for (const xla::XlaOp state : states) {
      made.push_back(xla::Reshape(Narrow(state), {1, batch_, size}));
    }
    return xla::ConcatInDim(builder_, made, 0);
  }

  LayerWeights WeightsOf(int64_t layer, int64_t dir) const {
    const LayerParams& at = layout_[layer * spec_.dirs() + dir];
    const auto param = [&](int64_t begin, std::vector<int64_t> dims) {
      const int64_t size = dims.size() == 2 ? dims[0] * dims[1] : dims[0];
      return xla::Reshape(xla::SliceInDim(operands_.params, begin, begin + size, 1, 0), dims);
    };
    LayerWeights weights;
    if (spec_.has_input_weights(layer)) {
      weights.input = param(at.input_weights, {rows(), spec_.layer_input(layer)});
    }
    weights.recurrent = param(at.recurrent_weights, {rows(), spec_.hidden()});
    if (spec_.projection > 0) {
      weights.projection = param(at.projection, {spec_.projection, units_});
    }
    weights.input_bias = param(at.input_bias, {rows()});
    weights.recurrent_bias = param(at.recurrent_bias, {rows()});
    return weights;
  }

  // Returns the product of a and b, summed over one dimension of each. At the default
  // precision, devices with matrix units round operands to bfloat16. With `exact`, the operands
  // must already have bfloat16 values, so that rounding changes nothing.
  xla::XlaOp Gemm(xla::XlaOp a, int64_t a_dim, xla::XlaOp b, int64_t b_dim,
                  bool exact = false) const {
    xla::DotDimensionNumbers dims;
    dims.add_lhs_contracting_dimensions(a_dim);
    dims.add_rhs_contracting_dimensions(b_dim);
    xla::PrecisionConfig precision;
    const auto wanted = exact ? xla::PrecisionConfig::DEFAULT : xla::PrecisionConfig::HIGHEST;
    precision.add_operand_precision(wanted);
    precision.add_operand_precision(wanted);
    return xla::DotGeneral(Wide(a), Wide(b), dims, &precision);
  }

  // Flat reshapes [time, batch, width] to [time * batch, width]. Steps does the inverse.
  xla::XlaOp Flat(xla::XlaOp x, int64_t width) const {
    return xla::Reshape(x, {time_ * batch_, width});
  }
  xla::XlaOp Steps(xla::XlaOp x, int64_t width) const {
    return xla::Reshape(x, {time_, batch_, width});
  }

  // At reads one step of a sequence, from `column` on. Put writes one.
  xla::XlaOp At(xla::XlaOp sequence, xla::XlaOp t, int64_t column, int64_t width) const {
    const xla::XlaOp zero = xla::ZerosLike(t);
    const xla::XlaOp from = xla::ScalarLike(t, column);
    return xla::Reshape(xla::DynamicSlice(sequence, {t, zero, from}, {1, batch_, width}),
                        {batch_, width});
  }
  xla::XlaOp Put(xla::XlaOp sequence, xla::XlaOp t, int64_t column, xla::XlaOp step,
                 int64_t width) const {
    const xla::XlaOp zero = xla::ZerosLike(t);
    const xla::XlaOp from = xla::ScalarLike(t, column);
    return xla::DynamicUpdateSlice(sequence, xla::Reshape(step, {1, batch_, width}),
                                   {t, zero, from});
  }

  static xla::XlaOp Columns(xla::XlaOp x, int64_t dim, int64_t from, int64_t width) {
    return xla::SliceInDim(x, from, from + width, 1, dim);
  }
  xla::XlaOp Gate(xla::XlaOp gates, int64_t gate) const {
    return Columns(gates, 1, gate * units_, units_);
  }
  static xla::XlaOp Join(const Ops& gates, int64_t dim = 1) {
    return gates.size() == 1 ? gates[0] : xla::ConcatInDim(gates[0].builder(), gates, dim);
  }

  // Selects `yes` for sequences that have step t, and `no` for the other sequences. Both are
  // [batch, width].
  static xla::XlaOp Where(const std::optional<xla::XlaOp>& valid, xla::XlaOp yes, xla::XlaOp no,
                          int64_t batch, int64_t width) {
    if (!valid) return yes;
    return xla::Select(xla::BroadcastInDim(*valid, {batch, width}, {0}), yes, no);
  }
  xla::XlaOp Where(const std::optional<xla::XlaOp>& valid, xla::XlaOp yes, xla::XlaOp no,
                   int64_t width) const {
    return Where(valid, yes, no, batch_, width);
  }
  // Sets the steps past the length of each sequence to zero.
  xla::XlaOp ClearPadding(xla::XlaOp sequence, int64_t width) const {
    if (!operands_.lengths) return sequence;
    const xla::XlaOp t =
        xla::Iota(builder_, xla::ShapeUtil::MakeShape(xla::S32, {time_, batch_}), 0);
    const xla::XlaOp valid = xla::Lt(t, *operands_.lengths, {1});
    return xla::Select(xla::BroadcastInDim(valid, {time_, batch_, width}, {0, 1}), sequence,
                       xla::ZerosLike(sequence));
  }

  // Calls `body` for each step from 0 to time - 1. Its arguments are the values that `body`
  // returned for the previous step, and the fixed values.
  using Body = std::function<Ops(xla::XlaOp step, const Ops& carried, const Ops& fixed)>;
  absl::StatusOr<Ops> Loop(const char* name, const Ops& initial, const Ops& fixed,
                           const Body& body) const {
    if (time_ == 1) return body(xla::ConstantR0<int32_t>(builder_, 0), initial, fixed);
    Ops values = initial;
    values.insert(values.end(), fixed.begin(), fixed.end());
    const auto split = static_cast<int64_t>(initial.size());
    auto made = xla::ForEachIndex(
        time_, xla::S32,
        [&](xla::XlaOp step, absl::Span<const xla::XlaOp> now,
            xla::XlaBuilder*) -> absl::StatusOr<Ops> {
          const Ops rest(now.begin() + split, now.end());
          Ops next = body(step, Ops(now.begin(), now.begin() + split), rest);
          next.insert(next.end(), rest.begin(), rest.end());
          return next;
        },
        values, name, builder_);
    if (made.ok()) made->resize(initial.size());
    return made;
  }

  // Returns the time index of a step. Steps are counted in the order of the direction's forward
  // pass.
  xla::XlaOp TimeOf(int64_t dir, xla::XlaOp step) const {
    return dir == 0 ? step : xla::ScalarLike(step, time_ - 1) - step;
  }
  static std::optional<xla::XlaOp> Valid(bool masked, xla::XlaOp t, const Ops& fixed) {
    if (!masked) return std::nullopt;
    return xla::Gt(fixed.back(), t);  // The lengths are the last fixed value.
  }

  // Applies dropout to a layer's input. The mask is a function of the call, the layer and the
  // element, so the backward pass can compute the same mask again.
  xla::XlaOp Drop(xla::XlaOp x, xla::XlaOp nonce, int64_t layer) const {
    const double share = static_cast<double>(spec_.dropout);
    if (share >= 1) return xla::ZerosLike(x);
    constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;
    const int64_t width = spec_.layer_input(layer);
    const xla::XlaOp seed = Mix(Number(spec_.seed));
    const xla::XlaOp key =
        Mix(seed + nonce * Number(kStep) + Number(static_cast<uint64_t>(layer)));
    const xla::XlaOp element =
        xla::Iota(builder_, xla::ShapeUtil::MakeShape(xla::U64, {time_ * batch_ * width}), 0);
    const xla::XlaOp bits = Mix(key + element * Number(kStep));
    const auto threshold = static_cast<uint64_t>(share * 4294967296.0);
    const xla::XlaOp mask =
        xla::Reshape(xla::Ge(bits, Number(threshold << 32)), {time_, batch_, width});
    return xla::Select(mask, x * xla::ScalarLike(x, 1.0 / (1.0 - share)), xla::ZerosLike(x));
  }

  xla::XlaOp Number(uint64_t value) const { return xla::ConstantR0<uint64_t>(builder_, value); }

  xla::XlaOp JoinNonce(xla::XlaOp bytes) const {
    const xla::XlaOp wide = xla::ConvertElementType(bytes, xla::U64);
    xla::XlaOp nonce = Number(0);
    for (int i = 0; i < ReserveLayout::kWordElements; ++i) {
      const xla::XlaOp byte = xla::Reshape(xla::SliceInDim(wide, i, i + 1, 1, 0), {});
      nonce = nonce | (byte << Number(static_cast<uint64_t>(i * kByteBits)));
    }
    return nonce;
  }

  static constexpr int kByteBits = 8;

  const CallSpec spec_;
  const XlaOperands operands_;
  xla::XlaBuilder* const builder_;
  const xla::PrimitiveType type_;
  const xla::PrimitiveType compute_;
  const int64_t time_, batch_, units_;
  const ReserveLayout reserve_;
  const std::vector<LayerParams> layout_;

 private:
  // The finaliser of SplitMix64.
  xla::XlaOp Mix(xla::XlaOp x) const {
    const auto shifted = [&](xla::XlaOp value, uint64_t by) {
      return value ^ xla::ShiftRightLogical(value, Number(by));
    };
    x = shifted(x, 30) * Number(0xbf58476d1ce4e5b9u);
    x = shifted(x, 27) * Number(0x94d049bb133111ebu);
    return shifted(x, 31);
  }
};

}  // namespace opwright::rnn
