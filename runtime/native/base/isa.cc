#include "base/isa.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace opwright {

namespace {

bool IsSupported(Isa isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  switch (isa) {
    case Isa::kAvx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("f16c");
    default: return isa == Isa::kPortable;
  }
#elif defined(__aarch64__)
  return isa == Isa::kNeon || isa == Isa::kPortable;
#else
  return isa == Isa::kPortable;
#endif
}

// Returns the instruction set of this name, or the best one if the name is empty. Returns
// nothing if the processor does not support it, or the name is unknown.
std::optional<Isa> FindIsa(const char* name) {
  std::optional<Isa> found;
  for (const Isa isa : kIsas) {
    if ((name[0] == '\0' || !std::strcmp(name, NameOf(isa))) && IsSupported(isa)) found = isa;
  }
  return found;
}

Isa InitialIsa() {
  const char* name = std::getenv("OPWRIGHT_ISA");
  const std::optional<Isa> isa = FindIsa(name ? name : "");
  return isa ? *isa : *FindIsa("");
}

std::atomic<Isa>& Current() {
  static std::atomic<Isa> current{InitialIsa()};
  return current;
}

}  // namespace

const char* NameOf(Isa isa) {
  switch (isa) {
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx2: return "avx2";
    case Isa::kNeon: return "neon";
    default: return "portable";
  }
}

bool UseIsa(const char* name) {
  const std::optional<Isa> isa = FindIsa(name);
  if (isa) Current().store(*isa);
  return isa.has_value();
}

Isa CurrentIsa() { return Current().load(); }

}  // namespace opwright
