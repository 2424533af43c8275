#include <utility>
#include <vector>

#include "rnn/packed_weights.h"
#include "rnn/plan.h"
#include "rnn/rnn.h"

namespace opwright::rnn {
namespace {

// The number of rows that one pass over the input's weights processes. It is large enough to
// hide the time to load the weights. It is small enough that the pre-activations stay in the
// cache.
constexpr int64_t kForwardChunkRows = 64;

// The largest number of rows of a call that reads the weights without packing them. For so few
// rows, packing would cost as much as the products.
constexpr int64_t kDirectRows = 2;

template <class T>
class ForwardPass {
 public:
  using S = Compute<T>;

  ForwardPass(const CallSpec& spec, const ForwardCall<T>& call, ExecutionContext& exec)
      : spec_(spec),
        call_(call),
        exec_(exec),
        kernels_(SelectKernels<T>()),
        layout_(ParamsLayout(spec)),
        plan_(spec, kernels_, exec, kForwardChunkRows),
        panels_(plan_.panels),
        projected_(plan_.projected),
        cuts_(plan_.PanelCuts(exec, panels_.count())),
        direct_(spec.time * spec.batch <= kDirectRows && spec.projection == 0 && !call.keras),
        packing_(spec, kernels_, direct_) {
    Allocate();
  }

  void Run() {
    Sequence<const T> from =
        Sequence<const T>::View(call_.input, spec_, spec_.time_major, spec_.input_size);
    for (int64_t layer = 0; layer < spec_.layers; ++layer) {
      Prepare(layer);
      const Sequence<T> to = Output(layer);
      const double operations =
          Operations(2, spec_.time, spec_.batch, spec_.dirs(), spec_.gates(), spec_.units,
                     spec_.layer_input(layer) + spec_.hidden());
      ParallelFor(exec_, plan_.slices, operations,
                  [&](int64_t i) { RunSlice(layer, i, from, to); });
      from = {to.data, to.time_stride, to.batch_stride};
    }
  }

 private:
  struct Slice : SliceRange {
    Chunk chunk;
    LayerInputs<T> inputs;
    S* preactivations;  // [panel][row of the chunk][panel width]
    S* h;               // Hidden state before a step, [sequence][ldh].
    S* h_next;
    S* full;           // Hidden state before the projection, [sequence][padded units].
    S* c;              // Cell state, [sequence][padded units].
    const S** h_rows;  // For each row of a step, its hidden state.
  };

  void Allocate() {
    if (!spec_.training && !direct_ && call_.cache) {
      cached_ = call_.keras ? PackedWeights<T>(*call_.cache, spec_, *call_.keras, exec_)
                            : PackedWeights<T>(*call_.cache, spec_, call_.params, exec_);
      block_ = cached_.get();
    } else {
      block_ = exec_.Allocate<S>(packing_.LargestSize());
    }
    ldh_ = spec_.projection ? projected_.padded_units() : panels_.padded_units();
    slice_.resize(plan_.slices);
    for (int64_t i = 0; i < plan_.slices; ++i) {
      Slice& slice = slice_[i];
      static_cast<SliceRange&>(slice) = plan_.Slice(i);
      slice.chunk.Allocate(exec_, plan_.chunk_steps, plan_.max_chunk_rows);
      slice.inputs.Allocate(exec_, spec_, plan_.max_chunk_rows);
      slice.preactivations =
          exec_.Allocate<S>(panels_.count() * plan_.max_chunk_rows * panels_.width());
      slice.h = exec_.Allocate<S>(plan_.max_sequences * ldh_);
      slice.h_next = exec_.Allocate<S>(plan_.max_sequences * ldh_);
      slice.full = spec_.projection
                       ? exec_.Allocate<S>(plan_.max_sequences * panels_.padded_units())
                       : nullptr;
      slice.c = exec_.Allocate<S>(plan_.max_sequences * panels_.padded_units());
      slice.h_rows = exec_.Allocate<const S*>(plan_.max_sequences);
    }
    // This is a separate buffer, because both directions of a layer still read its input.
    if (!spec_.training && spec_.bidirectional && spec_.layers > 1) {
      between_ = exec_.Allocate<T>(spec_.time * spec_.batch * spec_.width());
    }
  }

  Sequence<T> Output(int64_t layer) const {
    const int64_t width = spec_.width();
    const int64_t after = spec_.layers - 1 - layer;
    if (after > 0 && spec_.training) {
      const ReserveLayout reserve(spec_);
      return Sequence<T>::View(
          call_.reserve + reserve.hidden + layer * spec_.time * spec_.batch * width, spec_,
          true, width);
    }
    if (after % 2 == 1 && between_) return Sequence<T>::View(between_, spec_, true, width);
    return Sequence<T>::View(call_.output, spec_, spec_.time_major, width);
  }

  // Sets weights_ to the weights of a layer. All layers before it must have been prepared.
  void Prepare(int64_t layer) {
    if (!cached_) {
      packing_.Pack(layer, call_.params, block_, exec_);
    } else if (layer > 0) {
      block_ += packing_.Size(layer - 1);
    }
    for (int64_t dir = 0; dir < spec_.dirs(); ++dir) {
      weights_[dir] = packing_.At(block_, layer, dir);
    }
  }

  void RunSlice(int64_t layer, int64_t index, const Sequence<const T>& from,
                const Sequence<T>& to) {
    Slice& slice = slice_[index];
    const int64_t pseudo = layer * spec_.dirs() + slice.dir;
    const int64_t count = slice.sequences();
    const int64_t hidden = spec_.hidden();
    const int64_t offset = slice.dir * hidden;
    const bool lstm = spec_.cell == Cell::kLstm;

    // Padding units start at zero. They stay zero, or get the value that a cell computes from
    // weights of zero.
    std::fill_n(slice.h, count * ldh_, S(0));
    std::fill_n(slice.h_next, count * ldh_, S(0));
    std::fill_n(slice.c, count * panels_.padded_units(), S(0));
    for (int64_t b = 0; b < count; ++b) {
      const int64_t state = pseudo * spec_.batch + slice.first + b;
      for (int64_t i = 0; i < hidden; ++i) {
        slice.h[b * ldh_ + i] = Load(call_.input_h[state * hidden + i]);
      }
      if (!lstm) continue;
      for (int64_t i = 0; i < spec_.units; ++i) {
        slice.c[b * panels_.padded_units() + i] = Load(call_.input_c[state * spec_.units + i]);
      }
    }

    const Dropout dropout(spec_, call_.nonce, layer);
    const bool drops = spec_.drops() && layer > 0;
    for (int64_t step = 0; step < spec_.time; step += plan_.chunk_steps) {
      Chunk& chunk = slice.chunk;
      chunk.Fill(spec_, slice.dir, call_.lengths, slice.first, slice.end, step,
                 std::min(spec_.time, step + plan_.chunk_steps));
      InputPreactivations(
          layer, slice,
          slice.inputs.Read(spec_, layer, drops ? &dropout : nullptr, from, chunk));
      for (int64_t s = 0; s < chunk.steps; ++s) Step(layer, slice, s, to, offset);
    }

    for (int64_t b = 0; b < count; ++b) {
      const int64_t state = pseudo * spec_.batch + slice.first + b;
      for (int64_t i = 0; i < hidden; ++i) {
        Store(slice.h[b * ldh_ + i], call_.output_h + state * hidden + i);
      }
      if (!lstm) continue;
      for (int64_t i = 0; i < spec_.units; ++i) {
        Store(slice.c[b * panels_.padded_units() + i],
              call_.output_c + state * spec_.units + i);
      }
    }
  }

  // Adds the products of weights and rows to the pre-activations of one panel. The weights are
  // not packed.
  void AddDirectly(const T* weights, int64_t columns, int first_vector, int64_t panel,
                   int64_t count, const S* const* rows, S* preactivations) {
    const int64_t lanes = panels_.lanes_of(panel);
    const Kernels<T>& kernels = PanelKernels(kernels_, panels_, panel);
    for (int vector = first_vector; vector < first_vector + panels_.vectors(); ++vector) {
      const int64_t first = panels_.row(panel, vector, 0);
      if (first < 0) continue;
      const int64_t present = std::min<int64_t>(
          lanes, panels_.units_of(panel) - (panels_.plain() ? vector * lanes : 0));
      for (int64_t m = 0; m < count; ++m) {
        kernels.gemv(present, columns, weights + first * columns, rows[m],
                     preactivations + m * 4 * lanes + vector * lanes);
      }
    }
  }

  // Computes the part of a chunk's pre-activations that does not depend on the previous step.
  void InputPreactivations(int64_t layer, Slice& slice, const S* const* rows) {
    const int64_t width = panels_.width();
    const Weights<S>& weights = weights_[slice.dir];
    const double operations =
        Operations(2, slice.chunk.rows, spec_.gates(), spec_.units, spec_.layer_input(layer));
    ParallelForRanges(exec_, cuts_, panels_.count(), operations, [&](int64_t panel) {
      const Kernels<T>& kernels = PanelKernels(kernels_, panels_, panel);
      S* preactivations = slice.preactivations + panel * plan_.max_chunk_rows * width;
      kernels.fill(slice.chunk.rows, weights.biases + panel * width, preactivations);
      if (direct_ && spec_.has_input_weights(layer)) {
        const int64_t pseudo = layer * spec_.dirs() + slice.dir;
        AddDirectly(call_.params + layout_[pseudo].input_weights, spec_.layer_input(layer), 0,
                    panel, slice.chunk.rows, rows, preactivations);
        return;
      }
      if (spec_.has_input_weights(layer)) {
        const PanelProduct<T> product(kernels_, panels_, panel, slice.chunk.rows);
        product.kernels->gemm({slice.chunk.rows, rows, 1, spec_.layer_input(layer), 0,
                               weights.input + panel * packing_.input_stride(layer),
                               panels_.packed_width(panel), preactivations,
                               panels_.width_of(panel), nullptr, product.vectors});
        return;
      }
      for (int64_t m = 0; m < slice.chunk.rows; ++m) {
        for (int vector = 0; vector < panels_.vectors(); ++vector) {
          for (int64_t lane = 0; lane < kernels.lanes; ++lane) {
            const int64_t row = panels_.row(panel, vector, lane);
            if (row < 0) continue;
            preactivations[(m * 4 + vector) * kernels.lanes + lane] +=
                rows[m][row % spec_.units];
          }
        }
      }
    });
  }

  void Step(int64_t layer, Slice& slice, int64_t s, const Sequence<T>& to, int64_t offset) {
    const Chunk& chunk = slice.chunk;
    const int64_t begin = chunk.begin[s];
    const int64_t rows = chunk.begin[s + 1] - begin;
    const int64_t step = chunk.first_step + s;
    const int64_t t = slice.dir == 0 ? step : spec_.time - 1 - step;
    const int32_t* state_rows = chunk.state_row + begin;
    const SavedActivations saved =
        spec_.training ? SavedAt(layer, slice, t) : SavedActivations{};
    if (rows < slice.sequences()) Pad(slice, t, to, offset, saved);
    if (rows == 0) return;

    for (int64_t m = 0; m < rows; ++m) slice.h_rows[m] = slice.h + state_rows[m] * ldh_;
    const Weights<S>& weights = weights_[slice.dir];
    const int64_t width = panels_.width();
    T* const y = to.at(t, slice.first) + offset;
    S* const state = spec_.projection ? slice.full : slice.h_next;
    const int64_t ld_state = spec_.projection ? panels_.padded_units() : ldh_;
    const double operations = Operations(2, rows, spec_.gates(), spec_.units, spec_.hidden());
    ParallelForRanges(exec_, cuts_, panels_.count(), operations, [&](int64_t panel) {
      const Kernels<T>& kernels = PanelKernels(kernels_, panels_, panel);
      S* preactivations = slice.preactivations + panel * plan_.max_chunk_rows * width +
                          begin * panels_.width_of(panel);
      if (direct_) {
        const int64_t pseudo = layer * spec_.dirs() + slice.dir;
        AddDirectly(call_.params + layout_[pseudo].recurrent_weights, spec_.hidden(),
                    panels_.recurrent_vector(), panel, rows, slice.h_rows, preactivations);
      } else {
        const PanelProduct<T> product(kernels_, panels_, panel, rows);
        product.kernels->gemm({rows, slice.h_rows, 1, spec_.hidden(), 0,
                               weights.recurrent + panel * packing_.recurrent_stride(),
                               panels_.packed_width(panel),
                               preactivations + panels_.recurrent_vector() * kernels.lanes,
                               panels_.width_of(panel), nullptr, product.vectors});
      }
      const int64_t unit = panel * panels_.panel_units();
      CellForwardArgs<T> cell{};
      cell.cell = spec_.cell;
      cell.rows = rows;
      cell.units = panels_.units_of(panel);
      cell.state_row = state_rows;
      cell.preactivations = preactivations;
      cell.h = state + unit;
      cell.h_before = slice.h + unit;
      cell.c = slice.c + unit;
      cell.ldh = ld_state;
      cell.ldc = panels_.padded_units();
      cell.y = spec_.projection ? nullptr : y + unit;
      cell.ldy = to.batch_stride;
      cell.gates = saved.gates ? saved.gates + unit : nullptr;
      cell.ld_gates = 4 * spec_.units;
      cell.gate_stride = spec_.units;
      cell.cells = saved.cells ? saved.cells + unit : nullptr;
      cell.ld_cells = spec_.units;
      kernels.cell_forward(cell);
    });
    if (spec_.projection) Project(slice, rows, state_rows, y, to.batch_stride);
    std::swap(slice.h, slice.h_next);
  }

  struct SavedActivations {
    T* gates = nullptr;
    T* cells = nullptr;
  };

  // Handles the sequences that have no step t. They output zeros and keep their state. In the
  // reverse direction, these are sequences that have not begun.
  void Pad(Slice& slice, int64_t t, const Sequence<T>& to, int64_t offset,
           const SavedActivations& saved) {
    for (int64_t b = slice.first; b < slice.end; ++b) {
      if (t < call_.lengths[b]) continue;
      std::memset(static_cast<void*>(to.at(t, b) + offset), 0, spec_.hidden() * sizeof(T));
      const int64_t state_row = b - slice.first;
      // The zeros are never read. They are written because equal calls must save equal bytes.
      if (saved.gates) {
        std::memset(static_cast<void*>(saved.gates + state_row * 4 * spec_.units), 0,
                    4 * spec_.units * sizeof(T));
      }
      if (saved.cells) {
        std::memset(static_cast<void*>(saved.cells + state_row * spec_.units), 0,
                    spec_.units * sizeof(T));
      }
      const int64_t at = state_row * ldh_;
      std::copy_n(slice.h + at, ldh_, slice.h_next + at);
    }
  }

  SavedActivations SavedAt(int64_t layer, const Slice& slice, int64_t t) const {
    const ReserveLayout reserve(spec_);
    const int64_t pseudo = layer * spec_.dirs() + slice.dir;
    const int64_t at = ((pseudo * spec_.time + t) * spec_.batch + slice.first);
    SavedActivations saved;
    if (reserve.saved_gates) saved.gates = call_.reserve + reserve.gates + at * 4 * spec_.units;
    if (spec_.cell == Cell::kLstm) {
      saved.cells = call_.reserve + reserve.cells + at * spec_.units;
    }
    return saved;
  }

  void Project(Slice& slice, int64_t rows, const int32_t* state_rows, T* y, int64_t ldy) {
    for (int64_t m = 0; m < rows; ++m) {
      slice.h_rows[m] = slice.full + state_rows[m] * panels_.padded_units();
      std::fill_n(slice.h_next + state_rows[m] * ldh_, ldh_, S(0));
    }
    const int64_t width = projected_.width();
    for (int64_t panel = 0; panel < projected_.count(); ++panel) {
      kernels_.gemm({rows, slice.h_rows, 1, spec_.units, 0,
                     weights_[slice.dir].projection + panel * spec_.units * width, width,
                     slice.h_next + panel * width, ldh_, state_rows, 4});
    }
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t i = 0; i < spec_.projection; ++i) {
        Store(slice.h_next[state_rows[m] * ldh_ + i], y + state_rows[m] * ldy + i);
      }
    }
  }

  const CallSpec& spec_;
  const ForwardCall<T>& call_;
  ExecutionContext& exec_;
  const Kernels<T>& kernels_;
  const std::vector<LayerParams> layout_;
  const Plan plan_;
  const Panels& panels_;
  const Panels& projected_;
  const int64_t cuts_;  // The number of tasks that share the panels of one step's product.
  const bool direct_;   // Whether the products read weights that are not packed.
  const Packing<T> packing_;
  int64_t ldh_;
  std::shared_ptr<S> cached_;
  S* block_ = nullptr;  // The block of the current layer.
  Weights<S> weights_[2];
  std::vector<Slice> slice_;
  T* between_ = nullptr;
};

}  // namespace

template <class T>
void Forward(const CallSpec& spec, const ForwardCall<T>& call, ExecutionContext& exec) {
  if (spec.training) WriteHeader(spec, call.nonce, call.reserve);
  ForwardPass<T>(spec, call, exec).Run();
}

template void Forward(const CallSpec&, const ForwardCall<float>&, ExecutionContext&);
template void Forward(const CallSpec&, const ForwardCall<double>&, ExecutionContext&);
template void Forward(const CallSpec&, const ForwardCall<Half>&, ExecutionContext&);
template void Forward(const CallSpec&, const ForwardCall<BFloat16>&, ExecutionContext&);

}  // namespace opwright::rnn
