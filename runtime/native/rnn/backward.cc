#include <cmath>
#include <vector>

#include "rnn/plan.h"
#include "rnn/rnn.h"

namespace opwright::rnn {
namespace {

// The number of rows that one product adds to the gradient of the weights. It is large enough
// to outweigh the cost of reading and writing that gradient.
constexpr int64_t kBackwardChunkRows = 384;

template <class T>
class BackwardPass {
 public:
  using S = Compute<T>;

  BackwardPass(const CallSpec& spec, const BackwardCall<T>& call, ExecutionContext& exec)
      : spec_(spec),
        call_(call),
        exec_(exec),
        kernels_(SelectKernels<T>()),
        compute_(SelectKernels<S>()),
        layout_(ParamsLayout(spec)),
        reserve_(spec),
        plan_(spec, kernels_, exec, kBackwardChunkRows),
        panels_(plan_.panels),
        projected_(plan_.projected),
        cuts_(plan_.PanelCuts(exec, (spec.hidden() + panels_.width() - 1) / panels_.width())),
        together_(!spec.bidirectional) {
    Allocate();
  }

  void Run() {
    if (together_) {
      for (int64_t layer = 0; layer < spec_.layers; ++layer) Begin(layer);
      for (int64_t chunk = Chunks() - 1; chunk >= 0; --chunk) {
        for (int64_t layer = spec_.layers - 1; layer >= 0; --layer) RunChunk(layer, chunk);
      }
      for (int64_t layer = 0; layer < spec_.layers; ++layer) Finish(layer);
    } else {
      for (int64_t layer = spec_.layers - 1; layer >= 0; --layer) {
        Begin(layer);
        for (int64_t chunk = Chunks() - 1; chunk >= 0; --chunk) RunChunk(layer, chunk);
        Finish(layer);
      }
    }
  }

 private:
  int64_t Chunks() const { return (spec_.time + plan_.chunk_steps - 1) / plan_.chunk_steps; }

  void Begin(int64_t layer) {
    Enter(layer);
    Pack(layer);
    Clear(layer);
  }

  void RunChunk(int64_t layer, int64_t chunk) {
    Enter(layer);
    const double operations =
        Operations(2, spec_.batch, plan_.chunk_steps, spec_.dirs(), spec_.gates(), spec_.units);
    ParallelFor(exec_, plan_.slices, operations * Operations(spec_.hidden()),
                [&](int64_t i) { RunSlice(layer, i, chunk * plan_.chunk_steps); });
    // Each task for the input's gradient computes a part of the batch in both directions, so
    // that no two tasks write to the same rows. Each task for the weights' gradient computes
    // one panel.
    const int64_t weights = spec_.dirs() * panels_.count();
    const int64_t projections = spec_.dirs() * projected_.count();
    ParallelFor(exec_, plan_.parts + weights + projections,
                operations * Operations(spec_.layer_input(layer) + spec_.hidden()),
                [&](int64_t i) {
                  if (i < plan_.parts) {
                    InputGradient(layer, i);
                  } else if (i < plan_.parts + weights) {
                    WeightGradient(layer, i - plan_.parts);
                  } else {
                    ProjectionGradient(i - plan_.parts - weights);
                  }
                });
  }

  // Selects the weights and states of a layer as the current ones.
  void Enter(int64_t layer) {
    const int64_t at = together_ ? layer : 0;
    for (int64_t dir = 0; dir < spec_.dirs(); ++dir) {
      weights_[dir] = all_weights_[at * spec_.dirs() + dir];
    }
    for (int64_t i = 0; i < plan_.slices; ++i) {
      slice_[i].dh = states_[at * plan_.slices + i].dh;
      slice_[i].dc = states_[at * plan_.slices + i].dc;
    }
  }

  // The weights of one direction, packed for products with gradients, and the gradients of
  // these weights.
  struct Weights {
    S* input;
    S* recurrent;
    S* projection;
    S* d_input;
    S* d_recurrent;
    S* d_projection;
    S* d_biases;
  };

  // Gradients of the states of one slice in one layer.
  struct States {
    S* dh;  // [sequence][ldh]
    S* dc;  // [sequence][padded units]
  };

  struct Slice : SliceRange {
    Chunk chunk;
    LayerInputs<T> inputs;
    S* preactivation_grads;  // [panel][row of the chunk][panel width]
    const S* const* x;       // For each row of the chunk, the input of the layer.
    const S** h;             // For each row of the chunk, the hidden state before the step.
    S* h_copies;    // The converted hidden states, if `h` cannot lead to the stored ones.
    S* full;        // The hidden state before the projection, [row of the chunk][unit].
    S* dprojected;  // [panel of the projection][row of the chunk][panel width]
    S* dh;          // Gradients of the states in the current layer.
    S* dc;
    // Gradient of the hidden state before the projection, [sequence][padded units].
    S* dfull;
    const T** h_before;  // For each row of the chunk, the stored states before the step.
    const T** c_before;
    // Pointers to rows, for products. `last_rows` is for a last panel of fewer lanes.
    const S** rows;
    const S** last_rows;
  };

  void Allocate() {
    widest_ = spec_.layers > 1 ? std::max(spec_.input_size, spec_.width()) : spec_.input_size;
    const int64_t width = panels_.width();
    // Returns the number of columns of a product after padding.
    const auto padded = [&](int64_t columns) { return (columns + width - 1) / width * width; };
    const int64_t inner = panels_.packed_rows();
    const int64_t live = together_ ? spec_.layers : 1;
    all_weights_.resize(live * spec_.dirs());
    for (Weights& weights : all_weights_) {
      weights.input = exec_.Allocate<S>(inner * padded(widest_));
      weights.recurrent = exec_.Allocate<S>(inner * padded(spec_.hidden()));
      weights.projection = exec_.Allocate<S>(padded(spec_.units) * projected_.padded_units());
      weights.d_input = exec_.Allocate<S>(inner * widest_);
      weights.d_recurrent = exec_.Allocate<S>(inner * spec_.hidden());
      weights.d_projection = exec_.Allocate<S>(spec_.units * projected_.padded_units());
      weights.d_biases = exec_.Allocate<S>(panels_.count() * width);
    }
    ldh_ = std::max(padded(spec_.hidden()), panels_.padded_units());
    ld_full_ = std::max(padded(spec_.units), panels_.padded_units());
    ld_input_ = padded(widest_);
    constexpr bool same = std::is_same<T, S>::value;
    slice_.resize(plan_.slices);
    for (int64_t i = 0; i < plan_.slices; ++i) {
      Slice& slice = slice_[i];
      static_cast<SliceRange&>(slice) = plan_.Slice(i);
      slice.chunk.Allocate(exec_, plan_.chunk_steps, plan_.max_chunk_rows);
      slice.inputs.Allocate(exec_, spec_, plan_.max_chunk_rows);
      slice.preactivation_grads =
          exec_.Allocate<S>(panels_.count() * plan_.max_chunk_rows * width);
      slice.h = exec_.Allocate<const S*>(plan_.max_chunk_rows);
      slice.h_copies =
          same ? nullptr : exec_.Allocate<S>(spec_.hidden() * plan_.max_chunk_rows);
      slice.full = slice.dfull = slice.dprojected = nullptr;
      if (spec_.projection) {
        slice.full = exec_.Allocate<S>(spec_.units * plan_.max_chunk_rows);
        slice.dfull = exec_.Allocate<S>(plan_.max_sequences * ld_full_);
        slice.dprojected = exec_.Allocate<S>(projected_.count() * plan_.max_chunk_rows * width);
      }
      slice.h_before = exec_.Allocate<const T*>(plan_.max_chunk_rows);
      slice.c_before = exec_.Allocate<const T*>(plan_.max_chunk_rows);
      slice.rows = exec_.Allocate<const S*>(plan_.max_chunk_rows);
      slice.last_rows = exec_.Allocate<const S*>(plan_.max_chunk_rows);
    }
    states_.resize(live * plan_.slices);
    for (States& states : states_) {
      states.dh = exec_.Allocate<S>(plan_.max_sequences * ldh_);
      states.dc = exec_.Allocate<S>(plan_.max_sequences * panels_.padded_units());
    }
    for (int64_t part = 0; part < plan_.parts; ++part) {
      dx_.push_back(exec_.Allocate<S>(plan_.max_chunk_rows * ld_input_));
    }
    task_rows_ =
        exec_.Allocate<const S*>(spec_.dirs() * projected_.count() * plan_.max_chunk_rows);
    if (spec_.layers > 1 && !together_) {
      const int64_t size = spec_.time * spec_.batch * spec_.width();
      // A layer writes the gradients of its input to one buffer while it reads the gradients of
      // its outputs from the other.
      for (S*& between : between_) between = exec_.Allocate<S>(size);
    }
  }

  void Pack(int64_t layer) {
    const int64_t in = spec_.layer_input(layer);
    const int64_t width = panels_.width();
    const int64_t inputs = spec_.has_input_weights(layer) ? (in + width - 1) / width : 0;
    const int64_t states = (spec_.hidden() + width - 1) / width;
    const double size =
        Operations(8, spec_.dirs(), spec_.gates(), spec_.units, in + spec_.hidden());
    ParallelFor(exec_, spec_.dirs() * (inputs + states), size, [&](int64_t i) {
      const int64_t dir = i / (inputs + states);
      const int64_t panel = i % (inputs + states);
      const LayerParams& at = layout_[layer * spec_.dirs() + dir];
      const int64_t stride = panels_.packed_rows() * width;
      if (panel < inputs) {
        PackColumns(panels_, 0, panel, call_.params + at.input_weights, in,
                    weights_[dir].input + panel * stride);
      } else {
        PackColumns(panels_, panels_.recurrent_vector(), panel - inputs,
                    call_.params + at.recurrent_weights, spec_.hidden(),
                    weights_[dir].recurrent + (panel - inputs) * stride);
      }
    });
    if (!spec_.projection) return;
    for (int64_t dir = 0; dir < spec_.dirs(); ++dir) {
      const LayerParams& at = layout_[layer * spec_.dirs() + dir];
      const int64_t stride = projected_.padded_units() * width;
      for (int64_t panel = 0; panel * width < spec_.units; ++panel) {
        PackColumns(projected_, 0, panel, call_.params + at.projection, spec_.units,
                    weights_[dir].projection + panel * stride);
      }
    }
  }

  // Clears the gradients of the weights. Sets the gradients of the states to those of the final
  // states, and their padding to zero.
  void Clear(int64_t layer) {
    const int64_t inner = panels_.packed_rows();
    const int64_t in = spec_.has_input_weights(layer) ? spec_.layer_input(layer) : 0;
    for (int64_t dir = 0; dir < spec_.dirs(); ++dir) {
      const Weights& weights = weights_[dir];
      std::fill_n(weights.d_input, inner * in, S(0));
      std::fill_n(weights.d_recurrent, inner * spec_.hidden(), S(0));
      std::fill_n(weights.d_projection, spec_.units * projected_.padded_units(), S(0));
      std::fill_n(weights.d_biases, panels_.count() * panels_.width(), S(0));
    }
    for (const Slice& slice : slice_) {
      const int64_t pseudo = layer * spec_.dirs() + slice.dir;
      const int64_t count = slice.sequences();
      std::fill_n(slice.dh, count * ldh_, S(0));
      std::fill_n(slice.dc, count * panels_.padded_units(), S(0));
      for (int64_t b = 0; b < count; ++b) {
        const int64_t state = pseudo * spec_.batch + slice.first + b;
        kernels_.add(spec_.hidden(), call_.output_h_backprop + state * spec_.hidden(),
                     slice.dh + b * ldh_);
        if (spec_.cell != Cell::kLstm) continue;
        kernels_.add(spec_.units, call_.output_c_backprop + state * spec_.units,
                     slice.dc + b * panels_.padded_units());
      }
    }
    // The gradient of the layer's input starts at zero, because padding gets no gradient and
    // the gradients of two directions are added.
    if (layer == 0) {
      if (!call_.lengths && !spec_.bidirectional) return;
      std::memset(static_cast<void*>(call_.input_backprop), 0,
                  spec_.time * spec_.batch * spec_.input_size * sizeof(T));
    } else if (!together_) {
      std::fill_n(between_[layer % 2], spec_.time * spec_.batch * spec_.width(), S(0));
    }
  }

  Sequence<const T> Output(int64_t layer) const {
    const int64_t width = spec_.width();
    if (layer == spec_.layers - 1) {
      return Sequence<const T>::View(call_.output, spec_, spec_.time_major, width);
    }
    return Sequence<const T>::View(
        call_.reserve + reserve_.hidden + layer * spec_.time * spec_.batch * width, spec_, true,
        width);
  }

  // Runs the steps of a chunk from last to first. Computes the gradients of the chunk's
  // pre-activations and of the states before the chunk.
  void RunSlice(int64_t layer, int64_t index, int64_t step) {
    Slice& slice = slice_[index];
    Chunk& chunk = slice.chunk;
    chunk.Fill(spec_, slice.dir, call_.lengths, slice.first, slice.end, step,
               std::min(spec_.time, step + plan_.chunk_steps));
    const int64_t pseudo = layer * spec_.dirs() + slice.dir;
    const Sequence<const T> y = Output(layer);
    const int64_t offset = slice.dir * spec_.hidden();
    for (int64_t m = 0; m < chunk.rows; ++m) {
      const Chunk::Row row = chunk.row[m];
      const int64_t last = (call_.lengths ? call_.lengths[row.b] : spec_.time) - 1;
      const bool first = row.t == (slice.dir == 0 ? 0 : last);
      const int64_t before = slice.dir == 0 ? row.t - 1 : row.t + 1;
      const int64_t state = pseudo * spec_.batch + row.b;
      slice.h_before[m] =
          first ? call_.input_h + state * spec_.hidden() : y.at(before, row.b) + offset;
      if (spec_.cell != Cell::kLstm) continue;
      slice.c_before[m] =
          first ? call_.input_c + state * spec_.units : Cells(pseudo, before, row.b);
    }
    if (spec_.has_input_weights(layer)) {
      const Dropout dropout(spec_, call_.nonce, layer);
      const Sequence<const T> from =
          layer == 0
              ? Sequence<const T>::View(call_.input, spec_, spec_.time_major, spec_.input_size)
              : Output(layer - 1);
      slice.x = slice.inputs.Read(spec_, layer, spec_.drops() && layer > 0 ? &dropout : nullptr,
                                  from, chunk);
    }
    for (int64_t m = 0; m < chunk.rows; ++m) {
      if constexpr (std::is_same<T, S>::value) {
        slice.h[m] = slice.h_before[m];
      } else {
        S* const copy = slice.h_copies + m * spec_.hidden();
        for (int64_t i = 0; i < spec_.hidden(); ++i) copy[i] = Load(slice.h_before[m][i]);
        slice.h[m] = copy;
      }
    }
    for (int64_t s = chunk.steps - 1; s >= 0; --s) Step(layer, index, s);
  }

  const T* Gates(int64_t pseudo, int64_t t, int64_t b) const {
    return call_.reserve + reserve_.gates +
           ((pseudo * spec_.time + t) * spec_.batch + b) * 4 * spec_.units;
  }
  const T* Cells(int64_t pseudo, int64_t t, int64_t b) const {
    return call_.reserve + reserve_.cells +
           ((pseudo * spec_.time + t) * spec_.batch + b) * spec_.units;
  }

  void Step(int64_t layer, int64_t index, int64_t s) {
    Slice& slice = slice_[index];
    const Chunk& chunk = slice.chunk;
    const int64_t begin = chunk.begin[s];
    const int64_t rows = chunk.begin[s + 1] - begin;
    if (rows == 0) return;
    const int32_t* state_rows = chunk.state_row + begin;
    const int64_t t = chunk.row[begin].t;
    const int64_t pseudo = layer * spec_.dirs() + slice.dir;
    const int64_t offset = slice.dir * spec_.hidden();
    const Weights& weights = weights_[slice.dir];

    AddOutputGradient(layer, index, begin, rows, offset);
    if (spec_.projection) Unproject(slice, pseudo, begin, rows, state_rows);

    const Sequence<const T> y = Output(layer);
    S* const dstate = spec_.projection ? slice.dfull : slice.dh;
    const int64_t ld_state = spec_.projection ? ld_full_ : ldh_;
    for (int64_t panel = 0; panel < panels_.count(); ++panel) {
      const int64_t unit = panel * panels_.panel_units();
      CellBackwardArgs<T> cell{};
      cell.cell = spec_.cell;
      cell.rows = rows;
      cell.units = panels_.units_of(panel);
      cell.unit = unit;
      cell.state_row = state_rows;
      cell.dh = dstate + unit;
      cell.ld_dh = ld_state;
      cell.dh_before = dstate + unit;
      cell.ld_before = ld_state;
      cell.dc = slice.dc + unit;
      cell.ld_dc = panels_.padded_units();
      cell.h_before = slice.h_before + begin;
      cell.c_before = slice.c_before + begin;
      cell.gates = Gates(pseudo, t, slice.first) + unit;
      cell.ld_gates = 4 * spec_.units;
      cell.gate_stride = spec_.units;
      cell.cells = Cells(pseudo, t, slice.first) + unit;
      cell.ld_cells = spec_.units;
      cell.y = y.at(t, slice.first) + offset + unit;
      cell.ldy = y.batch_stride;
      cell.preactivation_grads = PreactivationGrads(slice, panel, begin);
      PanelKernels(kernels_, panels_, panel).cell_backward(cell);
    }
    if (spec_.projection) {
      for (int64_t m = 0; m < rows; ++m)
        std::fill_n(slice.dh + state_rows[m] * ldh_, ldh_, S(0));
    }
    MultiplyPreactivationGrads(slice, begin, rows, panels_.recurrent_vector(),
                               weights.recurrent, spec_.hidden(), slice.dh, ldh_, state_rows,
                               cuts_);
  }

  // Returns the gradients of a panel's pre-activations in the chunk, from row `row` on.
  S* PreactivationGrads(const Slice& slice, int64_t panel, int64_t row) const {
    return slice.preactivation_grads + panel * plan_.max_chunk_rows * panels_.width() +
           row * panels_.width_of(panel);
  }

  // Adds the product of the pre-activations' gradients and packed weights to `out`.
  void MultiplyPreactivationGrads(Slice& slice, int64_t begin, int64_t rows, int first_vector,
                                  const S* weights, int64_t columns, S* out, int64_t ld,
                                  const int32_t* state_rows, int64_t cuts) {
    const int64_t width = panels_.width();
    const int64_t full = panels_.full();
    for (int64_t m = 0; m < rows; ++m) {
      slice.rows[m] =
          PreactivationGrads(slice, 0, begin + m) + first_vector * panels_.lanes_of(0);
      slice.last_rows[m] = PreactivationGrads(slice, panels_.count() - 1, begin + m) +
                           first_vector * panels_.last_lanes;
    }
    const int64_t full_rows = full * panels_.vectors() * panels_.lanes;
    const Panels to = PlainPanels(panels_.lanes, columns);
    const double operations = Operations(2, rows, panels_.packed_rows(), columns);
    ParallelForRanges(exec_, cuts, to.count(), operations, [&](int64_t panel) {
      const S* const b = weights + panel * panels_.packed_rows() * width;
      if (full > 0) {
        kernels_.gemm({rows, slice.rows, full, panels_.packed_width(0),
                       plan_.max_chunk_rows * width, b, width, out + panel * width, ld,
                       state_rows, to.vectors_of(panel)});
      }
      if (full < panels_.count()) {
        kernels_.gemm({rows, slice.last_rows, 1, panels_.packed_width(full), 0,
                       b + full_rows * width, width, out + panel * width, ld, state_rows,
                       to.vectors_of(panel)});
      }
    });
  }

  void AddOutputGradient(int64_t layer, int64_t index, int64_t begin, int64_t rows,
                         int64_t offset) {
    Slice& slice = slice_[index];
    const int64_t width = spec_.width();
    const bool last = layer == spec_.layers - 1;
    const Sequence<const T> dy =
        Sequence<const T>::View(call_.output_backprop, spec_, spec_.time_major, width);
    for (int64_t m = begin; m < begin + rows; ++m) {
      const Chunk::Row row = slice.chunk.row[m];
      S* dh = slice.dh + slice.chunk.state_row[m] * ldh_;
      if (last) {
        kernels_.add(spec_.hidden(), dy.at(row.t, row.b) + offset, dh);
      } else if (together_) {
        compute_.add(spec_.hidden(), dx_[index / spec_.dirs()] + m * ld_input_, dh);
      } else {
        compute_.add(spec_.hidden(),
                     between_[(layer + 1) % 2] + (row.t * spec_.batch + row.b) * width + offset,
                     dh);
      }
    }
  }

  // Computes the gradient of the hidden state before the projection from the gradient of the
  // projected state.
  void Unproject(Slice& slice, int64_t pseudo, int64_t begin, int64_t rows,
                 const int32_t* state_rows) {
    const int64_t width = projected_.width();
    const int64_t t = slice.chunk.row[begin].t;
    for (int64_t m = 0; m < rows; ++m) {
      const S* dh = slice.dh + state_rows[m] * ldh_;
      slice.rows[m] = dh;
      for (int64_t panel = 0; panel < projected_.count(); ++panel) {
        S* to = slice.dprojected + (panel * plan_.max_chunk_rows + begin + m) * width;
        const int64_t present = projected_.units_of(panel);
        std::copy_n(dh + panel * width, present, to);
        std::fill_n(to + present, width - present, S(0));
      }
      std::fill_n(slice.dfull + state_rows[m] * ld_full_, ld_full_, S(0));
      const int64_t b = slice.first + state_rows[m];
      const T* output_gate = Gates(pseudo, t, b) + 3 * spec_.units;
      const T* cells = Cells(pseudo, t, b);
      for (int64_t i = 0; i < spec_.units; ++i) {
        slice.full[(begin + m) * spec_.units + i] =
            Load(output_gate[i]) * std::tanh(Load(cells[i]));
      }
    }
    const int64_t stride = projected_.padded_units() * width;
    const Panels units = PlainPanels(panels_.lanes, spec_.units);
    for (int64_t panel = 0; panel < units.count(); ++panel) {
      kernels_.gemm({rows, slice.rows, 1, spec_.projection, 0,
                     weights_[slice.dir].projection + panel * stride, width,
                     slice.dfull + panel * width, ld_full_, state_rows,
                     units.vectors_of(panel)});
    }
  }

  // Computes the gradient of the input for one part of the batch, from both directions.
  void InputGradient(int64_t layer, int64_t part) {
    const Dropout dropout(spec_, call_.nonce, layer);
    const int64_t in = spec_.layer_input(layer);
    S* const dx = dx_[part];
    for (int64_t dir = 0; dir < spec_.dirs(); ++dir) {
      Slice& slice = slice_[part * spec_.dirs() + dir];
      const Chunk& chunk = slice.chunk;
      for (int64_t m = 0; m < chunk.rows; ++m) {
        std::fill_n(dx + m * ld_input_, ld_input_, S(0));
      }
      if (spec_.has_input_weights(layer)) {
        MultiplyPreactivationGrads(slice, 0, chunk.rows, 0, weights_[dir].input, in, dx,
                                   ld_input_, nullptr, 1);
      } else {
        AddSkipped(slice, dx);
      }
      for (int64_t m = 0; m < chunk.rows; ++m) {
        const Chunk::Row row = chunk.row[m];
        S* const from = dx + m * ld_input_;
        if (layer == 0) {
          T* to = Sequence<T>::View(call_.input_backprop, spec_, spec_.time_major, in)
                      .at(row.t, row.b);
          if (spec_.bidirectional) kernels_.add(in, to, from);
          for (int64_t i = 0; i < in; ++i) Store(from[i], to + i);
          continue;
        }
        const uint64_t at = static_cast<uint64_t>(row.t * spec_.batch + row.b) * in;
        if (spec_.drops()) {
          for (int64_t i = 0; i < in; ++i) from[i] *= static_cast<S>(dropout.Factor(at + i));
        }
        if (!together_) compute_.add(in, from, between_[layer % 2] + at);
      }
    }
  }

  // Adds the gradients of all gates to `dx`. Without input weights, the forward pass adds the
  // input to every gate.
  void AddSkipped(const Slice& slice, S* dx) const {
    for (int64_t panel = 0; panel < panels_.count(); ++panel) {
      const int64_t lanes = panels_.lanes_of(panel);
      for (int vector = 0; vector < panels_.vectors(); ++vector) {
        for (int64_t lane = 0; lane < lanes; ++lane) {
          const int64_t row = panels_.row(panel, vector, lane);
          if (row < 0) continue;
          for (int64_t m = 0; m < slice.chunk.rows; ++m) {
            dx[m * ld_input_ + row % spec_.units] +=
                PreactivationGrads(slice, panel, m)[vector * lanes + lane];
          }
        }
      }
    }
  }

  // Computes the gradient of one panel of weights, over all parts of the batch.
  void WeightGradient(int64_t layer, int64_t task) {
    const int64_t dir = task / panels_.count();
    const int64_t panel = task % panels_.count();
    const int64_t width = panels_.width_of(panel);
    const Weights& weights = weights_[dir];
    const int64_t packed = panels_.packed_width(panel);
    const int64_t in = spec_.layer_input(layer);
    const int64_t hidden = spec_.hidden();
    const PanelProduct<S> product(compute_, panels_, panel, std::min(in, hidden));
    for (int64_t part = 0; part < plan_.parts; ++part) {
      const Slice& slice = slice_[part * spec_.dirs() + dir];
      const S* preactivation_grads = PreactivationGrads(slice, panel, 0);
      const int64_t count = slice.chunk.rows;
      if (spec_.has_input_weights(layer)) {
        product.kernels->gemm_transposed_a(
            {in, count, slice.x, preactivation_grads, width,
             weights.d_input + panel * in * panels_.packed_width(0), packed, product.vectors});
      }
      product.kernels->gemm_transposed_a(
          {hidden, count, slice.h,
           preactivation_grads + panels_.recurrent_vector() * panels_.lanes_of(panel), width,
           weights.d_recurrent + panel * hidden * panels_.packed_width(0), packed,
           product.vectors});
      PanelKernels(compute_, panels_, panel)
          .sum_rows(count, preactivation_grads, weights.d_biases + panel * panels_.width());
    }
  }

  void ProjectionGradient(int64_t task) {
    const int64_t dir = task / projected_.count();
    const int64_t panel = task % projected_.count();
    const int64_t width = projected_.width();
    const S** rows = task_rows_ + task * plan_.max_chunk_rows;
    for (int64_t part = 0; part < plan_.parts; ++part) {
      const Slice& slice = slice_[part * spec_.dirs() + dir];
      for (int64_t m = 0; m < slice.chunk.rows; ++m) rows[m] = slice.full + m * spec_.units;
      kernels_.gemm_transposed_a(
          {spec_.units, slice.chunk.rows, rows,
           slice.dprojected + panel * plan_.max_chunk_rows * width, width,
           weights_[dir].d_projection + panel * spec_.units * width, width, 4});
    }
  }

  void Finish(int64_t layer) {
    Enter(layer);
    const int64_t in = spec_.layer_input(layer);
    const int64_t hidden = spec_.hidden();
    const double size = Operations(8, spec_.dirs(), spec_.gates(), spec_.units, in + hidden);
    ParallelFor(exec_, spec_.dirs() * panels_.count(), size, [&](int64_t i) {
      const int64_t dir = i / panels_.count();
      const int64_t panel = i % panels_.count();
      const LayerParams& at = layout_[layer * spec_.dirs() + dir];
      const Weights& weights = weights_[dir];
      if (spec_.has_input_weights(layer)) {
        UnpackRows(panels_, 0, panel, weights.d_input + panel * in * panels_.packed_width(0),
                   in, call_.params_backprop + at.input_weights);
      }
      UnpackRows(panels_, panels_.recurrent_vector(), panel,
                 weights.d_recurrent + panel * hidden * panels_.packed_width(0), hidden,
                 call_.params_backprop + at.recurrent_weights);
    });
    for (int64_t dir = 0; dir < spec_.dirs(); ++dir) {
      const LayerParams& at = layout_[layer * spec_.dirs() + dir];
      UnpackBiases(panels_, weights_[dir].d_biases, call_.params_backprop + at.input_bias,
                   call_.params_backprop + at.recurrent_bias);
      for (int64_t panel = 0; panel < projected_.count(); ++panel) {
        UnpackRows(projected_, 0, panel,
                   weights_[dir].d_projection + panel * spec_.units * projected_.width(),
                   spec_.units, call_.params_backprop + at.projection);
      }
    }
    for (const Slice& slice : slice_) {
      const int64_t pseudo = layer * spec_.dirs() + slice.dir;
      for (int64_t b = 0; b < slice.sequences(); ++b) {
        const int64_t state = pseudo * spec_.batch + slice.first + b;
        for (int64_t i = 0; i < hidden; ++i) {
          Store(slice.dh[b * ldh_ + i], call_.input_h_backprop + state * hidden + i);
        }
        if (spec_.cell != Cell::kLstm) continue;
        for (int64_t i = 0; i < spec_.units; ++i) {
          Store(slice.dc[b * panels_.padded_units() + i],
                call_.input_c_backprop + state * spec_.units + i);
        }
      }
    }
  }

  const CallSpec& spec_;
  const BackwardCall<T>& call_;
  ExecutionContext& exec_;
  const Kernels<T>& kernels_;
  const Kernels<S>& compute_;
  const std::vector<LayerParams> layout_;
  const ReserveLayout reserve_;
  const Plan plan_;
  const Panels& panels_;
  const Panels& projected_;
  const int64_t cuts_;  // The number of tasks that share the panels of one step's product.
  int64_t widest_, ldh_, ld_full_, ld_input_;
  // If true, all layers process one chunk before any layer processes the next chunk. Gradients
  // between layers then need the memory of only one chunk. This is impossible for bidirectional
  // layers, because their directions process the steps in opposite order.
  const bool together_;
  Weights weights_[2];  // The weights of the current layer, by direction.
  // All weights by layer and direction. If together_ is false, those of one layer.
  std::vector<Weights> all_weights_;
  // All states by layer and slice. If together_ is false, those of one layer.
  std::vector<States> states_;
  std::vector<Slice> slice_;
  std::vector<S*> dx_;  // For each part of the batch: [row of the chunk][ld_input].
  // Pointers to rows for each task that computes a gradient of the projection.
  const S** task_rows_;
  S* between_[2] = {nullptr, nullptr};  // Gradients of the outputs between layers.
};

}  // namespace

template <class T>
void Backward(const CallSpec& spec, const BackwardCall<T>& call, ExecutionContext& exec) {
  BackwardPass<T>(spec, call, exec).Run();
}

template void Backward(const CallSpec&, const BackwardCall<float>&, ExecutionContext&);
template void Backward(const CallSpec&, const BackwardCall<double>&, ExecutionContext&);
template void Backward(const CallSpec&, const BackwardCall<Half>&, ExecutionContext&);
template void Backward(const CallSpec&, const BackwardCall<BFloat16>&, ExecutionContext&);

}  // namespace opwright::rnn
