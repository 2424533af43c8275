#include "rnn/packing.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "rnn/testing/kernel_sets.h"

namespace opwright::rnn {
namespace {

constexpr Cell kCells[] = {Cell::kRelu, Cell::kTanh, Cell::kLstm, Cell::kGru};

// Calls visit(panels, gates) for numbers of units near each multiple of the width.
template <class T, class Visit>
void ForEachPanels(const Visit& visit) {
  ForEachIsa([&](const char*) {
    const Kernels<T>& kernels = SelectKernels<T>();
    const int64_t lanes = kernels.lanes;
    for (const Cell cell : kCells) {
      for (const int64_t units :
           {int64_t{1}, int64_t{2}, int64_t{3}, lanes - 1, lanes, lanes + 1, 2 * lanes + 3,
            4 * lanes - 1, 4 * lanes + 1, 9 * lanes + 5}) {
        StackSpec stack;
        stack.cell = cell;
        stack.units = units;
        visit(CellPanels(kernels, stack), stack.gates());
      }
    }
  });
}

// Each row of [gates, units] has one lane for the input's weights, and one lane for the weights
// of the hidden state. All other lanes are padding.
TEST(Packing, EachRowHasOneLane) {
  ForEachPanels<float>([](const Panels& panels, int64_t gates) {
    for (const int first_vector : {0, panels.recurrent_vector()}) {
      std::vector<int> seen(static_cast<size_t>(gates * panels.units));
      int64_t lanes = 0;
      for (int64_t panel = 0; panel < panels.count(); ++panel) {
        for (int vector = 0; vector < panels.vectors(); ++vector) {
          for (int64_t lane = 0; lane < panels.lanes_of(panel); ++lane, ++lanes) {
            const int64_t row = panels.row(panel, first_vector + vector, lane);
            EXPECT(row >= -1 && row < gates * panels.units);
            if (row >= 0) ++seen[static_cast<size_t>(row)];
          }
        }
      }
      EXPECT_EQ(lanes, panels.packed_rows());
      for (const int count : seen) EXPECT_EQ(count, 1);
    }
  });
}

// Checks the order of cuDNN's gates in a panel: LSTM i, f, g, o; GRU r, z, n. The candidate of
// a GRU is in the first vector for the input, and in the last vector for the hidden state.
TEST(Packing, GatesAreInTheirVectors) {
  ForEachPanels<float>([](const Panels& panels, int64_t gates) {
    constexpr int64_t kLstm[] = {0, 1, 2, 3}, kGru[] = {2, 0, 1, 2};
    for (int vector = 0; vector < 4; ++vector) {
      const int64_t gate = panels.cell == Cell::kGru ? kGru[vector] : kLstm[vector];
      const int64_t row = panels.row(0, vector, 0);
      if (gates > 1) EXPECT_EQ(row, gate * panels.units);
      if (gates == 1 && row >= 0) EXPECT_EQ(row, vector * panels.lanes_of(0));
    }
  });
}

// The vectors of a product are the columns of its panel. Many rows take the widest vectors.
TEST(Packing, ProductsCoverTheirPanel) {
  ForEachPanels<float>([](const Panels& panels, int64_t) {
    const Kernels<float>& kernels = SelectKernels<float>();
    for (int64_t panel = 0; panel < panels.count(); ++panel) {
      const int64_t width = panels.packed_width(panel);
      for (const int64_t rows : {1, 2, 3, 4, 100}) {
        const PanelProduct<float> product(kernels, panels, panel, rows);
        EXPECT_EQ(product.vectors * product.kernels->lanes, width);
        EXPECT(product.vectors >= 1 && product.vectors <= 4);
        EXPECT(product.kernels->lanes >= panels.lanes_of(panel));
        if (rows == 100 && width % kernels.lanes == 0) {
          EXPECT_EQ(product.kernels->lanes, kernels.lanes);
        }
        if (rows == 1) EXPECT(product.vectors >= panels.vectors());
      }
    }
  });
}

TEST(Packing, PanelsCoverAllUnits) {
  ForEachPanels<double>([](const Panels& panels, int64_t) {
    int64_t units = 0;
    for (int64_t panel = 0; panel < panels.count(); ++panel) {
      units += panels.units_of(panel);
      EXPECT(panels.units_of(panel) > 0);
      EXPECT(panels.units_of(panel) <= panels.lanes_of(panel) * (panels.plain() ? 4 : 1));
      const int vectors = panels.vectors_of(panel);
      if (panels.plain()) EXPECT(vectors >= 1 && vectors <= 4);
    }
    EXPECT_EQ(units, panels.units);
    EXPECT(panels.padded_units() >= panels.units);
    EXPECT_EQ(panels.full(),
              panels.last_lanes < panels.lanes ? panels.count() - 1 : panels.count());
  });
}

// The last panel uses the kernels with the fewest lanes that fit the remaining units.
TEST(Packing, LastPanelIsNarrow) {
  ForEachIsa([](const char*) {
    const Kernels<float>& kernels = SelectKernels<float>();
    StackSpec stack;
    stack.units = kernels.lanes + 1;
    const Panels panels = CellPanels(kernels, stack);
    EXPECT_EQ(panels.count(), 2);
    EXPECT_EQ(panels.lanes_of(0), kernels.lanes);
    EXPECT_EQ(panels.lanes_of(1), 4);
    EXPECT_EQ(PanelKernels(kernels, panels, 0).lanes, kernels.lanes);
    EXPECT_EQ(PanelKernels(kernels, panels, 1).lanes, 4);
  });
}

template <class T>
std::vector<T> Numbered(int64_t size) {
  std::vector<T> values(static_cast<size_t>(size));
  // These are integers that every type represents. Neighbours rarely have equal values.
  for (int64_t i = 0; i < size; ++i) {
    Store(static_cast<Compute<T>>(1 + i * 37 % 127), &values[static_cast<size_t>(i)]);
  }
  return values;
}

template <class T>
void CheckRows() {
  using S = Compute<T>;
  ForEachPanels<T>([](const Panels& panels, int64_t gates) {
    for (const int64_t columns : {1, 3, 16, 31, 33}) {
      const std::vector<T> weights = Numbered<T>(gates * panels.units * columns);
      for (const int first_vector : {0, panels.recurrent_vector()}) {
        std::vector<T> back(weights.size());
        for (int64_t panel = 0; panel < panels.count(); ++panel) {
          const int64_t width = panels.packed_width(panel), lanes = panels.lanes_of(panel);
          std::vector<S> packed(static_cast<size_t>(columns * width), S(-7));
          PackRows(panels, first_vector, panel, weights.data(), columns, packed.data());
          for (int64_t k = 0; k < columns; ++k) {
            for (int64_t i = 0; i < width; ++i) {
              const int64_t row =
                  panels.row(panel, first_vector + static_cast<int>(i / lanes), i % lanes);
              const S wanted =
                  row < 0 ? S(0) : Load(weights[static_cast<size_t>(row * columns + k)]);
              EXPECT_EQ(packed[static_cast<size_t>(k * width + i)], wanted);
            }
          }
          UnpackRows(panels, first_vector, panel, packed.data(), columns, back.data());
        }
        for (size_t i = 0; i < back.size(); ++i) EXPECT_EQ(Load(back[i]), Load(weights[i]));
      }
    }
  });
}
TEST(Packing, UnpackInvertsPackOfFloat) { CheckRows<float>(); }
TEST(Packing, UnpackInvertsPackOfDouble) { CheckRows<double>(); }
TEST(Packing, UnpackInvertsPackOfHalf) { CheckRows<Half>(); }
TEST(Packing, UnpackInvertsPackOfBFloat16) { CheckRows<BFloat16>(); }

template <class T>
void CheckColumns() {
  using S = Compute<T>;
  ForEachPanels<T>([](const Panels& panels, int64_t gates) {
    const int64_t width = panels.width();
    for (const int64_t columns : {int64_t{1}, width - 1, width, width + 1, 2 * width + 3}) {
      const std::vector<T> weights = Numbered<T>(gates * panels.units * columns);
      for (int64_t column_panel = 0; column_panel * width < columns; ++column_panel) {
        std::vector<S> packed(static_cast<size_t>(panels.packed_rows() * width), S(-7));
        PackColumns(panels, panels.recurrent_vector(), column_panel, weights.data(), columns,
                    packed.data());
        const S* from = packed.data();
        for (int64_t panel = 0; panel < panels.count(); ++panel) {
          for (int64_t i = 0; i < panels.packed_width(panel); ++i, from += width) {
            const int64_t lanes = panels.lanes_of(panel);
            const int64_t row = panels.row(
                panel, panels.recurrent_vector() + static_cast<int>(i / lanes), i % lanes);
            for (int64_t c = 0; c < width; ++c) {
              const int64_t column = column_panel * width + c;
              const S wanted = row < 0 || column >= columns
                                   ? S(0)
                                   : Load(weights[static_cast<size_t>(row * columns + column)]);
              EXPECT_EQ(from[c], wanted);
            }
          }
        }
      }
    }
  });
}
TEST(Packing, ColumnsOfFloat) { CheckColumns<float>(); }
TEST(Packing, ColumnsOfBFloat16) { CheckColumns<BFloat16>(); }

// Both biases of a gate are added before the step, except those of a GRU's candidate. In the
// backward pass, each bias gets its gradient.
TEST(Packing, BiasesAreAddedAndTheirGradientsSeparated) {
  ForEachPanels<float>([](const Panels& panels, int64_t gates) {
    const int64_t rows = gates * panels.units;
    const std::vector<float> input = Numbered<float>(rows);
    std::vector<float> recurrent = Numbered<float>(rows);
    for (float& value : recurrent) value *= 1000;
    std::vector<float> packed(static_cast<size_t>(panels.count() * panels.width()), -7.0f);
    PackBiases(panels, input.data(), recurrent.data(), packed.data());
    const float* at = packed.data();
    for (int64_t panel = 0; panel < panels.count(); ++panel) {
      for (int vector = 0; vector < 4; ++vector) {
        for (int64_t lane = 0; lane < panels.lanes_of(panel); ++lane, ++at) {
          const int64_t row = panels.row(panel, vector, lane);
          const bool gru = panels.cell == Cell::kGru;
          const size_t i = static_cast<size_t>(row);
          const float wanted = row < 0              ? 0
                               : gru && vector == 0 ? input[i]
                               : gru && vector == 3 ? recurrent[i]
                                                    : input[i] + recurrent[i];
          EXPECT_EQ(*at, wanted);
        }
      }
    }
    std::vector<float> d_input(input.size()), d_recurrent(input.size());
    UnpackBiases(panels, packed.data(), d_input.data(), d_recurrent.data());
    for (int64_t row = 0; row < rows; ++row) {
      const size_t i = static_cast<size_t>(row);
      const bool apart = panels.cell == Cell::kGru && row >= 2 * panels.units;
      EXPECT_EQ(d_input[i], apart ? input[i] : input[i] + recurrent[i]);
      EXPECT_EQ(d_recurrent[i], apart ? recurrent[i] : input[i] + recurrent[i]);
    }
  });
}

}  // namespace
}  // namespace opwright::rnn
