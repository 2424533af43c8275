// The number of the TPU system of the process. State that ends with a system remembers it.
#pragma once

#include <atomic>
#include <cstdint>

namespace opwright::embedding {

inline std::atomic<int64_t>& SystemCounter() {
  static std::atomic<int64_t> counter{0};
  return counter;
}
inline int64_t SystemNumber() { return SystemCounter().load(); }
// Ops that set a system up or shut it down call this function.
inline void BeginSystem() { ++SystemCounter(); }

}  // namespace opwright::embedding
