// Asynchronous errors: problems that the device finds in the arguments of a call. They are
// stored on the device until the host reads them.
#pragma once

#include <cstdint>
#include <string>

#include "embedding/spec.h"

namespace opwright::embedding::cuda {

// Many threads may call this at the same time.
OPWRIGHT_RULE void AtomicMin(unsigned long long* least, unsigned long long value) {
#if defined(__CUDA_ARCH__)
  atomicMin(least, value);
#else
  if (value < *least) *least = value;
#endif
}

// The errors in the arguments of calls. For each kind, the first error is recorded: the source
// in the upper 16 bits and the position in the lower 48 bits. No update changes a row while
// there is an error.
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

// Returns a text with the recorded errors of all kinds. It begins with a description of the
// table.
std::string Describe(const TableConfig& table, const DeviceErrors& errors);

}  // namespace opwright::embedding::cuda
