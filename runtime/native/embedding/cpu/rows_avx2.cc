// AVX2 and FMA.
#define OPWRIGHT_VECTOR_BYTES 32
#define OPWRIGHT_ACCUMULATORS 8
#define OPWRIGHT_PREFETCH_LEVEL 1
#define OPWRIGHT_PREFETCH_BYTES (6 << 10)
#define OPWRIGHT_PREFETCH_ROWS 32
#define OPWRIGHT_WAITS_FOR_PAGES true
#include "embedding/cpu/rows_body.h"

namespace opwright::embedding {
extern const RowKernels rows_avx2;
// Known when compiled: nothing here may run where the processor lacks the instructions.
constexpr RowKernels rows_avx2 = MakeRowKernels();
}  // namespace opwright::embedding
