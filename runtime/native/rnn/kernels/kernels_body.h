// The bodies of Kernels<T>. The source file of each instruction set includes this file once for
// each width of vectors. That source file is compiled with the flags of its instruction set.
// OPWRIGHT_KERNELS is the namespace that the bodies are in. OPWRIGHT_NARROWER is the address of
// the kernel set of half the width, or nullptr.
//
// All functions have internal linkage and call no inline function of a library. The linker
// would merge such a function across instruction sets, so a processor could run instructions
// that it does not have. Intrinsics are safe, because the linker cannot merge them.
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <utility>

#include "base/simd.h"
#include "rnn/kernels/kernels.h"

namespace opwright::rnn {
namespace {
namespace OPWRIGHT_KERNELS {

constexpr int kBytes = OPWRIGHT_VECTOR_BYTES;
// Whether the instruction set has 32 vector registers. Otherwise it has 16. A product uses all
// registers as accumulators, except those for a panel's columns and for a broadcast value.
constexpr bool kManyRegisters = OPWRIGHT_REGISTERS == 32;

template <class S>
constexpr int kLanes = kBytes / sizeof(S);
template <class S>
using V = typename Simd<S, kLanes<S>>::V;

#include "rnn/kernels/activations_body.h"
#include "rnn/kernels/cell_body.h"
#include "rnn/kernels/digest_body.h"
#include "rnn/kernels/gemm_body.h"
#include "rnn/kernels/gemv_body.h"
#include "rnn/kernels/rows_body.h"

template <class T>
constexpr Kernels<T> Table(const Kernels<T>* narrower) {
  using S = Compute<T>;
  return {kLanes<S>,  narrower,       Gemm<S>,         GemmTransposedA<S>,
          Gemv<T>,    CellForward<T>, CellBackward<T>, Fill<S>,
          SumRows<S>, Add<T>,         Compress};
}

constexpr KernelSet MakeSet(const KernelSet* narrower) {
  return {Table<float>(narrower ? &narrower->for_float : nullptr),
          Table<double>(narrower ? &narrower->for_double : nullptr),
          Table<Half>(narrower ? &narrower->for_half : nullptr),
          Table<BFloat16>(narrower ? &narrower->for_bfloat16 : nullptr)};
}

constexpr KernelSet kSet = MakeSet(OPWRIGHT_NARROWER);

}  // namespace OPWRIGHT_KERNELS
}  // namespace
}  // namespace opwright::rnn

#undef OPWRIGHT_KERNELS
#undef OPWRIGHT_NARROWER
#undef OPWRIGHT_VECTOR_BYTES
