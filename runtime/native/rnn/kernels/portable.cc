// Kernels for every processor. Vectors have 16 bytes, and the compiler lowers them to the
// instructions of the target.
#define OPWRIGHT_REGISTERS 16

#define OPWRIGHT_KERNELS of16
#define OPWRIGHT_NARROWER nullptr
#define OPWRIGHT_VECTOR_BYTES 16
#include "rnn/kernels/kernels_body.h"

namespace opwright::rnn {
extern const KernelSet kernels_portable;
const KernelSet kernels_portable = of16::kSet;
}  // namespace opwright::rnn
