// AVX-512 (F, BW, DQ, VL).
#define OPWRIGHT_VECTOR_BYTES 64
#define OPWRIGHT_ACCUMULATORS 8
// The sums of some 16 KiB of rows take as long as memory does, and no line comes too late: the
// second level has room for so much beside them, the first one has too few requests under way.
#define OPWRIGHT_AHEAD_LEVEL 2
#define OPWRIGHT_AHEAD_BYTES (16 << 10)
#define OPWRIGHT_AHEAD_ROWS 48
#define OPWRIGHT_WAITS_FOR_PAGES false
#include "embedding/cpu/rows_body.h"

namespace opwright::embedding {
extern const RowKernels rows_avx512;
// Known when compiled: nothing here may run where the processor lacks the instructions.
constexpr RowKernels rows_avx512 = MakeRowKernels();
}  // namespace opwright::embedding
