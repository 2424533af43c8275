// The row loops for NEON, whose 32 registers hold the sums of 64 columns.
#define OPWRIGHT_VECTOR_BYTES 16
#define OPWRIGHT_ACCUMULATORS 16
// As in rows_avx2.cc. These loops are not measured on an ARM processor.
#define OPWRIGHT_PREFETCH_LEVEL 1
#define OPWRIGHT_PREFETCH_BYTES (6 << 10)
#define OPWRIGHT_PREFETCH_ROWS 32
#define OPWRIGHT_WAITS_FOR_PAGES true
#include "embedding/cpu/rows_body.h"

namespace opwright::embedding {
extern const RowKernels rows_neon;
// A constant, as in the files for the other instruction sets.
constexpr RowKernels rows_neon = MakeRowKernels();
}  // namespace opwright::embedding
