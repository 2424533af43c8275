// Functions that launch kernels. Only nvcc can compile them.
#pragma once

#include <cuda_runtime.h>

#include "embedding/cuda/kernels.h"
#include "embedding/cuda/plan.h"

namespace opwright::embedding::cuda {

template <class Kernel>
__global__ void __launch_bounds__(kThreads) Run(const __grid_constant__ Kernel kernel) {
  const int64_t threads = kernel.threads();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < threads;
       i += step) {
    kernel(i, blockIdx.y);
  }
}

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kTogether)
    RunTogether(const __grid_constant__ Kernel kernel) {
  __shared__ typename Kernel::Shared shared;
  const int64_t items = kernel.items();
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    kernel.Gather(item, threadIdx.x, blockIdx.y, shared);
    __syncthreads();
    kernel.Finish(item, threadIdx.x, blockIdx.y, shared);
    __syncthreads();
  }
}

template <class Kernel>
cudaError_t LaunchWith(void (*run)(const Kernel), const Kernel& kernel, int64_t grid,
                       int blocks, int threads, cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(grid), static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  return cudaLaunchKernelEx(&config, run, kernel);
}

// Launches a kernel in a grid of `grid` thread blocks for each of `blocks` blocks of columns.
template <class Kernel>
cudaError_t Launch(const Kernel& kernel, int64_t grid, int blocks, cudaStream_t stream) {
  return LaunchWith(Run<Kernel>, kernel, grid, blocks, kThreads, stream);
}

// Launches a kernel whose threads cooperate within a thread block.
template <class Kernel>
cudaError_t LaunchTogether(const Kernel& kernel, int64_t grid, int blocks,
                           cudaStream_t stream) {
  return LaunchWith(RunTogether<Kernel>, kernel, grid, blocks, Kernel::kTogether, stream);
}

// Returns an error if the library has no code for the device.
inline cudaError_t FindCode() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, Run<CopyRows<true, false>>);
}

}  // namespace opwright::embedding::cuda
