// Kernels for AVX-512 (F, BW, DQ, VL).
#define OPWRIGHT_REGISTERS 32

#define OPWRIGHT_KERNELS of16
#define OPWRIGHT_NARROWER nullptr
#define OPWRIGHT_VECTOR_BYTES 16
#include "rnn/kernels/kernels_body.h"

#define OPWRIGHT_KERNELS of32
#define OPWRIGHT_NARROWER &of16::kSet
#define OPWRIGHT_VECTOR_BYTES 32
#include "rnn/kernels/kernels_body.h"

#define OPWRIGHT_KERNELS of64
#define OPWRIGHT_NARROWER &of32::kSet
#define OPWRIGHT_VECTOR_BYTES 64
#include "rnn/kernels/kernels_body.h"

namespace opwright::rnn {
extern const KernelSet kernels_avx512;
const KernelSet kernels_avx512 = of64::kSet;
}  // namespace opwright::rnn
