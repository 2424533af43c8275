// The inner loops. They are compiled once per instruction set and chosen at run time.
//
// A panel is four vectors of `lanes` values. It holds the gates of `lanes` units of an LSTM
// (i, f, g, o) or of a GRU (W_n x, r, z, R_n h). A plain cell puts four runs of units into one
// panel. The last panel is narrower if fewer lanes suffice.
#pragma once

#include <cstdint>

#include "base/float16.h"
#include "rnn/kernels/cell.h"
#include "rnn/kernels/digest.h"

namespace opwright::rnn {

// C += A B, for one panel of columns.
template <class S>
struct GemmArgs {
  int64_t rows;
  const S* const* a;  // By row. A row is `runs` runs of `run` values, `run_stride` apart.
  int64_t runs, run, run_stride;
  const S* b;  // Row k at b + k * ldb.
  int64_t ldb;
  S* c;  // Row i at c + (c_rows ? c_rows[i] : i) * ldc.
  int64_t ldc;
  const int32_t* c_rows;
  int vectors;  // Columns, in vectors: 1 to 4.
};

// C += A^T B, for one panel of columns and one row of C for each column of A.
template <class S>
struct GemmTransposedAArgs {
  int64_t rows;       // Of C.
  int64_t depth;      // Rows of A and of B.
  const S* const* a;  // By row.
  const S* b;         // Row k at b + k * ldb.
  int64_t ldb;
  S* c;  // Row i at c + i * ldc.
  int64_t ldc;
  int vectors;  // Columns, in vectors: 3 or 4.
};

// One step of one panel's units: computes the new states from the gates' pre-activations.
template <class T>
struct CellForwardArgs {
  using S = Compute<T>;
  Cell cell;
  int64_t rows;
  int64_t units;             // Those of the panel that exist; the rest is padding.
  const int32_t* state_row;  // By row: that of its sequence in the arrays below.
  const S* preactivations;   // Of the gates, [rows, panel].
  S* h;                      // New hidden state, rows ldh apart.
  const S* h_before;
  S* c;  // Cell state, replaced.
  int64_t ldh, ldc;
  T* y;  // Output, or null.
  int64_t ldy;
  T* gates;  // What the backward pass needs, or null.
  int64_t ld_gates, gate_stride;
  T* cells;
  int64_t ld_cells;
};

// The backward pass of the same step: computes the gradients of the pre-activations from those
// of the new states.
template <class T>
struct CellBackwardArgs {
  using S = Compute<T>;
  Cell cell;
  int64_t rows;
  int64_t units;
  int64_t unit;  // The panel's first; row pointers begin at unit 0.
  const int32_t* state_row;
  const S* dh;  // Of the new hidden state, rows ld_dh apart.
  int64_t ld_dh;
  S* dh_before;  // The part for the old state that does not pass through the gates.
  int64_t ld_before;
  S* dc;  // Of the new cell state; replaced by that of the old one.
  int64_t ld_dc;
  const T* const* h_before;  // By row, not by state_row.
  const T* const* c_before;
  const T* gates;
  int64_t ld_gates, gate_stride;
  const T* cells;
  int64_t ld_cells;
  const T* y;
  int64_t ldy;
  S* preactivation_grads;  // [rows, panel]
};

template <class T>
struct Kernels {
  using S = Compute<T>;
  int lanes;
  const Kernels* narrower;  // The same with half the lanes, or null.
  void (*gemm)(const GemmArgs<S>&);
  void (*gemm_transposed_a)(const GemmTransposedAArgs<S>&);
  // out[i] += row i of [rows, columns] times x, for weights that are not packed.
  void (*gemv)(int64_t rows, int64_t columns, const T* weights, const S* x, S* out);
  void (*cell_forward)(const CellForwardArgs<T>&);
  void (*cell_backward)(const CellBackwardArgs<T>&);
  // Sets every row of [rows, panel] to `panel`.
  void (*fill)(int64_t rows, const S* panel, S* out);
  // panel += the sum of rows of [rows, panel].
  void (*sum_rows)(int64_t rows, const S* in, S* panel);
  // to += from.
  void (*add)(int64_t n, const T* from, S* to);
  CompressBlocks compress;
};

// The kernels of one instruction set.
struct KernelSet {
  Kernels<float> for_float;
  Kernels<double> for_double;
  Kernels<Half> for_half;
  Kernels<BFloat16> for_bfloat16;
};

// Returns the kernels of the current instruction set (see base/isa.h). T: float, double, Half,
// BFloat16.
template <class T>
const Kernels<T>& SelectKernels();

}  // namespace opwright::rnn
