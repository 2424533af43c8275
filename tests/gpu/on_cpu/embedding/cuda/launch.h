// Takes the place of embedding/cuda/launch.h where the CPU is the device: a thread runs
// after the other, those of a block that work together up to where they wait.
#pragma once

#include <algorithm>

#include "embedding/cuda/kernels.h"
#include "embedding/cuda/plan.h"
#include "on_cpu/queue.h"

namespace opwright::embedding::cuda {

template <class Kernel>
cudaError_t Launch(const Kernel& kernel, int64_t grid, int blocks, cudaStream_t stream) {
  on_cpu::Do(stream, [=] {
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
cudaError_t LaunchTogether(const Kernel& kernel, int64_t, int blocks, cudaStream_t stream) {
  on_cpu::Do(stream, [=] {
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

inline cudaError_t FindCode() {
  return on_cpu::HasCode() ? cudaSuccess : cudaErrorNoKernelImageForDevice;
}

}  // namespace opwright::embedding::cuda
