// C += A B and C += A^T B for one panel of columns. Each tile of C is computed in registers.
// This file is a part of kernels_body.h, whose comment describes how it is compiled.

template <class S, int kRows, int kVectors>
void GemmTile(const GemmArgs<S>& p, int64_t first) {
  constexpr int L = kLanes<S>;
  const S* a[kRows];
  S* c[kRows];
  V<S> sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    a[i] = p.a[first + i];
    c[i] = p.c + (p.c_rows ? p.c_rows[first + i] : first + i) * p.ldc;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[i][v] = Get<S, L>(c[i] + v * L);
  }
  const S* b = p.b;
  const int64_t ldb = p.ldb;
  for (int64_t run = 0; run < p.runs; ++run) {
    for (int64_t k = 0; k < p.run; ++k) {
      V<S> column[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) column[v] = Get<S, L>(b + v * L);
      b += ldb;
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const V<S> left = a[i][k] - V<S>{};
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sum[i][v] += left * column[v];
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) a[i] += p.run_stride;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) Put<S, L>(c[i] + v * L, sum[i][v]);
  }
}

template <class S, int kRows, int kVectors>
void TransposedATile(const GemmTransposedAArgs<S>& p, int64_t first) {
  constexpr int L = kLanes<S>;
  S* const c = p.c + first * p.ldc;
  V<S> sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[i][v] = Get<S, L>(c + i * p.ldc + v * L);
  }
  const S* b = p.b;
  for (int64_t k = 0; k < p.depth; ++k, b += p.ldb) {
    const S* const a = p.a[k] + first;
    V<S> row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row[v] = Get<S, L>(b + v * L);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const V<S> left = a[i] - V<S>{};
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[i][v] += left * row[v];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) Put<S, L>(c + i * p.ldc + v * L, sum[i][v]);
  }
}

// The largest number of rows in a tile of kVectors vectors whose accumulators fit into the
// registers.
template <int kVectors>
constexpr int kMaxTileRows = kManyRegisters  ? (kVectors == 4 ? 6 : 8)
                             : kVectors == 4 ? 2
                             : kVectors == 3 ? 4
                             : kVectors == 2 ? 6
                                             : 8;

template <int kValue>
struct Number {
  static constexpr int value = kValue;
};

// Divides the rows into tiles of nearly equal size, because a last tile of one row would use
// each loaded vector of B only once. Calls tile(number of rows, first row) for each tile.
template <int kMax, class Tile>
inline void ForEachTile(int64_t all, const Tile& tile) {
  const int64_t tiles = (all + kMax - 1) / kMax;
  for (int64_t i = 0, row = 0; i < tiles; ++i) {
    const int64_t rows = (all - row + (tiles - i) - 1) / (tiles - i);
    switch (rows) {
      case 1: tile(Number<1>(), row); break;
      case 2: tile(Number<2>(), row); break;
      case 3: tile(Number < kMax<3 ? kMax : 3>(), row); break;
      case 4: tile(Number < kMax<4 ? kMax : 4>(), row); break;
      case 5: tile(Number < kMax<5 ? kMax : 5>(), row); break;
      case 6: tile(Number < kMax<6 ? kMax : 6>(), row); break;
      case 7: tile(Number < kMax<7 ? kMax : 7>(), row); break;
      default: tile(Number<kMax>(), row); break;
    }
    row += rows;
  }
}

template <class S, int kVectors>
void GemmRows(const GemmArgs<S>& p) {
  ForEachTile<kMaxTileRows<kVectors>>(p.rows, [&p](auto rows, int64_t first) {
    GemmTile<S, decltype(rows)::value, kVectors>(p, first);
  });
}

// Returns whether to process a panel of four vectors as two halves. With 16 registers, tiles of
// six rows and two vectors need fewer loads for each product than tiles of two rows and four
// vectors. With few rows the panel is not split, so that the panel is read in one pass.
template <class Args>
bool SplitsPanel(const Args& p) {
  return !kManyRegisters && p.vectors == 4 && p.rows >= kMaxTileRows<2>;
}

// Returns the arguments of the second half of a split panel.
template <class S, class Args>
Args SecondHalf(Args p) {
  p.b += 2 * kLanes<S>;
  p.c += 2 * kLanes<S>;
  return p;
}

template <class S>
void Gemm(const GemmArgs<S>& p) {
  if (SplitsPanel(p)) {
    GemmRows<S, 2>(p);
    return GemmRows<S, 2>(SecondHalf<S>(p));
  }
  switch (p.vectors) {
    case 1: return GemmRows<S, 1>(p);
    case 2: return GemmRows<S, 2>(p);
    case 3: return GemmRows<S, 3>(p);
    default: return GemmRows<S, 4>(p);
  }
}

template <class S, int kVectors>
void TransposedARows(const GemmTransposedAArgs<S>& p) {
  ForEachTile<kMaxTileRows<kVectors>>(p.rows, [&p](auto rows, int64_t first) {
    TransposedATile<S, decltype(rows)::value, kVectors>(p, first);
  });
}

// The number of rows of A and B in one block. Rows of a block stay in the L1 cache until every
// tile of C has read them. A tile reads one cache line of each row of A, and each of these
// lines may be in another page.
constexpr int64_t kDepth = 64;

template <class S>
void GemmTransposedA(const GemmTransposedAArgs<S>& p) {
  if (!SplitsPanel(p)) {
    switch (p.vectors) {
      case 1: return TransposedARows<S, 1>(p);
      case 2: return TransposedARows<S, 2>(p);
      case 3: return TransposedARows<S, 3>(p);
      default: return TransposedARows<S, 4>(p);
    }
  }
  for (int64_t first = 0; first < p.depth; first += kDepth) {
    GemmTransposedAArgs<S> some = p;
    some.depth = p.depth - first < kDepth ? p.depth - first : kDepth;
    some.a += first;
    some.b += first * p.ldb;
    TransposedARows<S, 2>(some);
    TransposedARows<S, 2>(SecondHalf<S>(some));
  }
}
