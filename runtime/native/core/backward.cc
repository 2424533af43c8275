#include <cmath>
#include <vector>

#include "layers.h"
#include "rnn.h"

namespace opwright {
namespace {

// Rows that one product for the gradient of the weights adds up: enough to pay for
// reading and writing that gradient.
constexpr int64_t kChunkRows = 384;

template <class T>
class BackwardPass {
 public:
  using S = Compute<T>;

  BackwardPass(const Config& config, const BackwardCall<T>& call, Host& host)
      : config_(config),
        call_(call),
        host_(host),
        kernels_(SelectKernels<T>()),
        compute_(SelectKernels<S>()),
        layout_(ParamsLayout(config)),
        reserve_(config, sizeof(T)),
        panels_(CellPanels(kernels_, config)),
        projected_(PlainPanels(kernels_.lanes, config.projection)),
        parts_(CutBatch(config, host)),
        slices_(config.dirs() * parts_),
        cuts_(CutPanels(host, slices_, (config.hidden() + panels_.width() - 1) /
                                           panels_.width())),
        together_(!config.bidirectional) {
    Allocate();
  }

  void Run() {
    if (together_) {
      for (int64_t layer = 0; layer < config_.layers; ++layer) Begin(layer);
      for (int64_t chunk = Chunks() - 1; chunk >= 0; --chunk) {
        for (int64_t layer = config_.layers - 1; layer >= 0; --layer) RunChunk(layer, chunk);
      }
      for (int64_t layer = 0; layer < config_.layers; ++layer) Finish(layer);
    } else {
      for (int64_t layer = config_.layers - 1; layer >= 0; --layer) {
        Begin(layer);
        for (int64_t chunk = Chunks() - 1; chunk >= 0; --chunk) RunChunk(layer, chunk);
        Finish(layer);
      }
    }
  }

 private:
  int64_t Chunks() const { return (config_.time + chunk_steps_ - 1) / chunk_steps_; }

  void Begin(int64_t layer) {
    Enter(layer);
    Pack(layer);
    Clear(layer);
  }

  void RunChunk(int64_t layer, int64_t chunk) {
    Enter(layer);
    const double operations = 2.0 * config_.batch * chunk_steps_ * config_.dirs() *
                              config_.gates() * config_.units;
    opwright::Run(host_, slices_, operations * config_.hidden(),
                  [&](int64_t i) { RunSlice(layer, i, chunk * chunk_steps_); });
    // The input's gradient by part of the batch, which keeps the two directions out of
    // each other's way; the weights' by panel.
    const int64_t weights = config_.dirs() * panels_.count();
    const int64_t projections = config_.dirs() * projected_.count();
    opwright::Run(host_, parts_ + weights + projections,
                  operations * (config_.layer_input(layer) + config_.hidden()),
                  [&](int64_t i) {
                    if (i < parts_) {
                      InputGradient(layer, i);
                    } else if (i < parts_ + weights) {
                      WeightGradient(layer, i - parts_);
                    } else {
                      ProjectionGradient(i - parts_ - weights);
                    }
                  });
  }

  // Makes what belongs to a layer the present one's.
  void Enter(int64_t layer) {
    const int64_t at = together_ ? layer : 0;
    for (int64_t dir = 0; dir < config_.dirs(); ++dir) {
      weights_[dir] = all_weights_[at * config_.dirs() + dir];
    }
    for (int64_t i = 0; i < slices_; ++i) {
      slice_[i].dh = states_[at * slices_ + i].dh;
      slice_[i].dc = states_[at * slices_ + i].dc;
    }
  }

  // One direction's weights, packed for products with gradients, and their gradients.
  struct Weights {
    S* input;
    S* recurrent;
    S* projection;
    S* d_input;
    S* d_recurrent;
    S* d_projection;
    S* d_biases;
  };

  // Gradients of the states of one layer's slice.
  struct States {
    S* dh;  // [sequence][ldh]
    S* dc;  // [sequence][padded units]
  };

  // One direction of one part of the batch.
  struct Slice {
    int64_t dir, first, end;
    Chunk chunk;
    Inputs<T> inputs;
    S* dsums;        // [panel][row of the chunk][panel width]
    const S* const* x;  // By row of the chunk: what the layer reads.
    const S** h;     // By row of the chunk: the hidden state before the step.
    S* h_copies;     // Where these are computed copies.
    S* full;         // [row of the chunk][unit], before the projection.
    S* dprojected;   // [panel of the projection][row of the chunk][panel width]
    S* dh;           // The present layer's.
    S* dc;
    S* dfull;        // [sequence][padded units], before the projection.
    const T** h_before;  // By row of the chunk.
    const T** c_before;
    const S** rows;      // For products, and those of a narrower last panel.
    const S** last_rows;
  };

  void Allocate() {
    widest_ = config_.layers > 1 ? std::max(config_.input_size, config_.width())
                                 : config_.input_size;
    const int64_t width = panels_.width();
    // What the columns of a product are padded to.
    const auto padded = [&](int64_t columns) { return (columns + width - 1) / width * width; };
    const int64_t inner = panels_.packed_rows();
    const int64_t live = together_ ? config_.layers : 1;
    all_weights_.resize(live * config_.dirs());
    for (Weights& weights : all_weights_) {
      weights.input = host_.Allocate<S>(inner * padded(widest_));
      weights.recurrent = host_.Allocate<S>(inner * padded(config_.hidden()));
      weights.projection = host_.Allocate<S>(padded(config_.units) * projected_.padded_units());
      weights.d_input = host_.Allocate<S>(inner * widest_);
      weights.d_recurrent = host_.Allocate<S>(inner * config_.hidden());
      weights.d_projection = host_.Allocate<S>(config_.units * projected_.padded_units());
      weights.d_biases = host_.Allocate<S>(panels_.count() * width);
    }
    ldh_ = std::max(padded(config_.hidden()), panels_.padded_units());
    ld_full_ = std::max(padded(config_.units), panels_.padded_units());
    ld_input_ = padded(widest_);
    const int64_t most = (config_.batch + parts_ - 1) / parts_;
    chunk_steps_ = std::min(config_.time, std::max<int64_t>(1, kChunkRows / most));
    most_rows_ = chunk_steps_ * most;
    constexpr bool same = std::is_same<T, S>::value;
    slice_.resize(slices_);
    for (int64_t i = 0; i < slices_; ++i) {
      Slice& slice = slice_[i];
      const int64_t part = i / config_.dirs();
      slice.dir = i % config_.dirs();
      slice.first = config_.batch * part / parts_;
      slice.end = config_.batch * (part + 1) / parts_;
      slice.chunk.Allocate(host_, chunk_steps_, most_rows_);
      slice.inputs.Allocate(host_, config_, most_rows_);
      slice.dsums = host_.Allocate<S>(panels_.count() * most_rows_ * width);
      slice.h = host_.Allocate<const S*>(most_rows_);
      slice.h_copies =
          same ? nullptr : host_.Allocate<S>(config_.hidden() * most_rows_);
      slice.full = slice.dfull = slice.dprojected = nullptr;
      if (config_.projection) {
        slice.full = host_.Allocate<S>(config_.units * most_rows_);
        slice.dfull = host_.Allocate<S>(most * ld_full_);
        slice.dprojected = host_.Allocate<S>(projected_.count() * most_rows_ * width);
      }
      slice.h_before = host_.Allocate<const T*>(most_rows_);
      slice.c_before = host_.Allocate<const T*>(most_rows_);
      slice.rows = host_.Allocate<const S*>(most_rows_);
      slice.last_rows = host_.Allocate<const S*>(most_rows_);
    }
    states_.resize(live * slices_);
    for (States& states : states_) {
      states.dh = host_.Allocate<S>(most * ldh_);
      states.dc = host_.Allocate<S>(most * panels_.padded_units());
    }
    for (int64_t part = 0; part < parts_; ++part) {
      dx_.push_back(host_.Allocate<S>(most_rows_ * ld_input_));
    }
    task_rows_ = host_.Allocate<const S*>(config_.dirs() * projected_.count() * most_rows_);
    if (config_.layers > 1 && !together_) {
      const int64_t size = config_.time * config_.batch * config_.width();
      // Two directions cannot write over what both still read.
      for (S*& between : between_) between = host_.Allocate<S>(size);
    }
  }

  void Pack(int64_t layer) {
    const int64_t in = config_.layer_input(layer);
    const int64_t width = panels_.width();
    const int64_t inputs = config_.has_input_weights(layer) ? (in + width - 1) / width : 0;
    const int64_t states = (config_.hidden() + width - 1) / width;
    const double size = 8.0 * config_.dirs() * config_.gates() * config_.units *
                        (in + config_.hidden());
    opwright::Run(
        host_, config_.dirs() * (inputs + states), size, [&](int64_t i) {
          const int64_t dir = i / (inputs + states);
          const int64_t panel = i % (inputs + states);
          const LayerParams& at = layout_[layer * config_.dirs() + dir];
          const int64_t stride = panels_.packed_rows() * width;
          if (panel < inputs) {
            PackColumns(panels_, 0, panel, call_.params + at.input_weights, in,
                        weights_[dir].input + panel * stride);
          } else {
            PackColumns(panels_, panels_.recurrent_vector(), panel - inputs,
                        call_.params + at.recurrent_weights, config_.hidden(),
                        weights_[dir].recurrent + (panel - inputs) * stride);
          }
        });
    if (!config_.projection) return;
    for (int64_t dir = 0; dir < config_.dirs(); ++dir) {
      const LayerParams& at = layout_[layer * config_.dirs() + dir];
      const int64_t stride = projected_.padded_units() * width;
      for (int64_t panel = 0; panel * width < config_.units; ++panel) {
        PackColumns(projected_, 0, panel, call_.params + at.projection, config_.units,
                    weights_[dir].projection + panel * stride);
      }
    }
  }

  // Gradients begin at those of the final states, or at zero.
  void Clear(int64_t layer) {
    const int64_t inner = panels_.packed_rows();
    const int64_t in = config_.has_input_weights(layer) ? config_.layer_input(layer) : 0;
    for (int64_t dir = 0; dir < config_.dirs(); ++dir) {
      const Weights& weights = weights_[dir];
      std::fill_n(weights.d_input, inner * in, S(0));
      std::fill_n(weights.d_recurrent, inner * config_.hidden(), S(0));
      std::fill_n(weights.d_projection, config_.units * projected_.padded_units(), S(0));
      std::fill_n(weights.d_biases, panels_.count() * panels_.width(), S(0));
    }
    for (const Slice& slice : slice_) {
      const int64_t pseudo = layer * config_.dirs() + slice.dir;
      const int64_t count = slice.end - slice.first;
      std::fill_n(slice.dh, count * ldh_, S(0));
      std::fill_n(slice.dc, count * panels_.padded_units(), S(0));
      for (int64_t b = 0; b < count; ++b) {
        const int64_t state = pseudo * config_.batch + slice.first + b;
        kernels_.add(config_.hidden(), call_.output_h_backprop + state * config_.hidden(),
                     slice.dh + b * ldh_);
        if (config_.cell != Cell::kLstm) continue;
        kernels_.add(config_.units, call_.output_c_backprop + state * config_.units,
                     slice.dc + b * panels_.padded_units());
      }
    }
    // Padding gets no gradient; two directions add theirs up.
    if (layer == 0) {
      if (!call_.lengths && !config_.bidirectional) return;
      std::memset(static_cast<void*>(call_.input_backprop), 0,
                  config_.time * config_.batch * config_.input_size * sizeof(T));
    } else if (!together_) {
      std::fill_n(between_[layer % 2], config_.time * config_.batch * config_.width(), S(0));
    }
  }

  Sequence<const T> Output(int64_t layer) const {
    const int64_t width = config_.width();
    if (layer == config_.layers - 1) {
      return Sequence<const T>::Of(call_.output, config_, config_.time_major, width);
    }
    return Sequence<const T>::Of(
        call_.reserve + reserve_.hidden + layer * config_.time * config_.batch * width, config_,
        true, width);
  }

  // A chunk's steps, last to first: the gradients of its sums, and of the states before it.
  void RunSlice(int64_t layer, int64_t index, int64_t step) {
    Slice& slice = slice_[index];
    Chunk& chunk = slice.chunk;
    chunk.Fill(config_, slice.dir, call_.lengths, slice.first, slice.end, step,
               std::min(config_.time, step + chunk_steps_));
    const int64_t pseudo = layer * config_.dirs() + slice.dir;
    const Sequence<const T> y = Output(layer);
    const int64_t offset = slice.dir * config_.hidden();
    for (int64_t m = 0; m < chunk.rows; ++m) {
      const Chunk::Row row = chunk.row[m];
      const int64_t last = (call_.lengths ? call_.lengths[row.b] : config_.time) - 1;
      const bool first = row.t == (slice.dir == 0 ? 0 : last);
      const int64_t before = slice.dir == 0 ? row.t - 1 : row.t + 1;
      const int64_t state = pseudo * config_.batch + row.b;
      slice.h_before[m] = first ? call_.input_h + state * config_.hidden()
                                : y.at(before, row.b) + offset;
      if (config_.cell != Cell::kLstm) continue;
      slice.c_before[m] = first ? call_.input_c + state * config_.units
                                : Cells(pseudo, before, row.b);
    }
    if (config_.has_input_weights(layer)) {
      const Dropout dropout(config_, call_.nonce, layer);
      const Sequence<const T> from =
          layer == 0 ? Sequence<const T>::Of(call_.input, config_, config_.time_major,
                                             config_.input_size)
                     : Output(layer - 1);
      slice.x = slice.inputs.Read(
          config_, layer, config_.drops() && layer > 0 ? &dropout : nullptr, from, chunk);
    }
    for (int64_t m = 0; m < chunk.rows; ++m) {
      if constexpr (std::is_same<T, S>::value) {
        slice.h[m] = slice.h_before[m];
      } else {
        S* const copy = slice.h_copies + m * config_.hidden();
        for (int64_t i = 0; i < config_.hidden(); ++i) copy[i] = Load(slice.h_before[m][i]);
        slice.h[m] = copy;
      }
    }
    for (int64_t s = chunk.steps - 1; s >= 0; --s) Step(layer, index, s);
  }

  const T* Gates(int64_t pseudo, int64_t t, int64_t b) const {
    return call_.reserve + reserve_.gates +
           ((pseudo * config_.time + t) * config_.batch + b) * 4 * config_.units;
  }
  const T* Cells(int64_t pseudo, int64_t t, int64_t b) const {
    return call_.reserve + reserve_.cells +
           ((pseudo * config_.time + t) * config_.batch + b) * config_.units;
  }

  void Step(int64_t layer, int64_t index, int64_t s) {
    Slice& slice = slice_[index];
    const Chunk& chunk = slice.chunk;
    const int64_t begin = chunk.begin[s];
    const int64_t rows = chunk.begin[s + 1] - begin;
    if (rows == 0) return;
    const int32_t* place = chunk.place + begin;
    const int64_t t = chunk.row[begin].t;
    const int64_t pseudo = layer * config_.dirs() + slice.dir;
    const int64_t offset = slice.dir * config_.hidden();
    const Weights& weights = weights_[slice.dir];

    AddOutputGradient(layer, index, begin, rows, offset);
    if (config_.projection) Unproject(slice, pseudo, begin, rows, place);

    const Sequence<const T> y = Output(layer);
    S* const dstate = config_.projection ? slice.dfull : slice.dh;
    const int64_t ld_state = config_.projection ? ld_full_ : ldh_;
    for (int64_t panel = 0; panel < panels_.count(); ++panel) {
      const int64_t unit = panel * panels_.panel_units();
      CellBackward<T> cell{};
      cell.cell = config_.cell;
      cell.rows = rows;
      cell.units = panels_.units_of(panel);
      cell.unit = unit;
      cell.row = place;
      cell.dh = dstate + unit;
      cell.ld_dh = ld_state;
      cell.dh_before = dstate + unit;
      cell.ld_before = ld_state;
      cell.dc = slice.dc + unit;
      cell.ld_dc = panels_.padded_units();
      cell.h_before = slice.h_before + begin;
      cell.c_before = slice.c_before + begin;
      cell.gates = Gates(pseudo, t, slice.first) + unit;
      cell.ld_gates = 4 * config_.units;
      cell.gate_stride = config_.units;
      cell.cells = Cells(pseudo, t, slice.first) + unit;
      cell.ld_cells = config_.units;
      cell.y = y.at(t, slice.first) + offset + unit;
      cell.ldy = y.batch_stride;
      cell.dsums = Sums(slice, panel, begin);
      KernelsOf(kernels_, panels_, panel).backward(cell);
    }
    if (config_.projection) {
      for (int64_t m = 0; m < rows; ++m) std::fill_n(slice.dh + place[m] * ldh_, ldh_, S(0));
    }
    MultiplySums(slice, begin, rows, panels_.recurrent_vector(), weights.recurrent,
                 config_.hidden(), slice.dh, ldh_, place, cuts_);
  }

  // The gradients of a chunk's sums, from one row on.
  S* Sums(const Slice& slice, int64_t panel, int64_t row) const {
    return slice.dsums + panel * most_rows_ * panels_.width() + row * panels_.width_of(panel);
  }

  // out += the gradients of sums times packed weights.
  void MultiplySums(Slice& slice, int64_t begin, int64_t rows, int first_vector,
                    const S* weights, int64_t columns, S* out, int64_t ld,
                    const int32_t* place, int64_t cuts) {
    const int64_t width = panels_.width();
    const int64_t full = panels_.full();
    for (int64_t m = 0; m < rows; ++m) {
      slice.rows[m] = Sums(slice, 0, begin + m) + first_vector * panels_.lanes_of(0);
      slice.last_rows[m] = Sums(slice, panels_.count() - 1, begin + m) +
                           first_vector * panels_.last_lanes;
    }
    const int64_t full_rows = full * panels_.vectors() * panels_.lanes;
    const Panels to = PlainPanels(panels_.lanes, columns);
    const double operations = 2.0 * rows * panels_.packed_rows() * columns;
    RunCut(host_, cuts, to.count(), operations, [&](int64_t panel) {
      const S* const b = weights + panel * panels_.packed_rows() * width;
      if (full > 0) {
        kernels_.product({rows, slice.rows, full, panels_.packed_width(0), most_rows_ * width, b,
                          width, out + panel * width, ld, place, to.vectors_of(panel)});
      }
      if (full < panels_.count()) {
        kernels_.product({rows, slice.last_rows, 1, panels_.packed_width(full), 0,
                          b + full_rows * width, width, out + panel * width, ld, place,
                          to.vectors_of(panel)});
      }
    });
  }

  void AddOutputGradient(int64_t layer, int64_t index, int64_t begin, int64_t rows,
                         int64_t offset) {
    Slice& slice = slice_[index];
    const int64_t width = config_.width();
    const bool last = layer == config_.layers - 1;
    const Sequence<const T> dy =
        Sequence<const T>::Of(call_.output_backprop, config_, config_.time_major, width);
    for (int64_t m = begin; m < begin + rows; ++m) {
      const Chunk::Row row = slice.chunk.row[m];
      S* dh = slice.dh + slice.chunk.place[m] * ldh_;
      if (last) {
        kernels_.add(config_.hidden(), dy.at(row.t, row.b) + offset, dh);
      } else if (together_) {
        compute_.add(config_.hidden(), dx_[index / config_.dirs()] + m * ld_input_, dh);
      } else {
        compute_.add(config_.hidden(),
                     between_[(layer + 1) % 2] + (row.t * config_.batch + row.b) * width +
                         offset,
                     dh);
      }
    }
  }

  // From the gradient of the projected state to that of the full one.
  void Unproject(Slice& slice, int64_t pseudo, int64_t begin, int64_t rows,
                 const int32_t* place) {
    const int64_t width = projected_.width();
    const int64_t t = slice.chunk.row[begin].t;
    for (int64_t m = 0; m < rows; ++m) {
      const S* dh = slice.dh + place[m] * ldh_;
      slice.rows[m] = dh;
      for (int64_t panel = 0; panel < projected_.count(); ++panel) {
        S* to = slice.dprojected + (panel * most_rows_ + begin + m) * width;
        const int64_t present = projected_.units_of(panel);
        std::copy_n(dh + panel * width, present, to);
        std::fill_n(to + present, width - present, S(0));
      }
      std::fill_n(slice.dfull + place[m] * ld_full_, ld_full_, S(0));
      const int64_t b = slice.first + place[m];
      const T* output_gate = Gates(pseudo, t, b) + 3 * config_.units;
      const T* cells = Cells(pseudo, t, b);
      for (int64_t i = 0; i < config_.units; ++i) {
        slice.full[(begin + m) * config_.units + i] =
            Load(output_gate[i]) * std::tanh(Load(cells[i]));
      }
    }
    const int64_t stride = projected_.padded_units() * width;
    const Panels units = PlainPanels(panels_.lanes, config_.units);
    for (int64_t panel = 0; panel < units.count(); ++panel) {
      kernels_.product({rows, slice.rows, 1, config_.projection, 0,
                        weights_[slice.dir].projection + panel * stride, width,
                        slice.dfull + panel * width, ld_full_, place, units.vectors_of(panel)});
    }
  }

  // Of one part of the batch, from both directions.
  void InputGradient(int64_t layer, int64_t part) {
    const Dropout dropout(config_, call_.nonce, layer);
    const int64_t in = config_.layer_input(layer);
    S* const dx = dx_[part];
    for (int64_t dir = 0; dir < config_.dirs(); ++dir) {
      Slice& slice = slice_[part * config_.dirs() + dir];
      const Chunk& chunk = slice.chunk;
      for (int64_t m = 0; m < chunk.rows; ++m) {
        std::fill_n(dx + m * ld_input_, ld_input_, S(0));
      }
      if (config_.has_input_weights(layer)) {
        MultiplySums(slice, 0, chunk.rows, 0, weights_[dir].input, in, dx, ld_input_, nullptr, 1);
      } else {
        AddSkipped(slice, dx);
      }
      for (int64_t m = 0; m < chunk.rows; ++m) {
        const Chunk::Row row = chunk.row[m];
        S* const from = dx + m * ld_input_;
        if (layer == 0) {
          T* to = Sequence<T>::Of(call_.input_backprop, config_, config_.time_major, in)
                      .at(row.t, row.b);
          if (config_.bidirectional) kernels_.add(in, to, from);
          for (int64_t i = 0; i < in; ++i) Store(from[i], to + i);
          continue;
        }
        const uint64_t at = static_cast<uint64_t>(row.t * config_.batch + row.b) * in;
        if (config_.drops()) {
          for (int64_t i = 0; i < in; ++i) from[i] *= static_cast<S>(dropout.Factor(at + i));
        }
        if (!together_) compute_.add(in, from, between_[layer % 2] + at);
      }
    }
  }

  // Without weights the input is part of every gate's sum.
  void AddSkipped(const Slice& slice, S* dx) const {
    for (int64_t panel = 0; panel < panels_.count(); ++panel) {
      const int64_t lanes = panels_.lanes_of(panel);
      for (int vector = 0; vector < panels_.vectors(); ++vector) {
        for (int64_t lane = 0; lane < lanes; ++lane) {
          const int64_t row = panels_.row(panel, vector, lane);
          if (row < 0) continue;
          for (int64_t m = 0; m < slice.chunk.rows; ++m) {
            dx[m * ld_input_ + row % config_.units] +=
                Sums(slice, panel, m)[vector * lanes + lane];
          }
        }
      }
    }
  }

  // Of one panel of one direction, from all parts of the batch.
  void WeightGradient(int64_t layer, int64_t task) {
    const int64_t dir = task / panels_.count();
    const int64_t panel = task % panels_.count();
    const int64_t width = panels_.width_of(panel);
    const Weights& weights = weights_[dir];
    const Kernels<S>& kernels = KernelsOf(compute_, panels_, panel);
    const int64_t packed = panels_.packed_width(panel);
    const int64_t in = config_.layer_input(layer);
    const int64_t hidden = config_.hidden();
    for (int64_t part = 0; part < parts_; ++part) {
      const Slice& slice = slice_[part * config_.dirs() + dir];
      const S* dsums = Sums(slice, panel, 0);
      const int64_t count = slice.chunk.rows;
      if (config_.has_input_weights(layer)) {
        kernels.outer_product({in, count, slice.x, dsums, width,
                               weights.d_input + panel * in * panels_.packed_width(0), packed,
                               panels_.vectors()});
      }
      kernels.outer_product({hidden, count, slice.h,
                             dsums + panels_.recurrent_vector() * kernels.lanes, width,
                             weights.d_recurrent + panel * hidden * panels_.packed_width(0),
                             packed, panels_.vectors()});
      kernels.sum_rows(count, dsums, weights.d_biases + panel * panels_.width());
    }
  }

  void ProjectionGradient(int64_t task) {
    const int64_t dir = task / projected_.count();
    const int64_t panel = task % projected_.count();
    const int64_t width = projected_.width();
    const S** rows = task_rows_ + task * most_rows_;
    for (int64_t part = 0; part < parts_; ++part) {
      const Slice& slice = slice_[part * config_.dirs() + dir];
      for (int64_t m = 0; m < slice.chunk.rows; ++m) rows[m] = slice.full + m * config_.units;
      kernels_.outer_product({config_.units, slice.chunk.rows, rows,
                              slice.dprojected + panel * most_rows_ * width, width,
                              weights_[dir].d_projection + panel * config_.units * width, width,
                              4});
    }
  }

  void Finish(int64_t layer) {
    Enter(layer);
    const int64_t in = config_.layer_input(layer);
    const int64_t hidden = config_.hidden();
    const double size =
        8.0 * config_.dirs() * config_.gates() * config_.units * (in + hidden);
    opwright::Run(
        host_, config_.dirs() * panels_.count(), size, [&](int64_t i) {
          const int64_t dir = i / panels_.count();
          const int64_t panel = i % panels_.count();
          const LayerParams& at = layout_[layer * config_.dirs() + dir];
          const Weights& weights = weights_[dir];
          if (config_.has_input_weights(layer)) {
            UnpackRows(panels_, 0, panel, weights.d_input + panel * in * panels_.packed_width(0), in,
                       call_.params_backprop + at.input_weights);
          }
          UnpackRows(panels_, panels_.recurrent_vector(), panel,
                     weights.d_recurrent + panel * hidden * panels_.packed_width(0), hidden,
                     call_.params_backprop + at.recurrent_weights);
        });
    for (int64_t dir = 0; dir < config_.dirs(); ++dir) {
      const LayerParams& at = layout_[layer * config_.dirs() + dir];
      UnpackBiases(panels_, weights_[dir].d_biases, call_.params_backprop + at.input_bias,
                   call_.params_backprop + at.recurrent_bias);
      for (int64_t panel = 0; panel < projected_.count(); ++panel) {
        UnpackRows(projected_, 0, panel,
                   weights_[dir].d_projection + panel * config_.units * projected_.width(),
                   config_.units, call_.params_backprop + at.projection);
      }
    }
    for (const Slice& slice : slice_) {
      const int64_t pseudo = layer * config_.dirs() + slice.dir;
      for (int64_t b = 0; b < slice.end - slice.first; ++b) {
        const int64_t state = pseudo * config_.batch + slice.first + b;
        for (int64_t i = 0; i < hidden; ++i) {
          Store(slice.dh[b * ldh_ + i], call_.input_h_backprop + state * hidden + i);
        }
        if (config_.cell != Cell::kLstm) continue;
        for (int64_t i = 0; i < config_.units; ++i) {
          Store(slice.dc[b * panels_.padded_units() + i],
                call_.input_c_backprop + state * config_.units + i);
        }
      }
    }
  }

  const Config& config_;
  const BackwardCall<T>& call_;
  Host& host_;
  const Kernels<T>& kernels_;
  const Kernels<S>& compute_;
  const std::vector<LayerParams> layout_;
  const Reserve reserve_;
  const Panels panels_;
  const Panels projected_;
  const int64_t parts_;   // Of the batch.
  const int64_t slices_;  // Parts times directions.
  const int64_t cuts_;    // Of the panels of a step's product.
  int64_t widest_, ldh_, ld_full_, ld_input_, chunk_steps_, most_rows_;
  // Layers go through the steps together, chunk by chunk, so that what passes from one to
  // the next is as short as a chunk. Two directions run against each other: theirs cannot.
  const bool together_;
  Weights weights_[2];                 // The present layer's, by direction.
  std::vector<Weights> all_weights_;   // By layer and direction; one layer's if not together.
  std::vector<States> states_;         // By layer and slice, likewise.
  std::vector<Slice> slice_;
  std::vector<S*> dx_;    // By part: [row of the chunk][ld_input]
  const S** task_rows_;   // By task of a projection: row pointers.
  S* between_[2] = {nullptr, nullptr};  // Gradients of outputs between layers.
};

}  // namespace

template <class T>
void Backward(const Config& config, const BackwardCall<T>& call, Host& host) {
  BackwardPass<T>(config, call, host).Run();
}

template void Backward(const Config&, const BackwardCall<float>&, Host&);
template void Backward(const Config&, const BackwardCall<double>&, Host&);
template void Backward(const Config&, const BackwardCall<Half>&, Host&);
template void Backward(const Config&, const BackwardCall<BFloat16>&, Host&);

}  // namespace opwright
