// Conversion of a failed call of CUDA's runtime to a status.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "embedding/spec.h"

namespace opwright::embedding::cuda {

inline Status Failed(const char* what, cudaError_t error) {
  if (error == cudaSuccess) return {};
  const std::string problem =
      std::string(what) + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error);
  // The returned status reports the error. This call clears it, unless CUDA keeps it because
  // the context is unusable.
  static_cast<void>(cudaGetLastError());
  if (error == cudaErrorMemoryAllocation) return ResourceExhaustedError(problem);
  return InternalError(problem);
}

#define OPWRIGHT_CUDA(call) \
  OPWRIGHT_RETURN_IF_ERROR(::opwright::embedding::cuda::Failed(#call, (call)))

}  // namespace opwright::embedding::cuda
