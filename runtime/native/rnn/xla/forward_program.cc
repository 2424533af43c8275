#include <cstdint>
#include <vector>

#include "base/xla/builder.h"
#include "rnn/layout.h"
#include "rnn/xla/program.h"
#include "rnn/xla/program_base.h"
#include "xla/shape_util.h"

namespace opwright::rnn {

using xla::XlaBuilder;
using xla::XlaOp;

namespace {

class ForwardProgram : Program {
 public:
  using Program::Program;

  absl::StatusOr<XlaResults> Build() {
    XlaOp x = Sequence(operands_.input);
    if (spec_.drops()) DrawNonce();
    for (int64_t layer = 0; layer < spec_.layers; ++layer) {
      auto y = Layer(layer, x);
      if (!y.ok()) return y.status();
      x = *y;
      if (layer + 1 < spec_.layers) hidden_.push_back(Reshaped(x));
    }
    XlaResults results;
    results.output = Sequence(x);
    results.output_h = JoinStates(h_, spec_.hidden());
    if (lstm()) results.output_c = JoinStates(c_, units_);
    if (spec_.training) results.reserve = MakeReserve();
    return results;
  }

 private:
  void DrawNonce() {
    if (operands_.resets_dropout) {
      nonce_bytes_ = Zeros(xla::U32, {ReserveLayout::kWordElements});
      nonce_ = Number(0);
      return;
    }
    const auto number = [&](uint32_t value) {
      return xla::ConstantR0<uint32_t>(builder_, value);
    };
    nonce_bytes_ =
        xla::RngUniform(number(0), number(1 << kByteBits),
                        xla::ShapeUtil::MakeShape(xla::U32, {ReserveLayout::kWordElements}));
    nonce_ = JoinNonce(nonce_bytes_);
  }

  XlaOp Reshaped(XlaOp x) const { return xla::Reshape(x, {time_ * batch_ * spec_.width()}); }

  XlaOp MakeReserve() const {
    const uint64_t fingerprint =
        Fingerprint(spec_, xla::ShapeUtil::ByteSizeOfPrimitiveType(type_));
    uint32_t known[ReserveLayout::kWordElements];
    for (int i = 0; i < ReserveLayout::kWordElements; ++i) {
      known[i] = static_cast<uint32_t>(fingerprint >> (kByteBits * i)) & 0xff;
    }
    Ops arrays;
    arrays.push_back(Narrow(xla::ConstantR1<uint32_t>(builder_, known)));
    arrays.push_back(spec_.drops() ? Narrow(nonce_bytes_)
                                   : Zeros(type_, {ReserveLayout::kWordElements}));
    arrays.insert(arrays.end(), gates_.begin(), gates_.end());
    arrays.insert(arrays.end(), cells_.begin(), cells_.end());
    arrays.insert(arrays.end(), hidden_.begin(), hidden_.end());
    return Join(arrays, 0);
  }

  // Computes, for all steps at once, the part of the gates' pre-activations that does not
  // depend on the previous step.
  XlaOp InputPreactivations(int64_t layer, const LayerWeights& weights, XlaOp x) const {
    XlaOp preactivations;
    if (spec_.has_input_weights(layer)) {
      const int64_t in = spec_.layer_input(layer);
      const bool exact = type_ == xla::BF16 && !(spec_.drops() && layer > 0);
      preactivations = Steps(Gemm(Flat(x, in), 1, weights.input, 1, exact), rows());
    } else {
      preactivations = Join(Ops(spec_.gates(), Wide(x)), 2);
    }
    return xla::Add(preactivations, Wide(weights.input_bias), {2});
  }

  absl::StatusOr<XlaOp> Layer(int64_t layer, XlaOp x) {
    if (spec_.drops() && layer > 0) x = Drop(Wide(x), nonce_, layer);
    // The loop carries y. For each direction, it also carries h and, if there are any, c, the
    // saved gates and the saved cell states.
    Ops carried{Zeros(type_, {time_, batch_, spec_.width()})}, fixed;
    for (int64_t dir = 0; dir < spec_.dirs(); ++dir) {
      const int64_t pseudo = layer * spec_.dirs() + dir;
      const LayerWeights weights = WeightsOf(layer, dir);
      carried.push_back(StateOf(operands_.input_h, pseudo, spec_.hidden()));
      if (lstm()) carried.push_back(StateOf(operands_.input_c, pseudo, units_));
      if (SavesGates()) carried.push_back(Zeros(type_, {time_, batch_, saved_width()}));
      if (SavesCells()) carried.push_back(Zeros(type_, {time_, batch_, units_}));
      fixed.push_back(InputPreactivations(layer, weights, x));
      fixed.push_back(Wide(weights.recurrent));
      fixed.push_back(Wide(weights.recurrent_bias));
      if (spec_.projection > 0) fixed.push_back(Wide(weights.projection));
    }
    if (operands_.lengths) fixed.push_back(*operands_.lengths);

    const auto made =
        Loop("cudnn_rnn", carried, fixed, [&](XlaOp step, const Ops& before, const Ops& given) {
          return Step(step, before, given);
        });
    if (!made.ok()) return made.status();
    const XlaOp* value = made->data();
    const XlaOp y = *value++;
    for (int64_t dir = 0; dir < spec_.dirs(); ++dir) {
      h_.push_back(*value++);
      if (lstm()) c_.push_back(*value++);
      const int64_t steps = time_ * batch_;
      if (SavesGates()) gates_.push_back(xla::Reshape(*value++, {steps * saved_width()}));
      if (SavesCells()) cells_.push_back(xla::Reshape(*value++, {steps * units_}));
    }
    return y;
  }

  bool SavesGates() const { return spec_.training && saved_width() > 0; }
  bool SavesCells() const { return spec_.training && lstm(); }

  // Runs one step of each direction.
  Ops Step(XlaOp step, const Ops& before, const Ops& fixed) const {
    const XlaOp* value = before.data();
    const XlaOp* given = fixed.data();
    XlaOp y = *value++;
    Ops after;
    for (int64_t dir = 0; dir < spec_.dirs(); ++dir) {
      const XlaOp t = TimeOf(dir, step);
      const auto valid = Valid(operands_.lengths.has_value(), t, fixed);
      const int64_t hidden = spec_.hidden();
      const XlaOp h = *value++;
      const XlaOp c = lstm() ? *value++ : XlaOp();
      const XlaOp of_input = At(*given++, t, 0, rows());
      const XlaOp product = Gemm(h, 1, *given++, 1);
      const XlaOp of_hidden = xla::Add(product, *given++, {1});
      CellStep made = Cells(of_input, of_hidden, h, c);
      if (spec_.projection > 0) made.h = Gemm(made.h, 1, *given++, 1);

      y = Put(y, t, dir * hidden, Narrow(Where(valid, made.h, xla::ZerosLike(h), hidden)),
              hidden);
      after.push_back(Where(valid, made.h, h, hidden));
      if (lstm()) {
        made.c = Where(valid, made.c, c, units_);
        after.push_back(made.c);
      }
      // Padding is cleared, because otherwise a NaN in the padding would remain NaN when it is
      // multiplied by zero.
      if (SavesGates()) {
        const XlaOp saved = Where(valid, made.saved, xla::ZerosLike(made.saved), saved_width());
        after.push_back(Put(*value++, t, 0, Narrow(saved), saved_width()));
      }
      if (SavesCells()) {
        const XlaOp saved = Where(valid, made.c, xla::ZerosLike(made.c), units_);
        after.push_back(Put(*value++, t, 0, Narrow(saved), units_));
      }
    }
    after.insert(after.begin(), y);
    return after;
  }

  struct CellStep {
    XlaOp h;      // Hidden state before the projection.
    XlaOp c;      // Cell state, only for an LSTM.
    XlaOp saved;  // The gates that the reserve contains. See ReserveLayout.
  };

  CellStep Cells(XlaOp of_input, XlaOp of_hidden, XlaOp h, XlaOp c) const {
    CellStep made;
    if (lstm()) {
      const XlaOp a = of_input + of_hidden;
      const XlaOp i = xla::Logistic(Gate(a, 0)), f = xla::Logistic(Gate(a, 1));
      const XlaOp g = xla::Tanh(Gate(a, 2)), o = xla::Logistic(Gate(a, 3));
      made.c = f * c + i * g;
      made.h = o * xla::Tanh(made.c);
      made.saved = Join({i, f, g, o});
    } else if (gru()) {
      const XlaOp of_n = Gate(of_hidden, 2);
      const XlaOp r = xla::Logistic(Gate(of_input, 0) + Gate(of_hidden, 0));
      const XlaOp z = xla::Logistic(Gate(of_input, 1) + Gate(of_hidden, 1));
      const XlaOp n = xla::Tanh(Gate(of_input, 2) + r * of_n);
      made.h = (xla::ScalarLike(z, 1) - z) * n + z * h;
      made.saved = Join({n, r, z, of_n});
    } else {
      const XlaOp a = of_input + of_hidden;
      made.h = spec_.cell == Cell::kTanh ? xla::Tanh(a) : xla::Max(a, xla::ZerosLike(a));
    }
    return made;
  }

  XlaOp nonce_bytes_, nonce_;
  Ops h_, c_;                   // Indexed by pseudo-layer.
  Ops gates_, cells_, hidden_;  // Arrays of the reserve.
};

}  // namespace

absl::StatusOr<XlaResults> BuildForward(const CallSpec& spec, const XlaOperands& operands,
                                        XlaBuilder* builder) {
  return ForwardProgram(spec, operands, builder).Build();
}

}  // namespace opwright::rnn
