// AVX-512 (F, BW, DQ, VL).
#define OPWRIGHT_VECTOR_BYTES 64
#define OPWRIGHT_ACCUMULATORS 8
// The sums of some 16 KiB of rows take as long as memory does, so no line comes too late. L2
// can hold that much in addition to the rows. L1 has too few requests under way.
#define OPWRIGHT_PREFETCH_LEVEL 2
#define OPWRIGHT_PREFETCH_BYTES (16 << 10)
#define OPWRIGHT_PREFETCH_ROWS 48
#define OPWRIGHT_WAITS_FOR_PAGES false
#include "embedding/cpu/rows_body.h"

namespace opwright::embedding {
extern const RowKernels rows_avx512;
// Known when compiled: nothing here may run where the processor lacks the instructions.
constexpr RowKernels rows_avx512 = MakeRowKernels();
}  // namespace opwright::embedding
