// How calls become what a C interface returns.
#pragma once

#include <cstdint>
#include <exception>
#include <new>
#include <string>

#include "base/status.h"
#include "opwright_cuda.h"

namespace opwright {

// Of the calling thread.
inline std::string& LastError() {
  thread_local std::string last;
  return last;
}

inline int32_t CodeOf(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return OPWRIGHT_CUDA_OK;
    case StatusCode::kInvalidArgument: return OPWRIGHT_CUDA_INVALID_ARGUMENT;
    case StatusCode::kFailedPrecondition: return OPWRIGHT_CUDA_FAILED_PRECONDITION;
    case StatusCode::kUnimplemented: return OPWRIGHT_CUDA_UNIMPLEMENTED;
    case StatusCode::kResourceExhausted: return OPWRIGHT_CUDA_OUT_OF_MEMORY;
    case StatusCode::kInternal: return OPWRIGHT_CUDA_INTERNAL;
  }
  return OPWRIGHT_CUDA_INTERNAL;
}

// No exception leaves the library.
template <class Call>
int32_t Try(const Call& call) {
  try {
    const Status status = call();
    if (status.ok()) return OPWRIGHT_CUDA_OK;
    LastError() = status.message();
    return CodeOf(status.code());
  } catch (const std::bad_alloc&) {
    LastError() = "the host is out of memory";
    return OPWRIGHT_CUDA_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    LastError() = error.what();
    return OPWRIGHT_CUDA_INTERNAL;
  }
}

}  // namespace opwright
