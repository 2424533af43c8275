#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "rnn/testing/kernel_sets.h"

namespace opwright::rnn {
namespace {

// A sum in double, and the largest error of the same sum in S in any order. Each product and
// each addition rounds once.
template <class S>
struct Sum {
  double value = 0;
  double sizes = 0;
  int64_t terms = 0;

  void Add(double a, double b = 1) {
    value += a * b;
    sizes += std::abs(a * b);
    ++terms;
  }
  double tolerance() const { return static_cast<double>(terms + 1) * sizes * EpsilonOf<S>(); }
};

// Compares C += A B, by a kernel with `vectors` vectors, with the definition. Rows of A are
// pointers, and the rows of C may be indexed in any order. Columns next to the panel must not
// change.
template <class T>
void CheckGemm(const Kernels<T>& kernels, int64_t rows, int64_t runs, int64_t run, int vectors,
               bool scattered, int64_t offset, Random& random) {
  using S = Compute<T>;
  const int64_t columns = vectors * kernels.lanes;
  const int64_t run_stride = run + (runs > 1 ? 1 + random.Below(5) : 0);
  const int64_t lda = (runs - 1) * run_stride + run;
  const int64_t ldb = columns + random.Below(3), ldc = columns + 1 + random.Below(4);
  const int64_t depth = runs * run;
  std::vector<Misaligned<S>> a_rows;
  std::vector<const S*> a;
  for (int64_t i = 0; i < rows; ++i) {
    a_rows.emplace_back(Draw<S>(random, lda), (offset + i) % 3);
  }
  for (const Misaligned<S>& row : a_rows) a.push_back(row.data());
  Misaligned<S> b(Draw<S>(random, depth ? (depth - 1) * ldb + columns : 0), offset);
  const std::vector<S> before = Draw<S>(random, rows * ldc);
  Misaligned<S> c(before, offset);
  std::vector<int32_t> c_rows(static_cast<size_t>(rows));
  std::iota(c_rows.begin(), c_rows.end(), 0);
  if (scattered) std::reverse(c_rows.begin(), c_rows.end());

  GemmArgs<S> args{};
  args.rows = rows;
  args.a = a.data();
  args.runs = runs;
  args.run = run;
  args.run_stride = run_stride;
  args.b = b.data();
  args.ldb = ldb;
  args.c = c.data();
  args.ldc = ldc;
  args.c_rows = scattered ? c_rows.data() : nullptr;
  args.vectors = vectors;
  kernels.gemm(args);

  for (int64_t i = 0; i < rows; ++i) {
    const int64_t to = c_rows[static_cast<size_t>(i)] * ldc;
    for (int64_t j = 0; j < ldc; ++j) {
      const S old = before[static_cast<size_t>(to + j)];
      if (j >= columns) {
        EXPECT_EQ(c[to + j], old);
        continue;
      }
      Sum<S> sum;
      sum.Add(old);
      for (int64_t k = 0; k < depth; ++k) {
        sum.Add(a[static_cast<size_t>(i)][k / run * run_stride + k % run], b[k * ldb + j]);
      }
      EXPECT_NEAR(c[to + j], sum.value, sum.tolerance());
    }
  }
}

// Compares C += A^T B, by a kernel with `vectors` vectors, with the definition.
template <class T>
void CheckGemmTransposedA(const Kernels<T>& kernels, int64_t rows, int64_t depth, int vectors,
                          int64_t offset, Random& random) {
  using S = Compute<T>;
  const int64_t columns = vectors * kernels.lanes;
  const int64_t ldb = columns + random.Below(3), ldc = columns + 1 + random.Below(4);
  std::vector<Misaligned<S>> a_rows;
  std::vector<const S*> a;
  for (int64_t k = 0; k < depth; ++k) {
    a_rows.emplace_back(Draw<S>(random, rows), (offset + k) % 3);
  }
  for (const Misaligned<S>& row : a_rows) a.push_back(row.data());
  Misaligned<S> b(Draw<S>(random, depth ? (depth - 1) * ldb + columns : 0), offset);
  const std::vector<S> before = Draw<S>(random, rows * ldc);
  Misaligned<S> c(before, offset);

  GemmTransposedAArgs<S> args{};
  args.rows = rows;
  args.depth = depth;
  args.a = a.data();
  args.b = b.data();
  args.ldb = ldb;
  args.c = c.data();
  args.ldc = ldc;
  args.vectors = vectors;
  kernels.gemm_transposed_a(args);

  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < ldc; ++j) {
      const S old = before[static_cast<size_t>(i * ldc + j)];
      if (j >= columns) {
        EXPECT_EQ(c[i * ldc + j], old);
        continue;
      }
      Sum<S> sum;
      sum.Add(old);
      for (int64_t k = 0; k < depth; ++k) {
        sum.Add(a[static_cast<size_t>(k)][i], b[k * ldb + j]);
      }
      EXPECT_NEAR(c[i * ldc + j], sum.value, sum.tolerance());
    }
  }
}

// Tests every number of rows that is divided into tiles in a different way, for every number of
// vectors.
TEST(Gemm, EveryTileAtEveryWidth) {
  ForEachType([](auto type) {
    using T = decltype(type);
    ForEachKernels<T>([](const Kernels<T>& kernels) {
      Random random{testing::Seed()};
      for (int vectors = 1; vectors <= 4; ++vectors) {
        for (int64_t rows = 1; rows <= 17; ++rows) {
          CheckGemm(kernels, rows, 1, 1 + random.Below(9), vectors, rows % 2, rows % 3, random);
        }
      }
    });
  });
}

TEST(Gemm, OddDepthsAndMisalignedRows) {
  ForEachType([](auto type) {
    using T = decltype(type);
    ForEachKernels<T>([](const Kernels<T>& kernels) {
      Random random{testing::Seed()};
      for (const int64_t depth : {0, 1, 2, 3, 5, 7, 8, 9, 15, 17, 31, 33, 63, 65, 127, 129}) {
        const int vectors = static_cast<int>(1 + random.Below(4));
        CheckGemm(kernels, 1 + random.Below(9), 1, depth, vectors, depth % 2, depth % 4,
                  random);
      }
    });
  });
}

// Rows of A consist of runs that are not contiguous, like panels of gradients.
TEST(Gemm, RowsInRuns) {
  ForEachType([](auto type) {
    using T = decltype(type);
    ForEachKernels<T>([](const Kernels<T>& kernels) {
      Random random{testing::Seed()};
      for (int64_t round = 0; round < testing::Rounds(20); ++round) {
        CheckGemm(kernels, 1 + random.Below(12), 2 + random.Below(4), 1 + random.Below(20),
                  static_cast<int>(1 + random.Below(4)), random.Below(2), random.Below(4),
                  random);
      }
    });
  });
}

TEST(Gemm, TransposedAEveryTileAtEveryWidth) {
  ForEachType([](auto type) {
    using T = decltype(type);
    ForEachKernels<T>([](const Kernels<T>& kernels) {
      Random random{testing::Seed()};
      for (int vectors = 1; vectors <= 4; ++vectors) {
        for (int64_t rows = 1; rows <= 17; ++rows) {
          CheckGemmTransposedA(kernels, rows, 1 + random.Below(9), vectors, rows % 3, random);
        }
      }
    });
  });
}

TEST(Gemm, TransposedAOddDepths) {
  ForEachType([](auto type) {
    using T = decltype(type);
    ForEachKernels<T>([](const Kernels<T>& kernels) {
      Random random{testing::Seed()};
      for (const int64_t depth : {0, 1, 2, 3, 5, 7, 9, 17, 31, 33, 65, 127}) {
        CheckGemmTransposedA(kernels, 1 + random.Below(9), depth, depth % 2 ? 3 : 4, depth % 4,
                             random);
      }
    });
  });
}

// Tests depths of several blocks, with panels that are split.
TEST(Gemm, TransposedADepthsInBlocks) {
  ForEachType([](auto type) {
    using T = decltype(type);
    ForEachKernels<T>([](const Kernels<T>& kernels) {
      Random random{testing::Seed()};
      for (const int64_t depth : {63, 64, 65, 127, 128, 129, 200}) {
        CheckGemmTransposedA(kernels, 6 + random.Below(9), depth, 4, depth % 3, random);
      }
    });
  });
}

// sum_rows computes the gradient of a bias. fill sets the initial value of a product.
TEST(Gemm, RowsAreFilledAndSummed) {
  ForEachType([](auto type) {
    using T = decltype(type);
    ForEachKernels<T>([](const Kernels<T>& kernels) {
      using S = Compute<T>;
      Random random{testing::Seed()};
      const int64_t width = 4 * kernels.lanes;
      for (const int64_t rows : {0, 1, 2, 7, 33}) {
        Misaligned<S> panel(Draw<S>(random, width), 1);
        Misaligned<S> filled(Draw<S>(random, rows * width), 3);
        kernels.fill(rows, panel.data(), filled.data());
        for (int64_t i = 0; i < rows * width; ++i) EXPECT_EQ(filled[i], panel[i % width]);

        Misaligned<S> in(Draw<S>(random, rows * width), 2);
        std::vector<Sum<S>> sums(static_cast<size_t>(width));
        for (int64_t i = 0; i < width; ++i) sums[static_cast<size_t>(i)].Add(panel[i]);
        for (int64_t i = 0; i < rows * width; ++i) {
          sums[static_cast<size_t>(i % width)].Add(in[i]);
        }
        kernels.sum_rows(rows, in.data(), panel.data());
        for (int64_t i = 0; i < width; ++i) {
          const Sum<S>& sum = sums[static_cast<size_t>(i)];
          EXPECT_NEAR(panel[i], sum.value, sum.tolerance());
        }
      }
    });
  });
}

TEST(Gemm, ArraysOfTheStorageTypeAreAdded) {
  ForEachType([](auto type) {
    using T = decltype(type);
    ForEachKernels<T>([](const Kernels<T>& kernels) {
      using S = Compute<T>;
      Random random{testing::Seed()};
      for (const int64_t n : {0, 1, 3, 4, 5, 15, 16, 17, 31, 33, 100}) {
        Misaligned<T> from(Draw<T>(random, n), n % 3);
        const std::vector<S> before = Draw<S>(random, n);
        Misaligned<S> to(before, 1);
        kernels.add(n, from.data(), to.data());
        for (int64_t i = 0; i < n; ++i) {
          EXPECT_EQ(to[i], before[static_cast<size_t>(i)] + static_cast<S>(Load(from[i])));
        }
      }
    });
  });
}

}  // namespace
}  // namespace opwright::rnn
