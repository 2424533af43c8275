#include <utility>
#include <vector>

#include "layers.h"
#include "rnn.h"
#include "weights.h"

namespace opwright {
namespace {

// Rows that one pass over the input's weights serves: enough to hide fetching the
// weights, few enough that their sums stay in the cache.
constexpr int64_t kChunkRows = 64;

// Up to so many rows in the whole call, weights are read where they are: to pack them would
// cost as much as using them.
constexpr int64_t kDirectRows = 2;

template <class T>
class ForwardPass {
 public:
  using S = Compute<T>;

  ForwardPass(const Config& config, const ForwardCall<T>& call, Host& host)
      : config_(config),
        call_(call),
        host_(host),
        kernels_(SelectKernels<T>()),
        layout_(ParamsLayout(config)),
        panels_(CellPanels(kernels_, config)),
        projected_(PlainPanels(kernels_.lanes, config.projection)),
        parts_(CutBatch(config, host)),
        slices_(config.dirs() * parts_),
        cuts_(CutPanels(host, slices_, panels_.count())),
        direct_(config.time * config.batch <= kDirectRows && config.projection == 0),
        packing_(config, kernels_, direct_) {
    Allocate();
  }

  void Run() {
    Sequence<const T> from =
        Sequence<const T>::Of(call_.input, config_, config_.time_major, config_.input_size);
    for (int64_t layer = 0; layer < config_.layers; ++layer) {
      Prepare(layer);
      const Sequence<T> to = Output(layer);
      const double operations = 2.0 * config_.time * config_.batch * config_.dirs() *
                                config_.gates() * config_.units *
                                (config_.layer_input(layer) + config_.hidden());
      opwright::Run(host_, slices_, operations,
                    [&](int64_t i) { RunSlice(layer, i, from, to); });
      from = {to.data, to.time_stride, to.batch_stride};
    }
  }

 private:
  // One direction of one part of the batch.
  struct Slice {
    int64_t dir, first, end;
    Chunk chunk;
    Inputs<T> inputs;
    S* sums;              // [panel][row of the chunk][panel width]
    S* h;                 // [sequence][ldh], before and after a step.
    S* h_next;
    S* full;              // [sequence][padded units], before the projection.
    S* c;                 // [sequence][padded units]
    const S** h_rows;     // By row of a step.
  };

  void Allocate() {
    if (!config_.training && !direct_ && call_.cache) {
      cached_ = call_.cache->Get(config_, call_.params, host_);
      block_ = cached_.get();
    } else {
      block_ = host_.Allocate<S>(packing_.LargestSize());
    }
    ldh_ = config_.projection ? projected_.padded_units() : panels_.padded_units();
    const int64_t most = (config_.batch + parts_ - 1) / parts_;
    chunk_steps_ = std::min(config_.time, std::max<int64_t>(1, kChunkRows / most));
    most_rows_ = chunk_steps_ * most;
    slice_.resize(slices_);
    for (int64_t i = 0; i < slices_; ++i) {
      Slice& slice = slice_[i];
      const int64_t part = i / config_.dirs();
      slice.dir = i % config_.dirs();
      slice.first = config_.batch * part / parts_;
      slice.end = config_.batch * (part + 1) / parts_;
      slice.chunk.Allocate(host_, chunk_steps_, most_rows_);
      slice.inputs.Allocate(host_, config_, most_rows_);
      slice.sums = host_.Allocate<S>(panels_.count() * most_rows_ * panels_.width());
      slice.h = host_.Allocate<S>(most * ldh_);
      slice.h_next = host_.Allocate<S>(most * ldh_);
      slice.full =
          config_.projection ? host_.Allocate<S>(most * panels_.padded_units()) : nullptr;
      slice.c = host_.Allocate<S>(most * panels_.padded_units());
      slice.h_rows = host_.Allocate<const S*>(most);
    }
    // Two directions cannot write over what both still read.
    if (!config_.training && config_.bidirectional && config_.layers > 1) {
      between_ = host_.Allocate<T>(config_.time * config_.batch * config_.width());
    }
  }

  Sequence<T> Output(int64_t layer) const {
    const int64_t width = config_.width();
    const int64_t after = config_.layers - 1 - layer;
    if (after > 0 && config_.training) {
      const Reserve reserve(config_, sizeof(T));
      return Sequence<T>::Of(
          call_.reserve + reserve.hidden + layer * config_.time * config_.batch * width,
          config_, true, width);
    }
    if (after % 2 == 1 && between_) return Sequence<T>::Of(between_, config_, true, width);
    return Sequence<T>::Of(call_.output, config_, config_.time_major, width);
  }

  // Makes weights_ those of a layer, of which all before have been prepared.
  void Prepare(int64_t layer) {
    if (!cached_) {
      packing_.Pack(layer, call_.params, block_, host_);
    } else if (layer > 0) {
      block_ += packing_.Size(layer - 1);
    }
    for (int64_t dir = 0; dir < config_.dirs(); ++dir) {
      weights_[dir] = packing_.At(block_, layer, dir);
    }
  }

  void RunSlice(int64_t layer, int64_t index, const Sequence<const T>& from,
                const Sequence<T>& to) {
    Slice& slice = slice_[index];
    const int64_t pseudo = layer * config_.dirs() + slice.dir;
    const int64_t count = slice.end - slice.first;
    const int64_t hidden = config_.hidden();
    const int64_t offset = slice.dir * hidden;
    const bool lstm = config_.cell == Cell::kLstm;

    // Padding stays zero, or whatever a panel without weights makes of zero.
    std::fill_n(slice.h, count * ldh_, S(0));
    std::fill_n(slice.h_next, count * ldh_, S(0));
    std::fill_n(slice.c, count * panels_.padded_units(), S(0));
    for (int64_t b = 0; b < count; ++b) {
      const int64_t state = pseudo * config_.batch + slice.first + b;
      for (int64_t i = 0; i < hidden; ++i) {
        slice.h[b * ldh_ + i] = Load(call_.input_h[state * hidden + i]);
      }
      if (!lstm) continue;
      for (int64_t i = 0; i < config_.units; ++i) {
        slice.c[b * panels_.padded_units() + i] =
            Load(call_.input_c[state * config_.units + i]);
      }
    }

    const Dropout dropout(config_, call_.nonce, layer);
    const bool drops = config_.drops() && layer > 0;
    for (int64_t step = 0; step < config_.time; step += chunk_steps_) {
      Chunk& chunk = slice.chunk;
      chunk.Fill(config_, slice.dir, call_.lengths, slice.first, slice.end, step,
                 std::min(config_.time, step + chunk_steps_));
      SumInputs(layer, slice,
                slice.inputs.Read(config_, layer, drops ? &dropout : nullptr, from, chunk));
      for (int64_t s = 0; s < chunk.steps; ++s) Step(layer, slice, s, to, offset);
    }

    for (int64_t b = 0; b < count; ++b) {
      const int64_t state = pseudo * config_.batch + slice.first + b;
      for (int64_t i = 0; i < hidden; ++i) {
        Store(slice.h[b * ldh_ + i], call_.output_h + state * hidden + i);
      }
      if (!lstm) continue;
      for (int64_t i = 0; i < config_.units; ++i) {
        Store(slice.c[b * panels_.padded_units() + i],
              call_.output_c + state * config_.units + i);
      }
    }
  }

  // sums += weights times rows for one panel, from the weights as they are.
  void AddDirectly(const T* weights, int64_t columns, int first_vector, int64_t panel,
                   int64_t count, const S* const* rows, S* sums) {
    const int64_t lanes = panels_.lanes_of(panel);
    const Kernels<T>& kernels = KernelsOf(kernels_, panels_, panel);
    for (int vector = first_vector; vector < first_vector + panels_.vectors(); ++vector) {
      const int64_t first = panels_.row(panel, vector, 0);
      if (first < 0) continue;
      const int64_t present = std::min<int64_t>(
          lanes, panels_.units_of(panel) - (panels_.plain() ? vector * lanes : 0));
      for (int64_t m = 0; m < count; ++m) {
        kernels.dots(present, columns, weights + first * columns, rows[m],
                     sums + m * 4 * lanes + vector * lanes);
      }
    }
  }

  // The part of a chunk's sums that does not wait for the step before.
  void SumInputs(int64_t layer, Slice& slice, const S* const* rows) {
    const int64_t width = panels_.width();
    const Weights<S>& weights = weights_[slice.dir];
    const double operations = 2.0 * slice.chunk.rows * config_.gates() * config_.units *
                              config_.layer_input(layer);
    RunCut(host_, cuts_, panels_.count(), operations, [&](int64_t panel) {
      const Kernels<T>& kernels = KernelsOf(kernels_, panels_, panel);
      S* sums = slice.sums + panel * most_rows_ * width;
      kernels.fill(slice.chunk.rows, weights.biases + panel * width, sums);
      if (direct_ && config_.has_input_weights(layer)) {
        const int64_t pseudo = layer * config_.dirs() + slice.dir;
        AddDirectly(call_.params + layout_[pseudo].input_weights, config_.layer_input(layer),
                    0, panel, slice.chunk.rows, rows, sums);
        return;
      }
      if (config_.has_input_weights(layer)) {
        kernels.product({slice.chunk.rows, rows, 1, config_.layer_input(layer), 0,
                         weights.input + panel * packing_.input_stride(layer),
                         panels_.packed_width(panel), sums, panels_.width_of(panel), nullptr,
                         panels_.vectors()});
        return;
      }
      for (int64_t m = 0; m < slice.chunk.rows; ++m) {
        for (int vector = 0; vector < panels_.vectors(); ++vector) {
          for (int64_t lane = 0; lane < kernels.lanes; ++lane) {
            const int64_t row = panels_.row(panel, vector, lane);
            if (row < 0) continue;
            sums[(m * 4 + vector) * kernels.lanes + lane] += rows[m][row % config_.units];
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
    const int64_t t = slice.dir == 0 ? step : config_.time - 1 - step;
    const int32_t* place = chunk.place + begin;
    if (rows < slice.end - slice.first) Pad(slice, t, to, offset);
    if (rows == 0) return;

    for (int64_t m = 0; m < rows; ++m) slice.h_rows[m] = slice.h + place[m] * ldh_;
    const Weights<S>& weights = weights_[slice.dir];
    const int64_t width = panels_.width();
    T* const y = to.at(t, slice.first) + offset;
    const Kept kept = config_.training ? KeptAt(layer, slice, t) : Kept{};
    S* const state = config_.projection ? slice.full : slice.h_next;
    const int64_t ld_state = config_.projection ? panels_.padded_units() : ldh_;
    const double operations =
        2.0 * rows * config_.gates() * config_.units * config_.hidden();
    RunCut(host_, cuts_, panels_.count(), operations, [&](int64_t panel) {
      const Kernels<T>& kernels = KernelsOf(kernels_, panels_, panel);
      S* sums = slice.sums + panel * most_rows_ * width + begin * panels_.width_of(panel);
      if (direct_) {
        const int64_t pseudo = layer * config_.dirs() + slice.dir;
        AddDirectly(call_.params + layout_[pseudo].recurrent_weights, config_.hidden(),
                    panels_.recurrent_vector(), panel, rows, slice.h_rows, sums);
      } else {
        kernels.product({rows, slice.h_rows, 1, config_.hidden(), 0,
                         weights.recurrent + panel * packing_.recurrent_stride(),
                         panels_.packed_width(panel),
                         sums + panels_.recurrent_vector() * kernels.lanes,
                         panels_.width_of(panel), nullptr, panels_.vectors()});
      }
      const int64_t unit = panel * panels_.panel_units();
      CellForward<T> cell{};
      cell.cell = config_.cell;
      cell.rows = rows;
      cell.units = panels_.units_of(panel);
      cell.row = place;
      cell.sums = sums;
      cell.h = state + unit;
      cell.h_before = slice.h + unit;
      cell.c = slice.c + unit;
      cell.ldh = ld_state;
      cell.ldc = panels_.padded_units();
      cell.y = config_.projection ? nullptr : y + unit;
      cell.ldy = to.batch_stride;
      cell.gates = kept.gates ? kept.gates + unit : nullptr;
      cell.ld_gates = 4 * config_.units;
      cell.gate_stride = config_.units;
      cell.cells = kept.cells ? kept.cells + unit : nullptr;
      cell.ld_cells = config_.units;
      kernels.forward(cell);
    });
    if (config_.projection) Project(slice, rows, place, y, to.batch_stride);
    std::swap(slice.h, slice.h_next);
  }

  // Sequences that have ended, or in reverse not begun, put out zeros and keep their state.
  void Pad(Slice& slice, int64_t t, const Sequence<T>& to, int64_t offset) {
    for (int64_t b = slice.first; b < slice.end; ++b) {
      if (t < call_.lengths[b]) continue;
      std::memset(static_cast<void*>(to.at(t, b) + offset), 0,
                  config_.hidden() * sizeof(T));
      const int64_t at = (b - slice.first) * ldh_;
      std::copy_n(slice.h + at, ldh_, slice.h_next + at);
    }
  }

  struct Kept {
    T* gates = nullptr;
    T* cells = nullptr;
  };

  Kept KeptAt(int64_t layer, const Slice& slice, int64_t t) const {
    const Reserve reserve(config_, sizeof(T));
    const int64_t pseudo = layer * config_.dirs() + slice.dir;
    const int64_t at = ((pseudo * config_.time + t) * config_.batch + slice.first);
    Kept kept;
    if (reserve.kept_gates) kept.gates = call_.reserve + reserve.gates + at * 4 * config_.units;
    if (config_.cell == Cell::kLstm) {
      kept.cells = call_.reserve + reserve.cells + at * config_.units;
    }
    return kept;
  }

  void Project(Slice& slice, int64_t rows, const int32_t* place, T* y, int64_t ldy) {
    for (int64_t m = 0; m < rows; ++m) {
      slice.h_rows[m] = slice.full + place[m] * panels_.padded_units();
      std::fill_n(slice.h_next + place[m] * ldh_, ldh_, S(0));
    }
    const int64_t width = projected_.width();
    for (int64_t panel = 0; panel < projected_.count(); ++panel) {
      kernels_.product({rows, slice.h_rows, 1, config_.units, 0,
                        weights_[slice.dir].projection + panel * config_.units * width,
                        width, slice.h_next + panel * width, ldh_, place, 4});
    }
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t i = 0; i < config_.projection; ++i) {
        Store(slice.h_next[place[m] * ldh_ + i], y + place[m] * ldy + i);
      }
    }
  }

  const Config& config_;
  const ForwardCall<T>& call_;
  Host& host_;
  const Kernels<T>& kernels_;
  const std::vector<LayerParams> layout_;
  const Panels panels_;
  const Panels projected_;
  const int64_t parts_;   // Of the batch.
  const int64_t slices_;  // Parts times directions.
  const int64_t cuts_;    // Of a step's panels.
  const bool direct_;     // Weights stay as they are.
  const Packing<T> packing_;
  int64_t ldh_, chunk_steps_, most_rows_;
  std::shared_ptr<S> cached_;
  S* block_ = nullptr;    // The present layer's.
  Weights<S> weights_[2];
  std::vector<Slice> slice_;
  T* between_ = nullptr;
};

}  // namespace

template <class T>
void Forward(const Config& config, const ForwardCall<T>& call, Host& host) {
  if (config.training) {
    const ReserveHeader header = MakeHeader(config, sizeof(T), call.nonce);
    std::memcpy(static_cast<void*>(call.reserve), &header, sizeof header);
  }
  ForwardPass<T>(config, call, host).Run();
}

template void Forward(const Config&, const ForwardCall<float>&, Host&);
template void Forward(const Config&, const ForwardCall<double>&, Host&);
template void Forward(const Config&, const ForwardCall<Half>&, Host&);
template void Forward(const Config&, const ForwardCall<BFloat16>&, Host&);

}  // namespace opwright
