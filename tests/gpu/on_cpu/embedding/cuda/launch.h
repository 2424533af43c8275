// Takes the place of embedding/cuda/launch.h where the CPU is the device: a thread runs
// after the other, those of a block that work together up to where they wait.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "device.h"
#include "embedding/cuda/kernels.h"
#include "embedding/cuda/plan.h"

namespace opwright::embedding::cuda {

template <class Kernel>
cudaError_t Launch(const Kernel& kernel, int64_t grid, int blocks, cudaStream_t) {
  on_cpu::Do([=] {
    const int64_t threads = kernel.threads();
    for (int block = 0; block < blocks; ++block) {
      for (int64_t first = 0; first < std::min(threads, grid * kThreads); ++first) {
        for (int64_t i = first; i < threads; i += grid * kThreads) kernel(i, block);
      }
    }
  });
  return cudaSuccess;
}

template <class Kernel>
cudaError_t LaunchTogether(const Kernel& kernel, int64_t, int blocks, cudaStream_t) {
  on_cpu::Do([=] {
    static thread_local typename Kernel::Shared shared;
    for (int block = 0; block < blocks; ++block) {
      for (int64_t item = 0; item < kernel.items(); ++item) {
        for (int t = 0; t < Kernel::kTogether; ++t) kernel.Gather(item, t, block, shared);
        for (int t = 0; t < Kernel::kTogether; ++t) kernel.Finish(item, t, block, shared);
      }
    }
  });
  return cudaSuccess;
}

inline cudaError_t Sort(void* temporary, size_t* bytes, const Keys (&keys)[2],
                        uint32_t* const (&positions)[2], int64_t count, int bits,
                        cudaStream_t) {
  *bytes = 1000;
  if (!temporary) return cudaSuccess;
  const Keys from = keys[0], to = keys[1];
  const uint32_t* const from_positions = positions[0];
  uint32_t* const to_positions = positions[1];
  on_cpu::Do([=] {
    const int64_t mask = (int64_t{1} << bits) - 1;
    std::vector<int64_t> order(count);
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return (from[a] & mask) < (from[b] & mask); });
    for (int64_t i = 0; i < count; ++i) {
      to.Set(i, from[order[i]]);
      to_positions[i] = from_positions[order[i]];
    }
  });
  return cudaSuccess;
}

}  // namespace opwright::embedding::cuda
