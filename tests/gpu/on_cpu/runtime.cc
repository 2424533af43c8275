// The part of CUDA's runtime that tables.cu calls, where the CPU is the device: 2 GiB of it.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

extern "C" {

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount ? 2 : 2048;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, size_t bytes) {
  if (bytes > size_t{2} << 30) return cudaErrorMemoryAllocation;
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  // What was never written shows.
  std::memset(*data, 0xA5, bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** data, size_t bytes) { return cudaMalloc(data, bytes); }
cudaError_t cudaFreeHost(void* data) { return cudaFree(data); }
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = size_t{2} << 30;
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t) {
  std::memset(data, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorMemoryAllocation"; }
const char* cudaGetErrorString(cudaError_t) { return "out of memory"; }

}  // extern "C"
