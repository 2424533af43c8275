// AVX-512 (F, BW, DQ, VL).
#define OPWRIGHT_ISA_NAME "avx512"
#define OPWRIGHT_KERNEL_SET kernels_avx512
#define OPWRIGHT_VECTOR_BYTES 64
#include "kernels_body.h"
