// Asynchronous errors: what the device finds wrong with a call, kept there until the host asks.
#pragma once

#include <cstdint>
#include <string>

#include "embedding/spec.h"

namespace opwright::embedding::cuda {

// Many threads may offer a value at once.
OPWRIGHT_RULE void AtomicMin(unsigned long long* least, unsigned long long value) {
#if defined(__CUDA_ARCH__)
  atomicMin(least, value);
#else
  if (value < *least) *least = value;
#endif
}

// What a call brought that it must not, and where it came first: the source in the upper 16
// bits, the position in the lower 48. No update changes a row while there is something.
enum ErrorKind { kBadSample, kBadOffset, kBadId, kBadWeight, kBadGradient, kErrorKinds };
struct DeviceErrors {
  static constexpr unsigned long long kNone = ~0ull;
  unsigned long long first[kErrorKinds];

  OPWRIGHT_RULE bool any() const {
    unsigned long long all = kNone;
    for (int i = 0; i < kErrorKinds; ++i) all &= first[i];
    return all != kNone;
  }
  OPWRIGHT_RULE void Record(ErrorKind kind, int64_t source, int64_t position) {
    AtomicMin(&first[kind],
              static_cast<unsigned long long>(source) << 48 | static_cast<uint64_t>(position));
  }
  int64_t source(ErrorKind kind) const { return static_cast<int64_t>(first[kind] >> 48); }
  int64_t position(ErrorKind kind) const {
    return static_cast<int64_t>(first[kind] & ((1ull << 48) - 1));
  }
};

// The text of an error: which of them came, and to which table.
std::string Describe(const TableConfig& table, const DeviceErrors& errors);

}  // namespace opwright::embedding::cuda
