#include "embedding/cuda/context.h"

#include "embedding/cuda/check.h"

namespace opwright::embedding::cuda {
namespace {

// Returns a function of the driver. It is looked up at run time, because the library is not
// linked against the driver, which may not be installed.
template <class Function>
Function* Find(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
  constexpr unsigned kVersion = 12000;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  const bool good = error == cudaSuccess && result == cudaDriverEntryPointSuccess;
  return good ? reinterpret_cast<Function*>(found) : nullptr;
}

struct Driver {
  decltype(cuCtxGetCurrent)* const get = Find<decltype(cuCtxGetCurrent)>("cuCtxGetCurrent");
  decltype(cuCtxPushCurrent)* const push = Find<decltype(cuCtxPushCurrent)>("cuCtxPushCurrent");
  decltype(cuCtxPopCurrent)* const pop = Find<decltype(cuCtxPopCurrent)>("cuCtxPopCurrent");

  static const Driver& Get() {
    static const Driver driver;
    return driver;
  }
};

}  // namespace

StatusOr<Context> Context::Current() {
  const Driver& driver = Driver::Get();
  Context current;
  if (!driver.get || !driver.push || !driver.pop) {
    return FailedPreconditionError("there is no driver of CUDA, or one that knows no contexts");
  }
  if (driver.get(&current.context_) == CUDA_SUCCESS && current.context_) return current;
  int device = 0;
  OPWRIGHT_CUDA(cudaGetDevice(&device));
  OPWRIGHT_CUDA(cudaSetDevice(device));
  if (driver.get(&current.context_) == CUDA_SUCCESS && current.context_) return current;
  return InternalError("device " + std::to_string(device) + " has no context of CUDA");
}

Context::Scope::Scope(const Context& context)
    : entered_(context.context_ && Driver::Get().push(context.context_) == CUDA_SUCCESS) {}

Context::Scope::~Scope() {
  CUcontext left;
  if (entered_) static_cast<void>(Driver::Get().pop(&left));
}

}  // namespace opwright::embedding::cuda
