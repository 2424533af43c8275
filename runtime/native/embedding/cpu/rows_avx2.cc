// The row loops for AVX2 with FMA.
#define OPWRIGHT_VECTOR_BYTES 32
#define OPWRIGHT_ACCUMULATORS 8
#define OPWRIGHT_PREFETCH_LEVEL 1
#define OPWRIGHT_PREFETCH_BYTES (6 << 10)
#define OPWRIGHT_PREFETCH_ROWS 32
#define OPWRIGHT_WAITS_FOR_PAGES true
#include "embedding/cpu/rows_body.h"

namespace opwright::embedding {
extern const RowKernels rows_avx2;
// A constant, because no code of this file may run on a processor that lacks the instructions.
constexpr RowKernels rows_avx2 = MakeRowKernels();
}  // namespace opwright::embedding
