// Kernels for NEON, which has 32 registers.
#define OPWRIGHT_REGISTERS 32

#define OPWRIGHT_KERNELS of16
#define OPWRIGHT_NARROWER nullptr
#define OPWRIGHT_VECTOR_BYTES 16
#include "rnn/kernels/kernels_body.h"

namespace opwright::rnn {
extern const KernelSet kernels_neon;
const KernelSet kernels_neon = of16::kSet;
}  // namespace opwright::rnn
