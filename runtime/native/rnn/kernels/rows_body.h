// Kernels that fill, sum and add rows.
// This file is a part of kernels_body.h, whose comment describes how it is compiled.

template <class S>
void Fill(int64_t rows, const S* panel, S* out) {
  constexpr int L = kLanes<S>;
  V<S> values[4];
  for (int v = 0; v < 4; ++v) values[v] = Get<S, L>(panel + v * L);
  for (int64_t r = 0; r < rows; ++r, out += 4 * L) {
    for (int v = 0; v < 4; ++v) Put<S, L>(out + v * L, values[v]);
  }
}

template <class S>
void SumRows(int64_t rows, const S* in, S* panel) {
  constexpr int L = kLanes<S>;
  V<S> sums[4];
  for (int v = 0; v < 4; ++v) sums[v] = Get<S, L>(panel + v * L);
  for (int64_t r = 0; r < rows; ++r, in += 4 * L) {
    for (int v = 0; v < 4; ++v) sums[v] += Get<S, L>(in + v * L);
  }
  for (int v = 0; v < 4; ++v) Put<S, L>(panel + v * L, sums[v]);
}

template <class T>
void Add(int64_t n, const T* from, Compute<T>* to) {
  for (int64_t i = 0; i < n; ++i) to[i] += Load(from[i]);
}
