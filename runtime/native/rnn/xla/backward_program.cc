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

class BackwardProgram : Program {
 public:
  BackwardProgram(const CallSpec& spec, const XlaOperands& operands, const XlaResults& results,
                  const XlaResults& backprops, XlaBuilder* builder)
      : Program(spec, operands, builder), results_(results), backprops_(backprops) {}

  absl::StatusOr<XlaGradients> Build() {
    if (spec_.drops()) {
      nonce_ = JoinNonce(xla::SliceInDim(results_.reserve, ReserveLayout::kWordElements,
                                         ReserveLayout::kHeaderElements, 1, 0));
    }
    weights_.resize(layout_.size());
    biases_.resize(layout_.size());
    dh_.resize(layout_.size());
    dc_.resize(layout_.size());
    XlaOp dy = Wide(Sequence(backprops_.output));
    for (int64_t layer = spec_.layers - 1; layer >= 0; --layer) {
      auto dx = Layer(layer, dy);
      if (!dx.ok()) return dx.status();
      dy = *dx;
    }
    XlaGradients gradients;
    gradients.input = Sequence(Narrow(dy));
    gradients.input_h = JoinStates(dh_, spec_.hidden());
    if (lstm()) gradients.input_c = JoinStates(dc_, units_);
    Ops parts;
    for (const std::vector<Ops>* all : {&weights_, &biases_}) {
      for (const Ops& of_layer : *all) {
        parts.insert(parts.end(), of_layer.begin(), of_layer.end());
      }
    }
    gradients.params = Join(parts, 0);
    return gradients;
  }

 private:
  // Returns one array of the reserve as sequences. The array starts at element `begin`.
  XlaOp Saved(int64_t begin, int64_t width) const {
    const int64_t size = time_ * batch_ * width;
    return Steps(xla::SliceInDim(results_.reserve, begin, begin + size, 1, 0), width);
  }
  XlaOp Gates(int64_t pseudo) const {
    return Saved(reserve_.gates + pseudo * time_ * batch_ * saved_width(), saved_width());
  }
  XlaOp CellsOf(int64_t pseudo) const {
    return Saved(reserve_.cells + pseudo * time_ * batch_ * units_, units_);
  }
  XlaOp Output(int64_t layer) const {
    if (layer == spec_.layers - 1) return Sequence(results_.output);
    return Saved(reserve_.hidden + layer * time_ * batch_ * spec_.width(), spec_.width());
  }

  // Returns the state before each step of a direction. This is `first` before the first step.
  // Before later steps it is the state of the previous step in `states`.
  XlaOp Before(int64_t dir, XlaOp states, XlaOp first, int64_t width) const {
    const XlaOp end = xla::Reshape(first, {1, batch_, width});
    if (time_ == 1) return end;
    const XlaOp rest = dir == 0 ? xla::SliceInDim(states, 0, time_ - 1, 1, 0)
                                : xla::SliceInDim(states, 1, time_, 1, 0);
    if (dir == 0) return Join({end, rest}, 0);
    const XlaOp before = Join({rest, end}, 0);
    return operands_.lengths ? BeginAtLengths(before, first, width) : before;
  }
  // In reverse, a sequence begins with its last time. The step before that is padding, so the
  // state before it is `first`.
  XlaOp BeginAtLengths(XlaOp before, XlaOp first, int64_t width) const {
    const XlaOp t =
        xla::Iota(builder_, xla::ShapeUtil::MakeShape(xla::S32, {time_, batch_}), 0);
    const XlaOp last = *operands_.lengths - xla::ScalarLike(*operands_.lengths, 1);
    const std::vector<int64_t> dims{time_, batch_, width};
    return xla::Select(xla::BroadcastInDim(xla::Eq(t, last, {1}), dims, {0, 1}),
                       xla::BroadcastInDim(first, dims, {1, 2}), before);
  }

  // The values that stay constant in the loop over one direction's steps.
  struct Direction {
    LayerWeights weights;
    XlaOp y;         // [time, batch, hidden], in the type of storage.
    XlaOp h_before;  // [time, batch, hidden], in the type of computation.
    XlaOp gates, cells, c_before;
  };

  Direction Prepare(int64_t layer, int64_t dir, XlaOp output) const {
    const int64_t pseudo = layer * spec_.dirs() + dir;
    const int64_t hidden = spec_.hidden();
    Direction direction;
    direction.weights = WeightsOf(layer, dir);
    direction.y = Columns(output, 2, dir * hidden, hidden);
    const XlaOp h = StateOf(operands_.input_h, pseudo, hidden);
    direction.h_before = Before(dir, Wide(direction.y), h, hidden);
    if (saved_width() > 0) direction.gates = Gates(pseudo);
    if (lstm()) {
      direction.cells = CellsOf(pseudo);
      const XlaOp c = StateOf(operands_.input_c, pseudo, units_);
      direction.c_before = Before(dir, direction.cells, Narrow(c), units_);
    }
    return direction;
  }

  absl::StatusOr<XlaOp> Layer(int64_t layer, XlaOp dy) {
    const XlaOp output = Output(layer);
    std::vector<Direction> directions;
    // For each direction, the loop carries dh, dc, and the gradients of the pre-activations and
    // of the projection's output. The fixed values are dy and each direction's weights and
    // saved values.
    Ops carried, fixed{dy};
    for (int64_t dir = 0; dir < spec_.dirs(); ++dir) {
      const int64_t pseudo = layer * spec_.dirs() + dir;
      const int64_t hidden = spec_.hidden();
      directions.push_back(Prepare(layer, dir, output));
      const Direction& direction = directions.back();
      carried.push_back(StateOf(backprops_.output_h, pseudo, hidden));
      if (lstm()) carried.push_back(StateOf(backprops_.output_c, pseudo, units_));
      carried.push_back(Zeros(compute_, {time_, batch_, rows()}));
      if (spec_.projection > 0) carried.push_back(Zeros(compute_, {time_, batch_, hidden}));
      fixed.push_back(Wide(direction.weights.recurrent));
      if (spec_.projection > 0) fixed.push_back(Wide(direction.weights.projection));
      if (lstm()) {
        fixed.push_back(direction.gates);
        fixed.push_back(direction.cells);
        fixed.push_back(direction.c_before);
      } else if (gru()) {
        fixed.push_back(direction.gates);
        fixed.push_back(direction.h_before);
      } else {
        fixed.push_back(direction.y);
      }
    }
    if (operands_.lengths) fixed.push_back(*operands_.lengths);

    const auto made = Loop("cudnn_rnn_backprop", carried, fixed,
                           [&](XlaOp step, const Ops& before, const Ops& given) {
                             return Step(step, before, given);
                           });
    if (!made.ok()) return made.status();

    const XlaOp x = LayerInput(layer);
    const XlaOp* value = made->data();
    XlaOp dx;
    for (int64_t dir = 0; dir < spec_.dirs(); ++dir) {
      const int64_t pseudo = layer * spec_.dirs() + dir;
      dh_[pseudo] = *value++;
      if (lstm()) dc_[pseudo] = *value++;
      const XlaOp preactivation_grads = *value++;
      const XlaOp dprojected = spec_.projection > 0 ? *value++ : XlaOp();
      const XlaOp part =
          Finish(layer, pseudo, directions[dir], x, preactivation_grads, dprojected);
      dx = dir == 0 ? part : dx + part;
    }
    return spec_.drops() && layer > 0 ? Drop(dx, nonce_, layer) : dx;
  }

  XlaOp LayerInput(int64_t layer) const {
    if (layer == 0) return ClearPadding(Wide(Sequence(operands_.input)), spec_.input_size);
    const XlaOp x = Wide(Output(layer - 1));
    return spec_.drops() ? Drop(x, nonce_, layer) : x;
  }

  // Runs the backward pass of one step, for each direction.
  Ops Step(XlaOp step, const Ops& before, const Ops& fixed) const {
    const XlaOp* value = before.data();
    const XlaOp* given = fixed.data();
    const XlaOp dy = *given++;
    const int64_t hidden = spec_.hidden();
    Ops after;
    for (int64_t dir = 0; dir < spec_.dirs(); ++dir) {
      const XlaOp t = TimeOf(1 - dir, step);
      const auto valid = Valid(operands_.lengths.has_value(), t, fixed);
      const XlaOp dh = *value++;
      const XlaOp dc = lstm() ? *value++ : XlaOp();
      const XlaOp preactivation_grads = *value++;
      const XlaOp recurrent = *given++;
      const XlaOp dout = dh + At(dy, t, dir * hidden, hidden);
      const XlaOp dfull = spec_.projection > 0 ? Gemm(dout, 1, *given++, 0) : dout;
      const CellGradients made = CellBack(t, dfull, dc, &given);

      const XlaOp dh_before = Gemm(made.of_hidden, 1, recurrent, 0);
      after.push_back(Where(valid, gru() ? dh_before + made.direct : dh_before, dh, hidden));
      if (lstm()) after.push_back(Where(valid, made.dc, dc, units_));
      const XlaOp of_input = Where(valid, made.of_input, xla::ZerosLike(made.of_input), rows());
      after.push_back(Put(preactivation_grads, t, 0, of_input, rows()));
      if (spec_.projection > 0) {
        const XlaOp saved = Where(valid, dout, xla::ZerosLike(dout), hidden);
        after.push_back(Put(*value++, t, 0, saved, hidden));
      }
    }
    return after;
  }

  struct CellGradients {
    XlaOp of_input;  // Gradient of the input's part of the gates' pre-activations.
    // Gradient of the hidden state's part. It differs from of_input for a GRU.
    XlaOp of_hidden;
    XlaOp dc;  // Gradient of the previous cell state, only for an LSTM.
    // The part of the previous state's gradient that does not pass through the gates, only for
    // a GRU.
    XlaOp direct;
  };

  CellGradients CellBack(XlaOp t, XlaOp dh, XlaOp dc, const XlaOp** given) const {
    const XlaOp one = xla::ScalarLike(dh, 1);
    const auto slope = [&](XlaOp sigmoid) { return sigmoid * (one - sigmoid); };
    CellGradients made;
    if (lstm()) {
      const XlaOp gates = Wide(At(*(*given)++, t, 0, saved_width()));
      const XlaOp tanh_c = xla::Tanh(Wide(At(*(*given)++, t, 0, units_)));
      const XlaOp c_before = Wide(At(*(*given)++, t, 0, units_));
      const XlaOp i = Gate(gates, 0), f = Gate(gates, 1), g = Gate(gates, 2),
                  o = Gate(gates, 3);
      const XlaOp all = dc + dh * o * (one - tanh_c * tanh_c);
      made.of_input = Join({all * g * slope(i), all * c_before * slope(f),
                            all * i * (one - g * g), dh * tanh_c * slope(o)});
      made.of_hidden = made.of_input;
      made.dc = all * f;
    } else if (gru()) {
      const XlaOp gates = Wide(At(*(*given)++, t, 0, saved_width()));
      const XlaOp h = At(*(*given)++, t, 0, units_);
      const XlaOp n = Gate(gates, 0), r = Gate(gates, 1), z = Gate(gates, 2);
      const XlaOp dn = dh * (one - z) * (one - n * n);
      const XlaOp dz = dh * (h - n) * slope(z);
      const XlaOp dr = dn * Gate(gates, 3) * slope(r);
      made.of_input = Join({dr, dz, dn});
      made.of_hidden = Join({dr, dz, dn * r});
      made.direct = dh * z;
    } else {
      const XlaOp y = Wide(At(*(*given)++, t, 0, units_));
      made.of_input = spec_.cell == Cell::kTanh
                          ? dh * (one - y * y)
                          : xla::Select(xla::Gt(y, xla::ZerosLike(y)), dh, xla::ZerosLike(dh));
      made.of_hidden = made.of_input;
    }
    return made;
  }

  // Computes the gradients that do not depend on the order of steps. Each is one product over
  // all steps. Appends the gradients of a direction's parameters to weights_ and biases_.
  // Returns the gradient of the direction's input.
  XlaOp Finish(int64_t layer, int64_t pseudo, const Direction& direction, XlaOp x,
               XlaOp preactivation_grads, XlaOp dprojected) {
    const int64_t in = spec_.layer_input(layer);
    const int64_t hidden = spec_.hidden();
    const XlaOp of_input = Flat(preactivation_grads, rows());
    const XlaOp of_hidden =
        gru() ? Flat(OfHidden(preactivation_grads, direction.gates), rows()) : of_input;
    if (spec_.has_input_weights(layer)) {
      const XlaOp dw = Gemm(of_input, 0, Flat(x, in), 0);
      weights_[pseudo].push_back(Packed(dw, rows() * in));
    }
    const XlaOp dr = Gemm(of_hidden, 0, Flat(direction.h_before, hidden), 0);
    weights_[pseudo].push_back(Packed(dr, rows() * hidden));
    if (spec_.projection > 0) {
      const XlaOp o = Wide(Columns(direction.gates, 2, 3 * units_, units_));
      const XlaOp full = Flat(o * xla::Tanh(Wide(direction.cells)), units_);
      const XlaOp dp = Gemm(Flat(dprojected, hidden), 0, full, 0);
      weights_[pseudo].push_back(Packed(dp, hidden * units_));
    }
    biases_[pseudo].push_back(Narrow(SumRows(of_input)));
    biases_[pseudo].push_back(gru() ? Narrow(SumRows(of_hidden)) : biases_[pseudo][0]);

    if (spec_.has_input_weights(layer)) {
      return Steps(Gemm(of_input, 1, direction.weights.input, 0), in);
    }
    XlaOp dx = Columns(preactivation_grads, 2, 0, units_);
    for (int64_t gate = 1; gate < spec_.gates(); ++gate) {
      dx = dx + Columns(preactivation_grads, 2, gate * units_, units_);
    }
    return dx;
  }

  XlaOp OfHidden(XlaOp preactivation_grads, XlaOp gates) const {
    const XlaOp r = Wide(Columns(gates, 2, units_, units_));
    return Join({Columns(preactivation_grads, 2, 0, 2 * units_),
                 Columns(preactivation_grads, 2, 2 * units_, units_) * r},
                2);
  }

  XlaOp Packed(XlaOp matrix, int64_t size) const {
    return xla::Reshape(Narrow(matrix), {size});
  }
  XlaOp SumRows(XlaOp x) const {
    return xla::Reduce(x, xla::Zero(builder_, compute_),
                       xla::CreateScalarAddComputation(compute_, builder_), {0});
  }

  const XlaResults results_;
  const XlaResults backprops_;
  XlaOp nonce_;
  // By pseudo-layer. The parts of one pseudo-layer are flat and in the order of the packed
  // vector.
  std::vector<Ops> weights_, biases_;
  Ops dh_, dc_;  // Indexed by pseudo-layer.
};

}  // namespace

absl::StatusOr<XlaGradients> BuildBackward(const CallSpec& spec, const XlaOperands& operands,
                                           const XlaResults& results,
                                           const XlaResults& backprops, XlaBuilder* builder) {
  return BackwardProgram(spec, operands, results, backprops, builder).Build();
}

}  // namespace opwright::rnn
