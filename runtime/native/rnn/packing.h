// The layout of a layer's weights for the kernels. Weights lie in contiguous panels of columns,
// so that a product reads them sequentially.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/float16.h"
#include "rnn/kernels/kernels.h"
#include "rnn/layout.h"
#include "rnn/spec.h"

namespace opwright::rnn {

struct Panels {
  Cell cell;
  int64_t lanes;
  int64_t units;
  int64_t last_lanes;  // The number of lanes of the last panel.

  bool plain() const { return cell != Cell::kLstm && cell != Cell::kGru; }
  int64_t width() const { return 4 * lanes; }
  int64_t panel_units() const { return plain() ? width() : lanes; }
  int64_t count() const { return (units + panel_units() - 1) / panel_units(); }
  int64_t lanes_of(int64_t panel) const { return panel + 1 < count() ? lanes : last_lanes; }
  int64_t width_of(int64_t panel) const { return 4 * lanes_of(panel); }
  int64_t units_of(int64_t panel) const {
    return std::min(panel_units(), units - panel * panel_units());
  }
  int64_t padded_units() const {
    if (units == 0) return 0;
    return (count() - 1) * panel_units() + (plain() ? 4 : 1) * last_lanes;
  }
  // Returns the number of panels that have all lanes.
  int64_t full() const { return last_lanes < lanes ? count() - 1 : count(); }

  // The input's weights fill the first vectors() vectors of a panel. The weights of the hidden
  // state fill vectors() vectors from recurrent_vector() on. The two ranges differ only for a
  // GRU, whose candidate needs the sum over the input and the sum over the hidden state
  // separately.
  int vectors() const { return cell == Cell::kGru ? 3 : 4; }
  int recurrent_vector() const { return cell == Cell::kGru ? 1 : 0; }
  // packed_width is the packed width of one panel. packed_rows is the sum over all panels.
  int64_t packed_width(int64_t panel) const { return vectors() * lanes_of(panel); }
  int64_t packed_rows() const {
    return units == 0 ? 0 : vectors() * ((count() - 1) * lanes + last_lanes);
  }
  // Returns the number of vectors that contain a unit. This is for a panel of a plain cell.
  int vectors_of(int64_t panel) const {
    return static_cast<int>((units_of(panel) + lanes - 1) / lanes);
  }

  // Returns the row of [gates, units] for a lane of a panel, or -1 if the lane is padding.
  int64_t row(int64_t panel, int vector, int64_t lane) const {
    static constexpr int kGru[] = {2, 0, 1, 2};
    const int64_t unit =
        panel * panel_units() + lane + (plain() ? vector * lanes_of(panel) : 0);
    if (unit >= units) return -1;
    const int64_t gate = plain() ? 0 : cell == Cell::kGru ? kGru[vector] : vector;
    return gate * units + unit;
  }
};

// Returns the panels of a cell's units. Kernels of fewer lanes process the last panel if those
// lanes suffice.
template <class T>
Panels CellPanels(const Kernels<T>& kernels, const StackSpec& stack) {
  Panels panels{stack.cell, kernels.lanes, stack.units, kernels.lanes};
  const int64_t left = panels.units_of(panels.count() - 1);
  for (auto* narrow = kernels.narrower; narrow; narrow = narrow->narrower) {
    if ((panels.plain() ? 4 : 1) * narrow->lanes < left) break;
    panels.last_lanes = narrow->lanes;
  }
  return panels;
}

// Returns the kernels that have as many lanes as the panel.
template <class T>
const Kernels<T>& PanelKernels(const Kernels<T>& kernels, const Panels& panels, int64_t panel) {
  const Kernels<T>* fitting = &kernels;
  while (fitting->lanes > panels.lanes_of(panel)) fitting = fitting->narrower;
  return *fitting;
}

// How a product computes some rows of a panel of columns: with which kernels, and with how many
// of their vectors. The last panel of an LSTM, with a quarter of the lanes, is one vector of
// all lanes.
template <class T>
struct PanelProduct {
  const Kernels<T>* kernels;
  int vectors;

  PanelProduct(const Kernels<T>& widest, const Panels& panels, int64_t panel, int64_t rows)
      : kernels(&widest) {
    const int64_t lanes = panels.lanes_of(panel);
    const int64_t width = panels.packed_width(panel);
    // An addition to a sum waits for the one before: wide vectors need other sums meanwhile.
    constexpr int64_t kSums = 4;
    while (kernels->lanes > lanes &&
           (width % kernels->lanes != 0 || width / kernels->lanes * rows < kSums)) {
      kernels = kernels->narrower;
    }
    vectors = static_cast<int>(width / kernels->lanes);
  }
};

// Returns the panels of the columns of a matrix that has no gates.
inline Panels PlainPanels(int64_t lanes, int64_t columns) {
  return {Cell::kTanh, lanes, columns, lanes};
}

// Packs one panel of the rows of `weights`: out[k][vector][lane] = weights[row][k].
template <class T>
void PackRows(const Panels& panels, int first_vector, int64_t panel, const T* weights,
              int64_t columns, Compute<T>* out) {
  const int64_t lanes = panels.lanes_of(panel);
  const int64_t width = panels.packed_width(panel);
  // The number of columns in one cache line of a row.
  constexpr int64_t kBlock = 64 / sizeof(T);
  for (int64_t block = 0; block < columns; block += kBlock) {
    const int64_t count = std::min(columns - block, kBlock);
    for (int vector = 0; vector < panels.vectors(); ++vector) {
      Compute<T>* to = out + block * width + vector * lanes;
      for (int64_t lane = 0; lane < lanes; ++lane, ++to) {
        const int64_t row = panels.row(panel, first_vector + vector, lane);
        if (row < 0) {
          for (int64_t k = 0; k < count; ++k) to[k * width] = 0;
          continue;
        }
        const T* const from = weights + row * columns + block;
        // Prefetch explicitly, because the hardware prefetcher does not follow so many rows at
        // once.
        __builtin_prefetch(from + std::min(columns - block - 1, kBlock));
        for (int64_t k = 0; k < count; ++k) to[k * width] = Load(from[k]);
      }
    }
  }
}

// Packs one panel of the rows of a matrix in Keras's layout: out[k][vector][lane] =
// weights[k][row].
template <class T>
void PackKerasRows(const Panels& panels, int first_vector, int64_t panel, const T* weights,
                   int64_t columns, Compute<T>* out) {
  const int64_t lanes = panels.lanes_of(panel);
  const int64_t gates = panels.plain() ? 1 : panels.cell == Cell::kGru ? 3 : 4;
  int64_t first[4], present[4];
  for (int vector = 0; vector < panels.vectors(); ++vector) {
    const int64_t row = panels.row(panel, first_vector + vector, 0);
    const int64_t before = panels.plain() ? vector * lanes : 0;
    present[vector] = row < 0 ? 0 : std::min(lanes, panels.units_of(panel) - before);
    first[vector] = row < 0 ? 0
                            : KerasGate(panels.cell, row / panels.units) * panels.units +
                                  row % panels.units;
  }
  for (int64_t k = 0; k < columns; ++k, weights += gates * panels.units) {
    for (int vector = 0; vector < panels.vectors(); ++vector, out += lanes) {
      const T* const from = weights + first[vector];
      for (int64_t lane = 0; lane < present[vector]; ++lane) out[lane] = Load(from[lane]);
      for (int64_t lane = present[vector]; lane < lanes; ++lane) out[lane] = 0;
    }
  }
}

// Unpacks one panel that PackRows packed.
template <class T>
void UnpackRows(const Panels& panels, int first_vector, int64_t panel, const Compute<T>* packed,
                int64_t columns, T* weights) {
  const int64_t lanes = panels.lanes_of(panel);
  const int64_t width = panels.packed_width(panel);
  constexpr int64_t kBlock = 64 / sizeof(T);
  for (int64_t block = 0; block < columns; block += kBlock) {
    const int64_t count = std::min(columns - block, kBlock);
    for (int vector = 0; vector < panels.vectors(); ++vector) {
      const Compute<T>* from = packed + block * width + vector * lanes;
      for (int64_t lane = 0; lane < lanes; ++lane, ++from) {
        const int64_t row = panels.row(panel, first_vector + vector, lane);
        if (row < 0) continue;
        T* const to = weights + row * columns + block;
        __builtin_prefetch(to + std::min(columns - block - 1, kBlock), 1);
        for (int64_t k = 0; k < count; ++k) Store(from[k * width], to + k);
      }
    }
  }
}

// Packs one panel of the columns of `weights`: out[panel, vector, lane of row][column].
template <class T>
void PackColumns(const Panels& panels, int first_vector, int64_t column_panel, const T* weights,
                 int64_t columns, Compute<T>* out) {
  const int64_t width = panels.width();
  const int64_t first = column_panel * width;
  const int64_t present = std::min(width, columns - first);
  for (int64_t panel = 0; panel < panels.count(); ++panel) {
    for (int vector = 0; vector < panels.vectors(); ++vector) {
      for (int64_t lane = 0; lane < panels.lanes_of(panel); ++lane, out += width) {
        const int64_t row = panels.row(panel, first_vector + vector, lane);
        const int64_t copied = row < 0 ? 0 : present;
        const T* const from = weights + row * columns + first;
        for (int64_t c = 0; c < copied; ++c) out[c] = Load(from[c]);
        for (int64_t c = copied; c < width; ++c) out[c] = 0;
      }
    }
  }
}

// Packs the initial values of the pre-activations. A value is the sum of both biases. Only for
// the candidate of a GRU, each bias is an initial value of its own.
template <class T>
void PackBiases(const Panels& panels, const T* input, const T* recurrent, Compute<T>* out) {
  for (int64_t panel = 0; panel < panels.count(); ++panel) {
    for (int vector = 0; vector < 4; ++vector) {
      const bool of_input = vector < panels.vectors();
      const bool of_hidden = vector >= panels.recurrent_vector();
      for (int64_t lane = 0; lane < panels.lanes_of(panel); ++lane) {
        const int64_t row = panels.row(panel, vector, lane);
        Compute<T> sum = 0;
        if (row >= 0 && of_input) sum += Load(input[row]);
        if (row >= 0 && of_hidden) sum += Load(recurrent[row]);
        *out++ = sum;
      }
    }
  }
}

template <class T>
void UnpackBiases(const Panels& panels, const Compute<T>* packed, T* input, T* recurrent) {
  for (int64_t panel = 0; panel < panels.count(); ++panel) {
    for (int vector = 0; vector < 4; ++vector) {
      for (int64_t lane = 0; lane < panels.lanes_of(panel); ++lane, ++packed) {
        const int64_t row = panels.row(panel, vector, lane);
        if (row < 0) continue;
        if (vector < panels.vectors()) Store(*packed, input + row);
        if (vector >= panels.recurrent_vector()) Store(*packed, recurrent + row);
      }
    }
  }
}

}  // namespace opwright::rnn
