// The bodies of Kernels<T>. Included by one file per instruction set, which is compiled with
// its flags, once for each width of vectors: OPWRIGHT_KERNELS names what is defined,
// OPWRIGHT_NARROWER the set of half the width. All of it has internal linkage, and nothing
// inline from a library is called: the linker would merge such a function over all
// instruction sets.
#include <utility>

#include "kernels.h"

namespace opwright {
namespace {
namespace OPWRIGHT_KERNELS {

constexpr int kBytes = OPWRIGHT_VECTOR_BYTES;
// 32 registers, or 16: what they leave beside a panel and a broadcast are accumulators.
constexpr bool kManyRegisters = OPWRIGHT_REGISTERS == 32;

template <class S>
struct Simd;
template <>
struct Simd<float> {
  typedef float V __attribute__((vector_size(kBytes)));
  typedef float U __attribute__((vector_size(kBytes), aligned(4), may_alias));
  typedef int32_t I __attribute__((vector_size(kBytes)));
};
template <>
struct Simd<double> {
  typedef double V __attribute__((vector_size(kBytes)));
  typedef double U __attribute__((vector_size(kBytes), aligned(8), may_alias));
  typedef int64_t I __attribute__((vector_size(kBytes)));
};
template <class S>
using V = typename Simd<S>::V;
template <class S>
constexpr int kLanes = kBytes / sizeof(S);

template <class S>
inline V<S> Get(const S* from) {
  return *reinterpret_cast<const typename Simd<S>::U*>(from);
}
template <class S>
inline void Put(S* to, V<S> value) {
  *reinterpret_cast<typename Simd<S>::U*>(to) = value;
}

// The first n lanes in the storage type; the others read as zero and are not written.
template <class T>
inline V<Compute<T>> Get(const T* from, int64_t n) {
  using S = Compute<T>;
  if constexpr (sizeof(T) == sizeof(S)) {
    if (n >= kLanes<S>) return Get<S>(from);
  }
  V<S> value{};
  for (int i = 0; i < kLanes<S>; ++i) {
    if (i < n) value[i] = Load(from[i]);
  }
  return value;
}
template <class T>
inline void Put(T* to, V<Compute<T>> value, int64_t n) {
  using S = Compute<T>;
  if constexpr (sizeof(T) == sizeof(S)) {
    if (n >= kLanes<S>) return Put<S>(to, value);
  }
  for (int i = 0; i < kLanes<S>; ++i) {
    if (i < n) Store(value[i], to + i);
  }
}

// ---- Activations: a few units in the last place, NaN stays NaN.

template <class S>
struct Reduced {
  V<S> expm1;  // e^r - 1, for the rest r of x after whole powers of two.
  V<S> scale;  // Those powers.
};

inline Reduced<float> Reduce(V<float> x) {
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number.
  const V<float> shifted = x * 1.44269504088896341f + magic;
  const V<float> n = shifted - magic;
  const V<float> r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  V<float> p = r * 1.98412698e-4f + 1.38888889e-3f;
  p = p * r + 8.33333333e-3f;
  p = p * r + 4.16666667e-2f;
  p = p * r + 1.66666667e-1f;
  p = p * r + 0.5f;
  p = p * (r * r) + r;
  const Simd<float>::I bits = (Simd<float>::I)shifted - 0x4b400000 + 127;
  return {p, (V<float>)(bits << 23)};
}

inline Reduced<double> Reduce(V<double> x) {
  const double magic = 6755399441055744.0;  // 1.5 * 2^52
  const V<double> shifted = x * 1.4426950408889634074 + magic;
  const V<double> n = shifted - magic;
  const V<double> r = (x - n * 0.693145751953125) - n * 1.42860682030941723212e-6;
  V<double> p = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * (r * r) + r;
  const Simd<double>::I bits = (Simd<double>::I)shifted - 0x4338000000000000 + 1023;
  return {p, (V<double>)(bits << 52)};
}

template <class S>
inline V<S> Clamp(V<S> x, S low, S high) {
  const V<S> lows = low - V<S>{}, highs = high - V<S>{};
  x = x < lows ? lows : x;
  return x > highs ? highs : x;
}

template <class S>
inline V<S> Sigmoid(V<S> x) {
  const S limit = sizeof(S) == 4 ? S(87) : S(708);
  const Reduced<S> e = Reduce(Clamp<S>(-x, -limit, limit));
  return S(1) / (S(1) + (e.scale + e.scale * e.expm1));
}

// By e^2x - 1, so that small values keep their relative precision.
template <class S>
inline V<S> Tanh(V<S> x) {
  const S limit = sizeof(S) == 4 ? S(20) : S(40);
  const Reduced<S> e = Reduce(Clamp<S>(x + x, -limit, limit));
  const V<S> expm1 = e.scale * e.expm1 + (e.scale - S(1));
  return expm1 / (expm1 + S(2));
}

template <class S>
inline V<S> Relu(V<S> x) {
  return x < V<S>{} ? V<S>{} : x;
}

// ---- C += A B.

template <class S, int kRows, int kVectors>
void Tile(const Product<S>& p, int64_t first) {
  constexpr int L = kLanes<S>;
  const S* a[kRows];
  S* c[kRows];
  V<S> sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    a[i] = p.a[first + i];
    c[i] = p.c + (p.c_rows ? p.c_rows[first + i] : first + i) * p.ldc;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[i][v] = Get<S>(c[i] + v * L);
  }
  const S* b = p.b;
  const int64_t ldb = p.ldb;
  for (int64_t run = 0; run < p.runs; ++run) {
    for (int64_t k = 0; k < p.run; ++k) {
      V<S> column[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) column[v] = Get<S>(b + v * L);
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
    for (int v = 0; v < kVectors; ++v) Put<S>(c[i] + v * L, sum[i][v]);
  }
}

template <class S, int kRows, int kVectors>
void OuterTile(const OuterProduct<S>& p, int64_t first) {
  constexpr int L = kLanes<S>;
  S* const c = p.c + first * p.ldc;
  V<S> sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[i][v] = Get<S>(c + i * p.ldc + v * L);
  }
  const S* b = p.b;
  for (int64_t k = 0; k < p.count; ++k, b += p.ldb) {
    const S* const a = p.a[k] + first;
    V<S> row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row[v] = Get<S>(b + v * L);
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
    for (int v = 0; v < kVectors; ++v) Put<S>(c + i * p.ldc + v * L, sum[i][v]);
  }
}

// Rows of accumulators that fit beside so many vectors of columns.
template <int kVectors>
constexpr int kMostRows = kManyRegisters  ? (kVectors == 4 ? 6 : 8)
                          : kVectors == 4 ? 2
                          : kVectors == 3 ? 4
                          : kVectors == 2 ? 6
                                          : 8;

template <int kValue>
struct Number {
  static constexpr int value = kValue;
};

// Cuts rows into tiles as even as can be: a last one of one row would waste most of its loads.
// Calls tile(number of rows, first row).
template <int kMost, class Tile>
inline void CutRows(int64_t all, const Tile& tile) {
  const int64_t tiles = (all + kMost - 1) / kMost;
  for (int64_t i = 0, row = 0; i < tiles; ++i) {
    const int64_t rows = (all - row + (tiles - i) - 1) / (tiles - i);
    switch (rows) {
      case 1: tile(Number<1>(), row); break;
      case 2: tile(Number<2>(), row); break;
      case 3: tile(Number<kMost < 3 ? kMost : 3>(), row); break;
      case 4: tile(Number<kMost < 4 ? kMost : 4>(), row); break;
      case 5: tile(Number<kMost < 5 ? kMost : 5>(), row); break;
      case 6: tile(Number<kMost < 6 ? kMost : 6>(), row); break;
      case 7: tile(Number<kMost < 7 ? kMost : 7>(), row); break;
      default: tile(Number<kMost>(), row); break;
    }
    row += rows;
  }
}

template <class S, int kVectors>
void Rows(const Product<S>& p) {
  CutRows<kMostRows<kVectors>>(p.rows, [&p](auto rows, int64_t first) {
    Tile<S, decltype(rows)::value, kVectors>(p, first);
  });
}

template <class S>
void Multiply(const Product<S>& p) {
  switch (p.vectors) {
    case 1: return Rows<S, 1>(p);
    case 2: return Rows<S, 2>(p);
    case 3: return Rows<S, 3>(p);
    default: return Rows<S, 4>(p);
  }
}

template <class S, int kVectors>
void OuterRows(const OuterProduct<S>& p) {
  CutRows<kMostRows<kVectors>>(p.rows, [&p](auto rows, int64_t first) {
    OuterTile<S, decltype(rows)::value, kVectors>(p, first);
  });
}

template <class S>
void MultiplyOuter(const OuterProduct<S>& p) {
  if (p.vectors == 3) return OuterRows<S, 3>(p);
  OuterRows<S, 4>(p);
}

// One half of each block of kBlock lanes of (a, b), or the other half.
template <class S, int kBlock, int kHalf, size_t... kLane>
inline V<S> HalfBlocks(V<S> a, V<S> b, std::index_sequence<kLane...>) {
  constexpr int kWide = kBlock / 2;
#ifdef __clang__
  return __builtin_shufflevector(
      a, b, (kLane / kWide * kBlock + kLane % kWide + kHalf * kWide)...);
#else
  using I = typename Simd<S>::I;
  return __builtin_shuffle(a, b,
                           I{(kLane / kWide * kBlock + kLane % kWide + kHalf * kWide)...});
#endif
}

// Lane i becomes the sum over the lanes of sum[i].
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
void Dots(int64_t rows, int64_t columns, const T* weights, const Compute<T>* x,
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
      const V<S> right = Get<S>(x + k);
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i) sum[i] += Get<T>(w[i] + k, L) * right;
    }
    if (whole < columns) {
      const V<S> right = Get<S>(x + whole, columns - whole);
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i) sum[i] += Get<T>(w[i] + whole, columns - whole) * right;
    }
    Put<S>(out + row, Get<S>(out + row, count) + SumAcross<S>(sum), count);
  }
}

// ---- Cells.

template <class T>
void ForwardLstm(const CellForward<T>& p) {
  using S = Compute<T>;
  constexpr int L = kLanes<S>;
  for (int64_t r = 0; r < p.rows; ++r) {
    const int64_t at = p.row[r];
    const S* sums = p.sums + r * 4 * L;
    S* c = p.c + at * p.ldc;
    const V<S> i = Sigmoid<S>(Get<S>(sums));
    const V<S> f = Sigmoid<S>(Get<S>(sums + L));
    const V<S> g = Tanh<S>(Get<S>(sums + 2 * L));
    const V<S> o = Sigmoid<S>(Get<S>(sums + 3 * L));
    const V<S> cell = f * Get<S>(c) + i * g;
    const V<S> h = o * Tanh<S>(cell);
    Put<S>(c, cell);
    Put<S>(p.h + at * p.ldh, h);
    if (p.y) Put<T>(p.y + at * p.ldy, h, p.units);
    if (p.gates) {
      T* gates = p.gates + at * p.ld_gates;
      Put<T>(gates, i, p.units);
      Put<T>(gates + p.gate_stride, f, p.units);
      Put<T>(gates + 2 * p.gate_stride, g, p.units);
      Put<T>(gates + 3 * p.gate_stride, o, p.units);
      Put<T>(p.cells + at * p.ld_cells, cell, p.units);
    }
  }
}

template <class T>
void ForwardGru(const CellForward<T>& p) {
  using S = Compute<T>;
  constexpr int L = kLanes<S>;
  for (int64_t i = 0; i < p.rows; ++i) {
    const int64_t at = p.row[i];
    const S* sums = p.sums + i * 4 * L;
    const V<S> r = Sigmoid<S>(Get<S>(sums + L));
    const V<S> z = Sigmoid<S>(Get<S>(sums + 2 * L));
    const V<S> recurrent = Get<S>(sums + 3 * L);
    const V<S> n = Tanh<S>(Get<S>(sums) + r * recurrent);
    const V<S> h = (S(1) - z) * n + z * Get<S>(p.h_before + at * p.ldh);
    Put<S>(p.h + at * p.ldh, h);
    if (p.y) Put<T>(p.y + at * p.ldy, h, p.units);
    if (p.gates) {
      T* gates = p.gates + at * p.ld_gates;
      Put<T>(gates, n, p.units);
      Put<T>(gates + p.gate_stride, r, p.units);
      Put<T>(gates + 2 * p.gate_stride, z, p.units);
      Put<T>(gates + 3 * p.gate_stride, recurrent, p.units);
    }
  }
}

template <class T, Cell kCell>
void ForwardPlain(const CellForward<T>& p) {
  using S = Compute<T>;
  constexpr int L = kLanes<S>;
  for (int64_t i = 0; i < p.rows; ++i) {
    const int64_t at = p.row[i];
    for (int v = 0; v < 4; ++v) {
      const V<S> sum = Get<S>(p.sums + (i * 4 + v) * L);
      const V<S> h = kCell == Cell::kRelu ? Relu<S>(sum) : Tanh<S>(sum);
      Put<S>(p.h + at * p.ldh + v * L, h);
      if (p.y && p.units > v * L) Put<T>(p.y + at * p.ldy + v * L, h, p.units - v * L);
    }
  }
}

template <class T>
void Forward(const CellForward<T>& p) {
  switch (p.cell) {
    case Cell::kLstm: return ForwardLstm(p);
    case Cell::kGru: return ForwardGru(p);
    case Cell::kRelu: return ForwardPlain<T, Cell::kRelu>(p);
    case Cell::kTanh: return ForwardPlain<T, Cell::kTanh>(p);
  }
}

// Padding has gates of zero, so every gradient there is zero or multiplied by a weight of
// zero later.
template <class T>
void BackwardLstm(const CellBackward<T>& p) {
  using S = Compute<T>;
  constexpr int L = kLanes<S>;
  for (int64_t r = 0; r < p.rows; ++r) {
    const int64_t at = p.row[r];
    const T* gates = p.gates + at * p.ld_gates;
    const V<S> i = Get<T>(gates, p.units);
    const V<S> f = Get<T>(gates + p.gate_stride, p.units);
    const V<S> g = Get<T>(gates + 2 * p.gate_stride, p.units);
    const V<S> o = Get<T>(gates + 3 * p.gate_stride, p.units);
    const V<S> tanh_c = Tanh<S>(Get<T>(p.cells + at * p.ld_cells, p.units));
    const V<S> c_before = Get<T>(p.c_before[r] + p.unit, p.units);
    const V<S> dh = Get<S>(p.dh + at * p.ld_dh);
    S* const dc_at = p.dc + at * p.ld_dc;
    const V<S> dc = Get<S>(dc_at) + dh * o * (S(1) - tanh_c * tanh_c);
    S* const dsums = p.dsums + r * 4 * L;
    Put<S>(dsums, dc * g * i * (S(1) - i));
    Put<S>(dsums + L, dc * c_before * f * (S(1) - f));
    Put<S>(dsums + 2 * L, dc * i * (S(1) - g * g));
    Put<S>(dsums + 3 * L, dh * tanh_c * o * (S(1) - o));
    Put<S>(dc_at, dc * f);
    Put<S>(p.dh_before + at * p.ld_before, V<S>{});
  }
}

template <class T>
void BackwardGru(const CellBackward<T>& p) {
  using S = Compute<T>;
  constexpr int L = kLanes<S>;
  for (int64_t i = 0; i < p.rows; ++i) {
    const int64_t at = p.row[i];
    const T* gates = p.gates + at * p.ld_gates;
    const V<S> n = Get<T>(gates, p.units);
    const V<S> r = Get<T>(gates + p.gate_stride, p.units);
    const V<S> z = Get<T>(gates + 2 * p.gate_stride, p.units);
    const V<S> recurrent = Get<T>(gates + 3 * p.gate_stride, p.units);
    const V<S> h_before = Get<T>(p.h_before[i] + p.unit, p.units);
    const V<S> dh = Get<S>(p.dh + at * p.ld_dh);
    const V<S> dn = dh * (S(1) - z) * (S(1) - n * n);
    S* const dsums = p.dsums + i * 4 * L;
    Put<S>(dsums, dn);
    Put<S>(dsums + L, dn * recurrent * r * (S(1) - r));
    Put<S>(dsums + 2 * L, dh * (h_before - n) * z * (S(1) - z));
    Put<S>(dsums + 3 * L, dn * r);
    Put<S>(p.dh_before + at * p.ld_before, dh * z);
  }
}

template <class T, Cell kCell>
void BackwardPlain(const CellBackward<T>& p) {
  using S = Compute<T>;
  constexpr int L = kLanes<S>;
  for (int64_t i = 0; i < p.rows; ++i) {
    const int64_t at = p.row[i];
    for (int v = 0; v < 4; ++v) {
      const int64_t units = p.units - v * L;
      const V<S> y = units > 0 ? Get<T>(p.y + at * p.ldy + v * L, units) : V<S>{};
      const V<S> dh = Get<S>(p.dh + at * p.ld_dh + v * L);
      const V<S> slope = kCell == Cell::kRelu ? (y > V<S>{} ? S(1) - V<S>{} : V<S>{})
                                              : S(1) - y * y;
      Put<S>(p.dsums + (i * 4 + v) * L, dh * slope);
      Put<S>(p.dh_before + at * p.ld_before + v * L, V<S>{});
    }
  }
}

template <class T>
void Backward(const CellBackward<T>& p) {
  switch (p.cell) {
    case Cell::kLstm: return BackwardLstm(p);
    case Cell::kGru: return BackwardGru(p);
    case Cell::kRelu: return BackwardPlain<T, Cell::kRelu>(p);
    case Cell::kTanh: return BackwardPlain<T, Cell::kTanh>(p);
  }
}

// ---- Moving data.

template <class S>
void Fill(int64_t rows, const S* panel, S* out) {
  constexpr int L = kLanes<S>;
  V<S> values[4];
  for (int v = 0; v < 4; ++v) values[v] = Get<S>(panel + v * L);
  for (int64_t r = 0; r < rows; ++r, out += 4 * L) {
    for (int v = 0; v < 4; ++v) Put<S>(out + v * L, values[v]);
  }
}

template <class S>
void SumRows(int64_t rows, const S* in, S* panel) {
  constexpr int L = kLanes<S>;
  V<S> sums[4];
  for (int v = 0; v < 4; ++v) sums[v] = Get<S>(panel + v * L);
  for (int64_t r = 0; r < rows; ++r, in += 4 * L) {
    for (int v = 0; v < 4; ++v) sums[v] += Get<S>(in + v * L);
  }
  for (int v = 0; v < 4; ++v) Put<S>(panel + v * L, sums[v]);
}

template <class T>
void Add(int64_t n, const T* from, Compute<T>* to) {
  for (int64_t i = 0; i < n; ++i) to[i] += Load(from[i]);
}

// Each lane of 64 bits goes its own way, and every step of it can be undone: contents that
// differ in one word never meet again unless another difference makes them.
inline void Digest(int64_t bytes, const void* from, uint64_t* digest) {
  typedef uint64_t Words __attribute__((vector_size(kBytes)));
  typedef uint64_t Anywhere __attribute__((vector_size(kBytes), aligned(1), may_alias));
  constexpr int kAtOnce = 4;
  constexpr int kLanes64 = kBytes / 8;
  static_assert(kAtOnce * kLanes64 <= kDigestWords, "");
  Words state[kAtOnce];
  for (int v = 0; v < kAtOnce; ++v) state[v] = 0x9e3779b97f4a7c15u * (v + 1) - Words{};
  const auto mix = [&state](const char* block) {
#pragma GCC unroll 4
    for (int v = 0; v < kAtOnce; ++v) {
      const Words word = *reinterpret_cast<const Anywhere*>(block + v * kBytes);
      const Words product = (state[v] ^ word) * 0xbf58476d1ce4e5b9u;
      state[v] = product ^ (product >> 29);
    }
  };
  const char* at = static_cast<const char*>(from);
  int64_t left = bytes;
  for (; left >= kAtOnce * kBytes; left -= kAtOnce * kBytes, at += kAtOnce * kBytes) mix(at);
  char last[kAtOnce * kBytes] = {};
  for (int64_t i = 0; i < left; ++i) last[i] = at[i];
  mix(last);
  for (int i = 0; i < kDigestWords; ++i) digest[i] = 0;
  for (int v = 0; v < kAtOnce; ++v) {
    for (int i = 0; i < kLanes64; ++i) digest[v * kLanes64 + i] = state[v][i];
  }
}

template <class T>
constexpr Kernels<T> Table(const Kernels<T>* narrower) {
  using S = Compute<T>;
  return {kLanes<S>,  narrower,    Multiply<S>, MultiplyOuter<S>, Dots<T>, Forward<T>,
          Backward<T>, Fill<S>,    SumRows<S>,  Add<T>,           Digest};
}

constexpr KernelSet MakeSet(const KernelSet* narrower) {
  return {Table<float>(narrower ? &narrower->for_float : nullptr),
          Table<double>(narrower ? &narrower->for_double : nullptr),
          Table<Half>(narrower ? &narrower->for_half : nullptr),
          Table<BFloat16>(narrower ? &narrower->for_bfloat16 : nullptr)};
}

constexpr KernelSet kSet = MakeSet(OPWRIGHT_NARROWER);

}  // namespace OPWRIGHT_KERNELS
}  // namespace
}  // namespace opwright

#undef OPWRIGHT_KERNELS
#undef OPWRIGHT_NARROWER
#undef OPWRIGHT_VECTOR_BYTES
