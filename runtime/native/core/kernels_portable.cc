// Every processor: vectors of 16 bytes.
#define OPWRIGHT_ISA_NAME "portable"
#define OPWRIGHT_KERNEL_SET kernels_portable
#define OPWRIGHT_VECTOR_BYTES 16
#include "kernels_body.h"
