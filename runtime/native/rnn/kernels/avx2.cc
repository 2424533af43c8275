// Kernels for AVX2 with FMA.
#define OPWRIGHT_REGISTERS 16

#define OPWRIGHT_KERNELS of16
#define OPWRIGHT_NARROWER nullptr
#define OPWRIGHT_VECTOR_BYTES 16
#include "rnn/kernels/kernels_body.h"

#define OPWRIGHT_KERNELS of32
#define OPWRIGHT_NARROWER &of16::kSet
#define OPWRIGHT_VECTOR_BYTES 32
#include "rnn/kernels/kernels_body.h"

namespace opwright::rnn {
extern const KernelSet kernels_avx2;
const KernelSet kernels_avx2 = of32::kSet;
}  // namespace opwright::rnn
