// The bodies of Kernels<T>. Included by one file per instruction set, which is compiled with
// its flags, once for each width of vectors: OPWRIGHT_KERNELS names what is defined,
// OPWRIGHT_NARROWER the set of half the width. All of it has internal linkage, and nothing
// inline from a library is called: the linker would merge such a function over all
// instruction sets. Intrinsics never are functions that could be merged.
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <utility>

#include "base/simd.h"
#include "rnn/kernels/kernels.h"

namespace opwright::rnn {
namespace {
namespace OPWRIGHT_KERNELS {

constexpr int kBytes = OPWRIGHT_VECTOR_BYTES;
// 32 registers, or 16: what they leave beside a panel and a broadcast are accumulators.
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
