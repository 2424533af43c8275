#include <cmath>
#include <cstdint>
#include <vector>

#include "rnn/testing/kernel_sets.h"

namespace opwright::rnn {
namespace {

// Compares out += W x, by a kernel with weights in the storage type, with the definition.
template <class T>
void CheckGemv(const Kernels<T>& kernels, int64_t rows, int64_t columns, int64_t offset,
               Random& random) {
  using S = Compute<T>;
  Misaligned<T> weights(Draw<T>(random, rows * columns), offset);
  Misaligned<S> x(Draw<S>(random, columns), (offset + 1) % 3);
  const std::vector<S> before = Draw<S>(random, rows);
  Misaligned<S> out(before, (offset + 2) % 3);
  kernels.gemv(rows, columns, weights.data(), x.data(), out.data());
  for (int64_t i = 0; i < rows; ++i) {
    double sum = before[static_cast<size_t>(i)], sizes = std::abs(sum);
    for (int64_t k = 0; k < columns; ++k) {
      const double product = static_cast<double>(Load(weights[i * columns + k])) * x[k];
      sum += product;
      sizes += std::abs(product);
    }
    EXPECT_NEAR(out[i], sum, static_cast<double>(columns + 2) * sizes * EpsilonOf<S>());
  }
}

template <class Visit>
void ForEachGemv(const Visit& visit) {
  ForEachType([&](auto type) {
    using T = decltype(type);
    ForEachKernels<T>([&](const Kernels<T>& kernels) {
      Random random{testing::Seed()};
      visit(kernels, random);
    });
  });
}

TEST(Gemv, OddColumns) {
  ForEachGemv([](const auto& kernels, Random& random) {
    for (int64_t columns = 0; columns <= 35; ++columns) {
      CheckGemv(kernels, 1 + random.Below(kernels.lanes), columns, columns % 4, random);
    }
  });
}

// Tests fewer rows than lanes, as many rows as lanes, and more.
TEST(Gemv, OddRows) {
  ForEachGemv([](const auto& kernels, Random& random) {
    for (int64_t rows = 0; rows <= 35; ++rows) {
      CheckGemv(kernels, rows, 1 + random.Below(40), rows % 4, random);
    }
  });
}

TEST(Gemv, AnySize) {
  ForEachGemv([](const auto& kernels, Random& random) {
    for (int64_t round = 0; round < testing::Rounds(5); ++round) {
      CheckGemv(kernels, 1 + random.Below(70), 1 + random.Below(200), random.Below(4), random);
    }
  });
}

}  // namespace
}  // namespace opwright::rnn
