// The inner loops. They are compiled once for each instruction set and chosen at run time.
//
// A panel is four vectors of `lanes` values. For an LSTM, the vectors are the gates i, f, g, o
// of `lanes` units. For a GRU, they are W_n x, r, z, R_n h of `lanes` units. A plain cell has
// one gate, so each vector of a panel contains `lanes` other units. The last panel has fewer
// lanes if those suffice.
#pragma once

#include <cstdint>

#include "base/float16.h"
#include "rnn/kernels/cell.h"
#include "rnn/kernels/digest.h"

namespace opwright::rnn {

// The arguments of C += A B, for one panel of columns.
template <class S>
struct GemmArgs {
  int64_t rows;
  // Pointers to the rows. A row is `runs` runs of `run` values, `run_stride` apart.
  const S* const* a;
  int64_t runs, run, run_stride;
  const S* b;  // Row k is at b + k * ldb.
  int64_t ldb;
  S* c;  // Row i is at c + (c_rows ? c_rows[i] : i) * ldc.
  int64_t ldc;
  const int32_t* c_rows;
  int vectors;  // The number of columns, in vectors: 1 to 4.
};

// The arguments of C += A^T B, for one panel of columns. C has one row for each column of A.
template <class S>
struct GemmTransposedAArgs {
  int64_t rows;       // The number of rows of C.
  int64_t depth;      // The number of rows of A and of B.
  const S* const* a;  // Pointers to the rows.
  const S* b;         // Row k is at b + k * ldb.
  int64_t ldb;
  S* c;  // Row i is at c + i * ldc.
  int64_t ldc;
  int vectors;  // The number of columns, in vectors: 1 to 4.
};

// The arguments of one step of one panel's units. The step computes the new states from the
// gates' pre-activations.
template <class T>
struct CellForwardArgs {
  using S = Compute<T>;
  Cell cell;
  int64_t rows;
  int64_t units;             // The number of the panel's units, without padding.
  const int32_t* state_row;  // For each row, the index of its sequence in the arrays below.
  const S* preactivations;   // Pre-activations of the gates, [rows, panel].
  S* h;                      // New hidden state. Rows are ldh apart.
  const S* h_before;
  S* c;  // The cell state. The step replaces it.
  int64_t ldh, ldc;
  T* y;  // Output. It may be null.
  int64_t ldy;
  T* gates;  // Values that the backward pass needs. It may be null.
  int64_t ld_gates, gate_stride;
  T* cells;
  int64_t ld_cells;
};

// The arguments of the backward pass through one step of one panel's units. It computes the
// gradients of the pre-activations from the gradients of the new states.
template <class T>
struct CellBackwardArgs {
  using S = Compute<T>;
  Cell cell;
  int64_t rows;
  int64_t units;
  // The first unit of the panel. Pointers to rows lead to unit 0 of the layer.
  int64_t unit;
  const int32_t* state_row;
  const S* dh;  // Gradient of the new hidden state. Rows are ld_dh apart.
  int64_t ld_dh;
  // The part of the old hidden state's gradient that does not pass through the gates.
  S* dh_before;
  int64_t ld_before;
  // Gradient of the new cell state. The step replaces it with the gradient of the old one.
  S* dc;
  int64_t ld_dc;
  const T* const* h_before;  // Indexed by row and not by state_row.
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
  // The same kernels with half the lanes. It is null if there are none.
  const Kernels* narrower;
  void (*gemm)(const GemmArgs<S>&);
  void (*gemm_transposed_a)(const GemmTransposedAArgs<S>&);
  // out[i] += row i of `weights`, which is [rows, columns], times x. The weights are not
  // packed.
  void (*gemv)(int64_t rows, int64_t columns, const T* weights, const S* x, S* out);
  void (*cell_forward)(const CellForwardArgs<T>&);
  void (*cell_backward)(const CellBackwardArgs<T>&);
  // Copies `panel` to every row of `out`, which is [rows, panel].
  void (*fill)(int64_t rows, const S* panel, S* out);
  // Adds the sum of the rows of `in`, which is [rows, panel], to `panel`.
  void (*sum_rows)(int64_t rows, const S* in, S* panel);
  // Adds each element of `from` to the same element of `to`.
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

// Returns the kernels of the current instruction set (see base/isa.h). T is float, double, Half
// or BFloat16.
template <class T>
const Kernels<T>& SelectKernels();

}  // namespace opwright::rnn
