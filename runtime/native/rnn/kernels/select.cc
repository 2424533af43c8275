#include "base/isa.h"
#include "rnn/kernels/kernels.h"

namespace opwright::rnn {

extern const KernelSet kernels_portable;
#if defined(__x86_64__)
extern const KernelSet kernels_avx2;
extern const KernelSet kernels_avx512;
#elif defined(__aarch64__)
extern const KernelSet kernels_neon;
#endif

namespace {

const KernelSet& CurrentSet() {
  switch (CurrentIsa()) {
#if defined(__x86_64__)
    case Isa::kAvx512: return kernels_avx512;
    case Isa::kAvx2: return kernels_avx2;
#elif defined(__aarch64__)
    case Isa::kNeon: return kernels_neon;
#endif
    default: return kernels_portable;
  }
}

}  // namespace

template <>
const Kernels<float>& SelectKernels() {
  return CurrentSet().for_float;
}
template <>
const Kernels<double>& SelectKernels() {
  return CurrentSet().for_double;
}
template <>
const Kernels<Half>& SelectKernels() {
  return CurrentSet().for_half;
}
template <>
const Kernels<BFloat16>& SelectKernels() {
  return CurrentSet().for_bfloat16;
}

}  // namespace opwright::rnn
