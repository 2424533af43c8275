// The row loops for processors without AVX2.
#define OPWRIGHT_VECTOR_BYTES 16
#define OPWRIGHT_ACCUMULATORS 8
#define OPWRIGHT_PREFETCH_LEVEL 1
#define OPWRIGHT_PREFETCH_BYTES (6 << 10)
#define OPWRIGHT_PREFETCH_ROWS 32
#define OPWRIGHT_WAITS_FOR_PAGES true
#include "embedding/cpu/rows_body.h"

namespace opwright::embedding {
extern const RowKernels rows_portable;
// A constant, as in the files for the other instruction sets.
constexpr RowKernels rows_portable = MakeRowKernels();
}  // namespace opwright::embedding
