#include "embedding/cuda/sort.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "on_cpu/queue.h"

namespace opwright::embedding::cuda {

cudaError_t Sort(void* temporary, size_t* bytes, const Keys (&keys)[2],
                 uint32_t* const (&positions)[2], int64_t count, int bits,
                 cudaStream_t stream) {
  *bytes = 1000;
  if (!temporary) return cudaSuccess;
  const Keys from = keys[0], to = keys[1];
  const uint32_t* const from_positions = positions[0];
  uint32_t* const to_positions = positions[1];
  // As many as CUB's for so many bits, where there is more than one block's worth: four, and
  // two for each eight bits.
  const int64_t operations = 4 + 2 * ((bits + 7) / 8);
  const auto sort = [=] {
    const int64_t mask = (int64_t{1} << bits) - 1;
    std::vector<int64_t> order(count);
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return (from[a] & mask) < (from[b] & mask); });
    for (int64_t i = 0; i < count; ++i) {
      to.Set(i, from[order[i]]);
      to_positions[i] = from_positions[order[i]];
    }
  };
  on_cpu::Do(stream, sort, operations);
  return cudaSuccess;
}

}  // namespace opwright::embedding::cuda
