#include <atomic>
#include <cstdlib>
#include <cstring>

#include "kernels.h"

namespace opwright {

extern const KernelSet kernels_portable;
#if defined(__x86_64__)
extern const KernelSet kernels_avx2;
extern const KernelSet kernels_avx512;
#endif

namespace {

// Best first. The processor is asked only once a table exists for it.
const KernelSet* Find(const char* name) {
  const bool any = name[0] == '\0';
#if defined(__x86_64__)
  __builtin_cpu_init();
  if ((any || !std::strcmp(name, "avx512")) && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma")) {
    return &kernels_avx512;
  }
  if ((any || !std::strcmp(name, "avx2")) && __builtin_cpu_supports("avx2") &&
      __builtin_cpu_supports("fma")) {
    return &kernels_avx2;
  }
#endif
  if (any || !std::strcmp(name, "portable")) return &kernels_portable;
  return nullptr;
}

const KernelSet* AtStart() {
  const char* name = std::getenv("OPWRIGHT_ISA");
  const KernelSet* set = Find(name ? name : "");
  return set ? set : Find("");
}

std::atomic<const KernelSet*>& Current() {
  static std::atomic<const KernelSet*> current{AtStart()};
  return current;
}

}  // namespace

bool UseIsa(const char* name) {
  const KernelSet* set = Find(name);
  if (set) Current().store(set);
  return set != nullptr;
}

const char* CurrentIsa() { return Current().load()->for_float.isa; }

template <>
const Kernels<float>& SelectKernels() {
  return Current().load()->for_float;
}
template <>
const Kernels<double>& SelectKernels() {
  return Current().load()->for_double;
}
template <>
const Kernels<Half>& SelectKernels() {
  return Current().load()->for_half;
}
template <>
const Kernels<BFloat16>& SelectKernels() {
  return Current().load()->for_bfloat16;
}

}  // namespace opwright
