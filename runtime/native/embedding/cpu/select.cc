#include "base/isa.h"
#include "embedding/cpu/rows.h"

namespace opwright::embedding {

extern const RowKernels rows_portable;
#if defined(__x86_64__)
extern const RowKernels rows_avx2;
extern const RowKernels rows_avx512;
#elif defined(__aarch64__)
extern const RowKernels rows_neon;
#endif

const RowKernels& SelectRowKernels() {
  switch (CurrentIsa()) {
#if defined(__x86_64__)
    case Isa::kAvx512: return rows_avx512;
    case Isa::kAvx2: return rows_avx2;
#elif defined(__aarch64__)
    case Isa::kNeon: return rows_neon;
#endif
    default: return rows_portable;
  }
}

}  // namespace opwright::embedding
