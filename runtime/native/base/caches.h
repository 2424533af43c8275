// The sizes of the processor's caches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

namespace opwright {

// Returns the size in bytes of the largest cache of the first processor. Other processors may
// share this cache. Returns 0 if Linux does not report it. The function does not use sysconf.
// In a virtual machine, sysconf may report caches of processors that the machine does not have.
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
