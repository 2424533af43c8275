// How a failed call of CUDA's runtime becomes a status.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "embedding/spec.h"

namespace opwright::embedding::cuda {

inline Status Failed(const char* what, cudaError_t error) {
  if (error == cudaSuccess) return {};
  const std::string problem =
      std::string(what) + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error);
  // An error that leaves the context usable is forgotten: it has been told.
  static_cast<void>(cudaGetLastError());
  if (error == cudaErrorMemoryAllocation) return ResourceExhaustedError(problem);
  return InternalError(problem);
}

#define OPWRIGHT_CUDA(call) \
  OPWRIGHT_RETURN_IF_ERROR(::opwright::embedding::cuda::Failed(#call, (call)))

}  // namespace opwright::embedding::cuda
