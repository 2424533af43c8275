#include "rnn/xla/program.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "rnn/layout.h"
#include "xla/shape_util.h"

namespace opwright::rnn {
namespace {

using xla::PrimitiveType;
using xla::XlaBuilder;
using xla::XlaOp;

using Ops = std::vector<XlaOp>;

constexpr int kByteBits = 8;

// One layer and direction, in the type of storage.
struct LayerWeights {
  XlaOp input;           // [gates * units, layer_input], unless skipped.
  XlaOp recurrent;       // [gates * units, hidden]
  XlaOp projection;      // [projection, units], if there is one.
  XlaOp input_bias;      // [gates * units]
  XlaOp recurrent_bias;  // [gates * units]
};

// What both passes need. Sequences are [time, batch, width] inside.
class Program {
 public:
  Program(const CallSpec& spec, const XlaOperands& operands, XlaBuilder* builder)
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

  XlaOp Wide(XlaOp x) const { return xla::ConvertElementType(x, compute_); }
  XlaOp Narrow(XlaOp x) const { return xla::ConvertElementType(x, type_); }
  XlaOp Zeros(PrimitiveType type, std::vector<int64_t> dims) const {
    return xla::Broadcast(xla::Zero(builder_, type), dims);
  }

  // Between the caller's layout and [time, batch, width], either way.
  XlaOp Sequence(XlaOp x) const { return spec_.time_major ? x : xla::Transpose(x, {1, 0, 2}); }

  // One pseudo-layer of a state [layers * dirs, batch, size], in the type of computation.
  XlaOp StateOf(XlaOp states, int64_t pseudo, int64_t size) const {
    const XlaOp one = xla::SliceInDim(states, pseudo, pseudo + 1, 1, 0);
    return Wide(xla::Reshape(one, {batch_, size}));
  }
  XlaOp JoinStates(const Ops& states, int64_t size) const {
    Ops made;
    for (const XlaOp state : states) {
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

  // a and b multiplied and summed over a dimension of each. Processors with matrix units round
  // the operands to bfloat16 unless told not to; `exact` ones are bfloat16 already.
  XlaOp Gemm(XlaOp a, int64_t a_dim, XlaOp b, int64_t b_dim, bool exact = false) const {
    xla::DotDimensionNumbers dims;
    dims.add_lhs_contracting_dimensions(a_dim);
    dims.add_rhs_contracting_dimensions(b_dim);
    xla::PrecisionConfig precision;
    const auto wanted = exact ? xla::PrecisionConfig::DEFAULT : xla::PrecisionConfig::HIGHEST;
    precision.add_operand_precision(wanted);
    precision.add_operand_precision(wanted);
    return xla::DotGeneral(Wide(a), Wide(b), dims, &precision);
  }

  // [time, batch, width] as [time * batch, width], and back.
  XlaOp Flat(XlaOp x, int64_t width) const { return xla::Reshape(x, {time_ * batch_, width}); }
  XlaOp Steps(XlaOp x, int64_t width) const { return xla::Reshape(x, {time_, batch_, width}); }

  // One step of a sequence: read, and written at a column.
  XlaOp At(XlaOp sequence, XlaOp t, int64_t column, int64_t width) const {
    const XlaOp zero = xla::ZerosLike(t);
    const XlaOp from = xla::ScalarLike(t, column);
    return xla::Reshape(xla::DynamicSlice(sequence, {t, zero, from}, {1, batch_, width}),
                        {batch_, width});
  }
  XlaOp Put(XlaOp sequence, XlaOp t, int64_t column, XlaOp step, int64_t width) const {
    const XlaOp zero = xla::ZerosLike(t);
    const XlaOp from = xla::ScalarLike(t, column);
    return xla::DynamicUpdateSlice(sequence, xla::Reshape(step, {1, batch_, width}),
                                   {t, zero, from});
  }

  static XlaOp Columns(XlaOp x, int64_t dim, int64_t from, int64_t width) {
    return xla::SliceInDim(x, from, from + width, 1, dim);
  }
  XlaOp Gate(XlaOp gates, int64_t gate) const {
    return Columns(gates, 1, gate * units_, units_);
  }
  static XlaOp Join(const Ops& gates, int64_t dim = 1) {
    return gates.size() == 1 ? gates[0] : xla::ConcatInDim(gates[0].builder(), gates, dim);
  }

  // Where sequences have step t, `yes`; elsewhere `no`. Both are [batch, width].
  static XlaOp Where(const std::optional<XlaOp>& valid, XlaOp yes, XlaOp no, int64_t batch,
                     int64_t width) {
    if (!valid) return yes;
    return xla::Select(xla::BroadcastInDim(*valid, {batch, width}, {0}), yes, no);
  }
  XlaOp Where(const std::optional<XlaOp>& valid, XlaOp yes, XlaOp no, int64_t width) const {
    return Where(valid, yes, no, batch_, width);
  }
  // The same for whole sequences, with zeros elsewhere.
  XlaOp ClearPadding(XlaOp sequence, int64_t width) const {
    if (!operands_.lengths) return sequence;
    const XlaOp t =
        xla::Iota(builder_, xla::ShapeUtil::MakeShape(xla::S32, {time_, batch_}), 0);
    const XlaOp valid = xla::Lt(t, *operands_.lengths, {1});
    return xla::Select(xla::BroadcastInDim(valid, {time_, batch_, width}, {0, 1}), sequence,
                       xla::ZerosLike(sequence));
  }

  // Calls `body` with each number from 0 to time - 1, with what it made the time before, and
  // with what never changes.
  using Body = std::function<Ops(XlaOp step, const Ops& carried, const Ops& fixed)>;
  absl::StatusOr<Ops> Loop(const char* name, const Ops& initial, const Ops& fixed,
                           const Body& body) const {
    if (time_ == 1) return body(xla::ConstantR0<int32_t>(builder_, 0), initial, fixed);
    Ops values = initial;
    values.insert(values.end(), fixed.begin(), fixed.end());
    const auto split = static_cast<int64_t>(initial.size());
    auto made = xla::ForEachIndex(
        time_, xla::S32,
        [&](XlaOp step, absl::Span<const XlaOp> now, XlaBuilder*) -> absl::StatusOr<Ops> {
          const Ops rest(now.begin() + split, now.end());
          Ops next = body(step, Ops(now.begin(), now.begin() + split), rest);
          next.insert(next.end(), rest.begin(), rest.end());
          return next;
        },
        values, name, builder_);
    if (made.ok()) made->resize(initial.size());
    return made;
  }

  // The step's place in time, in the order in which a direction goes forwards.
  XlaOp TimeOf(int64_t dir, XlaOp step) const {
    return dir == 0 ? step : xla::ScalarLike(step, time_ - 1) - step;
  }
  static std::optional<XlaOp> Valid(bool masked, XlaOp t, const Ops& fixed) {
    if (!masked) return std::nullopt;
    return xla::Gt(fixed.back(), t);  // Lengths come last.
  }

  // Which elements of a layer's input dropout keeps: a function of the call, the layer and the
  // element, so that the backward pass finds the same ones.
  XlaOp Drop(XlaOp x, XlaOp nonce, int64_t layer) const {
    const double share = static_cast<double>(spec_.dropout);
    if (share >= 1) return xla::ZerosLike(x);
    constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;
    const int64_t width = spec_.layer_input(layer);
    const XlaOp seed = Mix(Number(spec_.seed));
    const XlaOp key = Mix(seed + nonce * Number(kStep) + Number(static_cast<uint64_t>(layer)));
    const XlaOp element =
        xla::Iota(builder_, xla::ShapeUtil::MakeShape(xla::U64, {time_ * batch_ * width}), 0);
    const XlaOp bits = Mix(key + element * Number(kStep));
    const auto threshold = static_cast<uint64_t>(share * 4294967296.0);
    const XlaOp kept =
        xla::Reshape(xla::Ge(bits, Number(threshold << 32)), {time_, batch_, width});
    return xla::Select(kept, x * xla::ScalarLike(x, 1.0 / (1.0 - share)), xla::ZerosLike(x));
  }

  XlaOp Number(uint64_t value) const { return xla::ConstantR0<uint64_t>(builder_, value); }

  XlaOp JoinNonce(XlaOp bytes) const {
    const XlaOp wide = xla::ConvertElementType(bytes, xla::U64);
    XlaOp nonce = Number(0);
    for (int i = 0; i < ReserveLayout::kWordElements; ++i) {
      const XlaOp byte = xla::Reshape(xla::SliceInDim(wide, i, i + 1, 1, 0), {});
      nonce = nonce | (byte << Number(static_cast<uint64_t>(i * kByteBits)));
    }
    return nonce;
  }

  const CallSpec spec_;
  const XlaOperands operands_;
  XlaBuilder* const builder_;
  const PrimitiveType type_;
  const PrimitiveType compute_;
  const int64_t time_, batch_, units_;
  const ReserveLayout reserve_;
  const std::vector<LayerParams> layout_;

 private:
  // The finaliser of SplitMix64.
  XlaOp Mix(XlaOp x) const {
    const auto shifted = [&](XlaOp value, uint64_t by) {
      return value ^ xla::ShiftRightLogical(value, Number(by));
    };
    x = shifted(x, 30) * Number(0xbf58476d1ce4e5b9u);
    x = shifted(x, 27) * Number(0x94d049bb133111ebu);
    return shifted(x, 31);
  }
};

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

  // The part of the gates' pre-activations that does not wait for the step before, for all
  // steps.
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
    // Carried: y, then of each direction h, c, gates and cells, as far as there are such.
    Ops carried{Zeros(type_, {time_, batch_, spec_.width()})}, fixed;
    for (int64_t dir = 0; dir < spec_.dirs(); ++dir) {
      const int64_t pseudo = layer * spec_.dirs() + dir;
      const LayerWeights weights = WeightsOf(layer, dir);
      carried.push_back(StateOf(operands_.input_h, pseudo, spec_.hidden()));
      if (lstm()) carried.push_back(StateOf(operands_.input_c, pseudo, units_));
      if (SavesGates()) carried.push_back(Zeros(type_, {time_, batch_, saved_width()}));
      if (KeepsCells()) carried.push_back(Zeros(type_, {time_, batch_, units_}));
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
      if (KeepsCells()) cells_.push_back(xla::Reshape(*value++, {steps * units_}));
    }
    return y;
  }

  bool SavesGates() const { return spec_.training && saved_width() > 0; }
  bool KeepsCells() const { return spec_.training && lstm(); }

  // One step of each direction.
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
      Made made = Cells(of_input, of_hidden, h, c);
      if (spec_.projection > 0) made.h = Gemm(made.h, 1, *given++, 1);

      y = Put(y, t, dir * hidden, Narrow(Where(valid, made.h, xla::ZerosLike(h), hidden)),
              hidden);
      after.push_back(Where(valid, made.h, h, hidden));
      if (lstm()) {
        made.c = Where(valid, made.c, c, units_);
        after.push_back(made.c);
      }
      // What padding holds is cleared, lest it meet a zero in a product.
      if (SavesGates()) {
        const XlaOp saved = Where(valid, made.saved, xla::ZerosLike(made.saved), saved_width());
        after.push_back(Put(*value++, t, 0, Narrow(saved), saved_width()));
      }
      if (KeepsCells()) {
        const XlaOp saved = Where(valid, made.c, xla::ZerosLike(made.c), units_);
        after.push_back(Put(*value++, t, 0, Narrow(saved), units_));
      }
    }
    after.insert(after.begin(), y);
    return after;
  }

  struct Made {
    XlaOp h;      // Before its projection.
    XlaOp c;      // LSTM.
    XlaOp saved;  // As the ReserveLayout has them.
  };

  Made Cells(XlaOp of_input, XlaOp of_hidden, XlaOp h, XlaOp c) const {
    Made made;
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
  Ops h_, c_;                   // By pseudo-layer.
  Ops gates_, cells_, hidden_;  // For the reserve.
};

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
  // One array of the reserve as sequences: `begin` counts elements.
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

  // What each step of a direction found: the state before a sequence's first step is `first`,
  // later ones are those that the step before left in `states`.
  XlaOp Before(int64_t dir, XlaOp states, XlaOp first, int64_t width) const {
    const XlaOp end = xla::Reshape(first, {1, batch_, width});
    if (time_ == 1) return end;
    const XlaOp rest = dir == 0 ? xla::SliceInDim(states, 0, time_ - 1, 1, 0)
                                : xla::SliceInDim(states, 1, time_, 1, 0);
    if (dir == 0) return Join({end, rest}, 0);
    const XlaOp before = Join({rest, end}, 0);
    return operands_.lengths ? BeginAtLengths(before, first, width) : before;
  }
  // In reverse, sequences begin at their lengths, where the state before is padding.
  XlaOp BeginAtLengths(XlaOp before, XlaOp first, int64_t width) const {
    const XlaOp t =
        xla::Iota(builder_, xla::ShapeUtil::MakeShape(xla::S32, {time_, batch_}), 0);
    const XlaOp last = *operands_.lengths - xla::ScalarLike(*operands_.lengths, 1);
    const std::vector<int64_t> dims{time_, batch_, width};
    return xla::Select(xla::BroadcastInDim(xla::Eq(t, last, {1}), dims, {0, 1}),
                       xla::BroadcastInDim(first, dims, {1, 2}), before);
  }

  // What is known of one direction before its loop.
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
    // Carried, of each direction: dh, dc, the gradients of its pre-activations, and of what
    // projection puts out. Fixed: dy; of each direction its weights and what its cell saved.
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

  // One step back of each direction.
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
      const Made made = CellBack(t, dfull, dc, &given);

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

  struct Made {
    XlaOp of_input;   // Gradients of the gates' pre-activations, by way of the input ...
    XlaOp of_hidden;  // ... and of the state, which differ for a GRU.
    XlaOp dc;         // LSTM: of the cell state before.
    XlaOp direct;     // GRU: of the state before, besides those of the pre-activations.
  };

  Made CellBack(XlaOp t, XlaOp dh, XlaOp dc, const XlaOp** given) const {
    const XlaOp one = xla::ScalarLike(dh, 1);
    const auto slope = [&](XlaOp sigmoid) { return sigmoid * (one - sigmoid); };
    Made made;
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

  // What needs no order of steps, in single products: the gradients of a direction's
  // parameters, which are carried, and of its input.
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
  std::vector<Ops> weights_, biases_;  // By pseudo-layer, flat and in order.
  Ops dh_, dc_;                        // By pseudo-layer.
};

}  // namespace

absl::StatusOr<XlaResults> BuildForward(const CallSpec& spec, const XlaOperands& operands,
                                        XlaBuilder* builder) {
  return ForwardProgram(spec, operands, builder).Build();
}

absl::StatusOr<XlaGradients> BuildBackward(const CallSpec& spec, const XlaOperands& operands,
                                           const XlaResults& results,
                                           const XlaResults& backprops, XlaBuilder* builder) {
  return BackwardProgram(spec, operands, results, backprops, builder).Build();
}

}  // namespace opwright::rnn
