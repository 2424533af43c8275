// What the device finds wrong with a call, kept there until the host asks.
#pragma once

#include <cstdint>
#include <string>

#include "core/embedding/config.h"

namespace opwright {
namespace cuda {

// Many threads may offer a value at once.
OPWRIGHT_RULE void KeepLeast(unsigned long long* least, unsigned long long value) {
#if defined(__CUDA_ARCH__)
  atomicMin(least, value);
#else
  if (value < *least) *least = value;
#endif
}

// What a call brought that it must not, and where it came first: the source in the upper 16
// bits, the position in the lower 48. No update changes a row while there is something.
enum Offence { kBadStart, kBadId, kBadWeight, kBadGradient, kOffences };
struct Verdict {
  static constexpr unsigned long long kNone = ~0ull;
  unsigned long long first[kOffences];

  OPWRIGHT_RULE bool bad() const {
    unsigned long long all = kNone;
    for (int i = 0; i < kOffences; ++i) all &= first[i];
    return all != kNone;
  }
  OPWRIGHT_RULE void Record(Offence offence, int64_t source, int64_t position) {
    KeepLeast(&first[offence],
              static_cast<unsigned long long>(source) << 48 | static_cast<uint64_t>(position));
  }
  int64_t source(Offence offence) const { return static_cast<int64_t>(first[offence] >> 48); }
  int64_t position(Offence offence) const {
    return static_cast<int64_t>(first[offence] & ((1ull << 48) - 1));
  }
};

// Which of them came, in words, for the table that they came to.
std::string Describe(const embedding::TableConfig& table, const Verdict& verdict);

}  // namespace cuda
}  // namespace opwright
