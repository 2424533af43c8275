#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "rnn/testing/kernel_sets.h"

namespace opwright::rnn {
namespace {

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// One step of one unit, computed by the formulas in double. Pre-activations are in the order of
// a panel's vectors: LSTM i, f, g, o; GRU W_n x, r, z, R_n h. Plain cells have one
// pre-activation.
struct Unit {
  double a[4] = {};
  double h_before = 0, c_before = 0;
  // Results of the forward pass.
  double h = 0, c = 0, saved[4] = {};

  void Forward(Cell cell) {
    if (cell == Cell::kLstm) {
      const double i = Sigmoid(a[0]), f = Sigmoid(a[1]), g = std::tanh(a[2]), o = Sigmoid(a[3]);
      c = f * c_before + i * g;
      h = o * std::tanh(c);
      saved[0] = i, saved[1] = f, saved[2] = g, saved[3] = o;
    } else if (cell == Cell::kGru) {
      const double r = Sigmoid(a[1]), z = Sigmoid(a[2]), n = std::tanh(a[0] + r * a[3]);
      h = (1 - z) * n + z * h_before;
      saved[0] = n, saved[1] = r, saved[2] = z, saved[3] = a[3];
    } else {
      h = cell == Cell::kTanh ? std::tanh(a[0]) : std::max(a[0], 0.0);
    }
  }

  // Returns a loss: the new h and c, weighted by dh and dc. The derivative is a finite
  // difference of it.
  double Loss(Cell cell, double dh, double dc) const {
    Unit moved = *this;
    moved.Forward(cell);
    return dh * moved.h + dc * moved.c;
  }
  double Derivative(Cell cell, double dh, double dc, double Unit::* of) const {
    return Difference(cell, dh, dc, [of](Unit& unit) -> double& { return unit.*of; });
  }
  double GateDerivative(Cell cell, double dh, double dc, int vector) const {
    return Difference(cell, dh, dc, [vector](Unit& unit) -> double& { return unit.a[vector]; });
  }
  template <class Member>
  double Difference(Cell cell, double dh, double dc, const Member& member) const {
    constexpr double kStep = 1e-4;
    const auto loss = [&](double by) {
      Unit unit = *this;
      member(unit) += by;
      return unit.Loss(cell, dh, dc);
    };
    // This difference is of fourth order. Its error is below 1e-14.
    return (8 * (loss(kStep) - loss(-kStep)) - (loss(2 * kStep) - loss(-2 * kStep))) /
           (12 * kStep);
  }
};

template <class T>
double Wide(T value) {
  return static_cast<double>(Load(value));
}

// A panel of one step, with units and padding. The order of the rows differs from the order of
// their states. All elements outside the panel have a value that the kernels must not change.
template <class T>
struct Panel {
  using S = Compute<T>;
  static constexpr double kUntouched = 0.625;

  const Kernels<T>& kernels;
  const Cell cell;
  const int64_t rows, units, lanes, panel_units, ld, gate_stride, first_unit;
  std::vector<int32_t> state_row;
  std::vector<S> preactivations, h_before, c_before, h, c;
  std::vector<T> y, gates, cells;

  Panel(const Kernels<T>& used, Cell the_cell, int64_t row_count, int64_t unit_count,
        Random& random)
      : kernels(used),
        cell(the_cell),
        rows(row_count),
        units(unit_count),
        lanes(used.lanes),
        panel_units(gated() ? lanes : 4 * lanes),
        ld(panel_units + 3),
        gate_stride(units + 2),
        first_unit(2) {
    state_row.resize(static_cast<size_t>(rows));
    std::iota(state_row.rbegin(), state_row.rend(), 0);
    preactivations = Draw<S>(random, rows * 4 * lanes, 4);
    h_before = Draw<S>(random, rows * ld, 2);
    c_before = Draw<S>(random, rows * ld, 2);
    c = c_before;
    h.assign(static_cast<size_t>(rows * ld), S(kUntouched));
    T untouched;
    Store(static_cast<S>(kUntouched), &untouched);
    y.assign(static_cast<size_t>(rows * ld), untouched);
    gates.assign(static_cast<size_t>(rows * 4 * gate_stride), untouched);
    cells.assign(static_cast<size_t>(rows * ld), untouched);
  }

  bool gated() const { return cell == Cell::kLstm || cell == Cell::kGru; }
  // Returns the element of row r in an array that is indexed by state_row.
  template <class X>
  X& At(std::vector<X>& array, int64_t r, int64_t unit) {
    return array[static_cast<size_t>(state_row[static_cast<size_t>(r)] * ld + unit)];
  }
  T& Gate(int64_t r, int gate, int64_t unit) {
    return gates[static_cast<size_t>(
        (state_row[static_cast<size_t>(r)] * 4 + gate) * gate_stride + unit)];
  }
  S& Preactivation(std::vector<S>& array, int64_t r, int vector, int64_t unit) {
    return array[static_cast<size_t>(r * 4 * lanes + (gated() ? vector * lanes + unit : unit))];
  }
  Unit UnitOf(int64_t r, int64_t unit) {
    Unit made;
    for (int v = 0; v < (gated() ? 4 : 1); ++v) {
      made.a[v] = Preactivation(preactivations, r, v, unit);
    }
    made.h_before = At(h_before, r, unit);
    if (cell == Cell::kLstm) made.c_before = At(c_before, r, unit);
    made.Forward(cell);
    return made;
  }

  void Forward(bool saves) {
    CellForwardArgs<T> args{};
    args.cell = cell;
    args.rows = rows;
    args.units = units;
    args.state_row = state_row.data();
    args.preactivations = preactivations.data();
    args.h = h.data();
    args.h_before = h_before.data();
    args.c = c.data();
    args.ldh = args.ldc = args.ldy = args.ld_cells = ld;
    args.y = y.data();
    args.gates = saves && gated() ? gates.data() : nullptr;
    args.ld_gates = 4 * gate_stride;
    args.gate_stride = gate_stride;
    args.cells = saves && cell == Cell::kLstm ? cells.data() : nullptr;
    kernels.cell_forward(args);
  }

  // Runs the backward pass, from the values that the forward pass saved.
  void Backward(const std::vector<S>& dh, std::vector<S>* dh_before, std::vector<S>* dc,
                std::vector<S>* grads) {
    const auto h_rows = StateRows(h_before), c_rows = StateRows(c_before);
    std::vector<const T*> h_pointers, c_pointers;
    for (const auto& row : h_rows) h_pointers.push_back(row.data());
    for (const auto& row : c_rows) c_pointers.push_back(row.data());
    CellBackwardArgs<T> args{};
    args.cell = cell;
    args.rows = rows;
    args.units = units;
    args.unit = first_unit;
    args.state_row = state_row.data();
    args.dh = dh.data();
    args.dh_before = dh_before->data();
    args.dc = dc->data();
    args.ld_dh = args.ld_before = args.ld_dc = args.ld_cells = args.ldy = ld;
    args.h_before = h_pointers.data();
    args.c_before = c_pointers.data();
    args.gates = gates.data();
    args.ld_gates = 4 * gate_stride;
    args.gate_stride = gate_stride;
    args.cells = cells.data();
    args.y = y.data();
    args.preactivation_grads = grads->data();
    kernels.cell_backward(args);
  }

  // Returns the previous states in the storage type, by row. Element 0 of a row is unit 0 of
  // the layer, so the panel's units begin at first_unit.
  std::vector<std::vector<T>> StateRows(std::vector<S>& from) {
    std::vector<std::vector<T>> made(static_cast<size_t>(rows));
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<T>& row = made[static_cast<size_t>(r)];
      row.resize(static_cast<size_t>(first_unit + units));
      for (int64_t unit = 0; unit < units; ++unit) {
        Store(At(from, r, unit), &row[static_cast<size_t>(first_unit + unit)]);
      }
    }
    return made;
  }
};

template <class Visit>
void ForEachPanel(Cell cell, const Visit& visit) {
  ForEachType([&](auto type) {
    using T = decltype(type);
    ForEachKernels<T>([&](const Kernels<T>& kernels) {
      Random random{testing::Seed()};
      const bool gated = cell == Cell::kLstm || cell == Cell::kGru;
      const int64_t all = kernels.lanes * (gated ? 1 : 4);
      for (int64_t units = 1; units <= all; units += units < 4 ? 1 : 3) {
        Panel<T> panel(kernels, cell, 1 + random.Below(5), units, random);
        visit(panel, random);
      }
      Panel<T> full(kernels, cell, 3, all, random);
      visit(full, random);
    });
  });
}

void CheckForward(Cell cell) {
  ForEachPanel(cell, [&](auto& panel, Random&) {
    using T = std::decay_t<decltype(panel.y[0])>;
    using S = Compute<T>;
    const double tolerance = 16 * EpsilonOf<S>(), stored = 2 * EpsilonOf<T>() + tolerance;
    for (const bool saves : {false, true}) {
      panel.c = panel.c_before;
      panel.Forward(saves);
      for (int64_t r = 0; r < panel.rows; ++r) {
        for (int64_t unit = 0; unit < panel.units; ++unit) {
          const Unit wanted = panel.UnitOf(r, unit);
          EXPECT_NEAR(panel.At(panel.h, r, unit), wanted.h, tolerance);
          EXPECT_NEAR(Wide(panel.At(panel.y, r, unit)), wanted.h, stored);
          if (cell == Cell::kLstm) EXPECT_NEAR(panel.At(panel.c, r, unit), wanted.c, tolerance);
          if (!saves || !panel.gated()) continue;
          for (int gate = 0; gate < 4; ++gate) {
            EXPECT_NEAR(Wide(panel.Gate(r, gate, unit)), wanted.saved[gate], 2 * stored);
          }
          if (cell == Cell::kLstm) {
            EXPECT_NEAR(Wide(panel.At(panel.cells, r, unit)), wanted.c, 2 * stored);
          }
        }
        // Elements past the panel's units belong to another panel.
        for (int64_t unit = panel.units; unit < panel.ld; ++unit) {
          EXPECT_EQ(Wide(panel.At(panel.y, r, unit)), panel.kUntouched);
          EXPECT_EQ(Wide(panel.At(panel.cells, r, unit)), panel.kUntouched);
        }
        for (int gate = 0; gate < 4; ++gate) {
          for (int64_t unit = panel.units; unit < panel.gate_stride; ++unit) {
            EXPECT_EQ(Wide(panel.Gate(r, gate, unit)), panel.kUntouched);
          }
        }
      }
    }
  });
}
TEST(Cell, LstmForward) { CheckForward(Cell::kLstm); }
TEST(Cell, GruForward) { CheckForward(Cell::kGru); }
TEST(Cell, TanhForward) { CheckForward(Cell::kTanh); }
TEST(Cell, ReluForward) { CheckForward(Cell::kRelu); }

// Compares with finite differences of the forward formulas, so the test needs no formulas of
// derivatives.
void CheckBackward(Cell cell) {
  ForEachPanel(cell, [&](auto& panel, Random& random) {
    using T = std::decay_t<decltype(panel.y[0])>;
    using S = Compute<T>;
    // The tolerance is a few roundings in T of the saved values, which are at most about 2.
    const double tolerance = 1e-8 + 32 * EpsilonOf<S>() + 16 * EpsilonOf<T>();
    const auto at = [](int64_t i) { return static_cast<size_t>(i); };
    // A ReLU has no derivative at zero, where a finite difference does have a value.
    for (S& a : panel.preactivations) {
      if (std::abs(a) < S(0.01)) a = S(0.25);
    }
    panel.Forward(true);
    const std::vector<S> dh = Draw<S>(random, panel.rows * panel.ld, 2);
    const std::vector<S> dc_after = Draw<S>(random, panel.rows * panel.ld, 2);
    std::vector<S> dc = dc_after;
    std::vector<S> dh_before(dh.size(), S(panel.kUntouched));
    std::vector<S> grads(at(panel.rows * 4 * panel.lanes));
    panel.Backward(dh, &dh_before, &dc, &grads);

    for (int64_t r = 0; r < panel.rows; ++r) {
      for (int64_t unit = 0; unit < panel.units; ++unit) {
        const Unit wanted = panel.UnitOf(r, unit);
        const size_t state = at(panel.state_row[at(r)] * panel.ld + unit);
        const double of_h = dh[state], of_c = cell == Cell::kLstm ? dc_after[state] : 0;
        for (int v = 0; v < (panel.gated() ? 4 : 1); ++v) {
          EXPECT_NEAR(panel.Preactivation(grads, r, v, unit),
                      wanted.GateDerivative(cell, of_h, of_c, v), tolerance);
        }
        // dh_before is the part that does not pass through the gates.
        EXPECT_NEAR(dh_before[state], wanted.Derivative(cell, of_h, of_c, &Unit::h_before),
                    tolerance);
        if (cell == Cell::kLstm) {
          EXPECT_NEAR(dc[state], wanted.Derivative(cell, of_h, of_c, &Unit::c_before),
                      tolerance);
        }
      }
    }
  });
}
TEST(Cell, LstmBackward) { CheckBackward(Cell::kLstm); }
TEST(Cell, GruBackward) { CheckBackward(Cell::kGru); }
TEST(Cell, TanhBackward) { CheckBackward(Cell::kTanh); }
TEST(Cell, ReluBackward) { CheckBackward(Cell::kRelu); }

}  // namespace
}  // namespace opwright::rnn
