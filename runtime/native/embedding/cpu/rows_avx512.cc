// AVX-512 (F, BW, DQ, VL).
#define OPWRIGHT_VECTOR_BYTES 64
#define OPWRIGHT_ACCUMULATORS 16
#include "embedding/cpu/rows_body.h"

namespace opwright::embedding {
extern const RowKernels rows_avx512;
// Known when compiled: nothing here may run where the processor lacks the instructions.
constexpr RowKernels rows_avx512 = MakeRowKernels();
}  // namespace opwright::embedding
