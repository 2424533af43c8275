// Tests activations through cells whose results are activations. A GRU saves r, which is a
// sigmoid. A tanh cell outputs a tanh. Both results are in the type of computation.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "rnn/testing/kernel_sets.h"

namespace opwright::rnn {
namespace {

enum class Function { kSigmoid, kTanh, kRelu };

template <class S>
std::vector<S> Apply(const Kernels<S>& kernels, Function function, std::vector<S> x) {
  const size_t lanes = static_cast<size_t>(kernels.lanes), count = x.size();
  const size_t used = function == Function::kSigmoid ? lanes : 4 * lanes;
  const int32_t row = 0;
  std::vector<S> made(count);
  for (size_t first = 0; first < count; first += used) {
    const size_t present = std::min(used, count - first);
    std::vector<S> preactivations(4 * lanes), h(4 * lanes), gates(4 * lanes), zeros(4 * lanes);
    // The pre-activations of a GRU's r are the second of the four vectors.
    S* const to = preactivations.data() + (function == Function::kSigmoid ? lanes : 0);
    std::copy_n(x.begin() + static_cast<int64_t>(first), present, to);
    CellForwardArgs<S> cell{};
    cell.cell = function == Function::kSigmoid ? Cell::kGru
                : function == Function::kTanh  ? Cell::kTanh
                                               : Cell::kRelu;
    cell.rows = 1;
    cell.units = static_cast<int64_t>(used);
    cell.state_row = &row;
    cell.preactivations = preactivations.data();
    cell.h = h.data();
    cell.h_before = zeros.data();
    cell.gates = gates.data();
    cell.gate_stride = static_cast<int64_t>(lanes);
    kernels.cell_forward(cell);
    const S* const from = function == Function::kSigmoid ? gates.data() + lanes : h.data();
    std::copy_n(from, present, made.begin() + static_cast<int64_t>(first));
  }
  return made;
}

double Exact(Function function, double x) {
  if (function == Function::kTanh) return std::tanh(x);
  // For negative x, e^x / (1 + e^x) is exact, while e^-x in 1 / (1 + e^-x) may overflow.
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}

// Returns the error in units in the last place of the exact value. A subnormal value counts as
// the smallest normal number.
template <class S>
double UlpsFrom(S found, double exact) {
  const double size =
      std::max(std::abs(exact), static_cast<double>(std::numeric_limits<S>::min()));
  const double ulp = std::ldexp(1.0, std::ilogb(size) - std::numeric_limits<S>::digits + 1);
  return std::abs(static_cast<double>(found) - exact) / ulp;
}

// Returns values spread evenly over the range where the function changes, and values of all
// exponents.
template <class S>
std::vector<S> Arguments(double limit) {
  Random random{testing::Seed()};
  std::vector<S> x;
  for (int64_t i = 0; i < testing::Rounds(20000); ++i) {
    x.push_back(static_cast<S>(2 * limit * random.Uniform()));
    const double size =
        std::ldexp(0.5 + random.Uniform() / 2, -static_cast<int>(random.Below(40)));
    x.push_back(static_cast<S>(random.Below(2) ? size : -size));
  }
  return x;
}

template <class S>
void CheckUlps(Function function, double limit, double bound) {
  const std::vector<S> x = Arguments<S>(limit);
  ForEachKernels<S>([&](const Kernels<S>& kernels) {
    const std::vector<S> found = Apply(kernels, function, x);
    double worst = 0, worst_x = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double ulps = UlpsFrom(found[i], Exact(function, x[i]));
      if (!(ulps <= worst)) worst = ulps, worst_x = x[i];
    }
    if (!(worst <= bound)) {
      testing::Fail(__FILE__, __LINE__,
                    testing::Print(worst) + " ulps at " + testing::Print(worst_x) +
                        ", more than " + testing::Print(bound));
    }
  });
}

// The reference for double is also rounded, which adds up to one unit to the error.
TEST(Activations, SigmoidOfFloatInUlps) { CheckUlps<float>(Function::kSigmoid, 80, 3); }
TEST(Activations, SigmoidOfDoubleInUlps) { CheckUlps<double>(Function::kSigmoid, 700, 4); }
TEST(Activations, TanhOfFloatInUlps) { CheckUlps<float>(Function::kTanh, 15, 3); }
TEST(Activations, TanhOfDoubleInUlps) { CheckUlps<double>(Function::kTanh, 30, 5); }

template <class S>
void CheckLimits() {
  const S inf = std::numeric_limits<S>::infinity(), nan = std::numeric_limits<S>::quiet_NaN();
  const S huge = std::numeric_limits<S>::max();
  ForEachKernels<S>([&](const Kernels<S>& kernels) {
    const std::vector<S> x = {inf, huge, S(1000), S(0), S(-1000), -huge, -inf, nan};
    const std::vector<S> sigmoid = Apply(kernels, Function::kSigmoid, x);
    const std::vector<S> tanh = Apply(kernels, Function::kTanh, x);
    const std::vector<S> relu = Apply(kernels, Function::kRelu, x);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(sigmoid[i], S(1));
      EXPECT_EQ(tanh[i], S(1));
      EXPECT_EQ(relu[i], x[i]);
      EXPECT(sigmoid[6 - i] >= 0 && sigmoid[6 - i] < S(1e-37));
      EXPECT_EQ(tanh[6 - i], S(-1));
      EXPECT_EQ(relu[6 - i], S(0));
    }
    EXPECT_EQ(sigmoid[3], S(0.5));
    EXPECT_EQ(tanh[3], S(0));
    EXPECT_EQ(relu[3], S(0));
    EXPECT(std::isnan(sigmoid[7]));
    EXPECT(std::isnan(tanh[7]));
    EXPECT(std::isnan(relu[7]));
  });
}
TEST(Activations, LimitsAndNanOfFloat) { CheckLimits<float>(); }
TEST(Activations, LimitsAndNanOfDouble) { CheckLimits<double>(); }

}  // namespace
}  // namespace opwright::rnn
