// How a failed call of CUDA's runtime becomes a refusal.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "core/embedding/config.h"

namespace opwright {
namespace cuda {

inline embedding::Maybe Failed(const char* what, cudaError_t error) {
  if (error == cudaSuccess) return {};
  const std::string problem =
      std::string(what) + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error);
  // An error that leaves the context usable is forgotten: it has been told.
  static_cast<void>(cudaGetLastError());
  if (error == cudaErrorMemoryAllocation) return embedding::OutOfMemory(problem);
  return embedding::Refusal{embedding::Refusal::Kind::kInternal, problem};
}

#define OPWRIGHT_RETURN_IF(refused)               \
  do {                                            \
    if (auto refusal = (refused)) return refusal; \
  } while (false)
#define OPWRIGHT_CUDA(call) OPWRIGHT_RETURN_IF(::opwright::cuda::Failed(#call, (call)))

}  // namespace cuda
}  // namespace opwright
