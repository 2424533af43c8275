// AVX2 with FMA.
#define OPWRIGHT_ISA_NAME "avx2"
#define OPWRIGHT_KERNEL_SET kernels_avx2
#define OPWRIGHT_VECTOR_BYTES 32
#include "kernels_body.h"
