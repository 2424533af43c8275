// The row loops for AVX-512 (F, BW, DQ, VL).
#define OPWRIGHT_VECTOR_BYTES 64
#define OPWRIGHT_ACCUMULATORS 8
// To sum about 16 KiB of rows takes as long as memory takes to answer a request. No cache line
// therefore arrives too late. L2 has space for 16 KiB of prefetched rows besides the other
// data. Rows are not prefetched into L1, because L1 supports too few outstanding requests.
#define OPWRIGHT_PREFETCH_LEVEL 2
#define OPWRIGHT_PREFETCH_BYTES (16 << 10)
#define OPWRIGHT_PREFETCH_ROWS 48
#define OPWRIGHT_WAITS_FOR_PAGES false
#include "embedding/cpu/rows_body.h"

namespace opwright::embedding {
extern const RowKernels rows_avx512;
// A constant, because no code of this file may run on a processor that lacks the instructions.
constexpr RowKernels rows_avx512 = MakeRowKernels();
}  // namespace opwright::embedding
