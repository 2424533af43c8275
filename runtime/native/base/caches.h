// How large the caches of the processor are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

namespace opwright {

// Bytes of the first processor's largest one, which others may share; 0 where Linux does not
// tell. In a virtual machine sysconf may count those of processors that are somebody else's.
inline int64_t LargestCache() {
  static const int64_t largest = [] {
    int64_t bytes = 0;
    for (int i = 0; i < 8; ++i) {
      std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i) +
                         "/size");
      int64_t kib = 0;
      if (file >> kib) bytes = std::max(bytes, kib << 10);
    }
    return bytes;
  }();
  return largest;
}

}  // namespace opwright
