// out += W x, row by row, from weights in the storage type.
// This file is a part of kernels_body.h, whose comment describes how it is compiled.

// Returns one half of each block of kBlock lanes of a, then of b. kHalf is 0 for the first
// half.
template <class S, int kBlock, int kHalf, size_t... kLane>
inline V<S> HalfBlocks(V<S> a, V<S> b, std::index_sequence<kLane...>) {
  constexpr int kWide = kBlock / 2;
#ifdef __clang__
  return __builtin_shufflevector(a, b,
                                 (kLane / kWide * kBlock + kLane % kWide + kHalf * kWide)...);
#else
  using I = typename Simd<S, kLanes<S>>::I;
  return __builtin_shuffle(a, b,
                           I{(kLane / kWide * kBlock + kLane % kWide + kHalf * kWide)...});
#endif
}

// Returns a vector whose lane i is the sum of all lanes of sum[i].
template <class S, int kBlock = kLanes<S>>
inline V<S> SumAcross(V<S>* sum) {
  using Lanes = std::make_index_sequence<kLanes<S>>;
#pragma GCC unroll 16
  for (int i = 0; i < kBlock / 2; ++i) {
    const V<S> a = sum[2 * i], b = sum[2 * i + 1];
    sum[i] = HalfBlocks<S, kBlock, 0>(a, b, Lanes()) + HalfBlocks<S, kBlock, 1>(a, b, Lanes());
  }
  if constexpr (kBlock > 2) {
    return SumAcross<S, kBlock / 2>(sum);
  } else {
    return sum[0];
  }
}

template <class T>
void Gemv(int64_t rows, int64_t columns, const T* weights, const Compute<T>* x,
          Compute<T>* out) {
  using S = Compute<T>;
  constexpr int L = kLanes<S>;
  const int64_t whole = columns / L * L;
  for (int64_t row = 0; row < rows; row += L) {
    const int64_t count = rows - row < L ? rows - row : L;
    const T* w[L];
    V<S> sum[L];
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i) {
      w[i] = weights + (row + (i < count ? i : 0)) * columns;
      sum[i] = V<S>{};
    }
    for (int64_t k = 0; k < whole; k += L) {
      const V<S> right = Get<S, L>(x + k);
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i) sum[i] += Get<T, L>(w[i] + k, L) * right;
    }
    if (whole < columns) {
      const V<S> right = Get<S, L>(x + whole, columns - whole);
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i) sum[i] += Get<T, L>(w[i] + whole, columns - whole) * right;
    }
    Put<S, L>(out + row, Get<S, L>(out + row, count) + SumAcross<S>(sum), count);
  }
}
