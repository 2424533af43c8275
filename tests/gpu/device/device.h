// The device that tests of the embedding store run on: a GPU (on_gpu/), or the CPU in its place
// (on_cpu/), which counts what it is given.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace opwright {
namespace device {

// Whether work is done later, by threads, one a stream: a GPU does it so anyway. Both wait for
// what is queued.
void SetLater(bool later);
void Settle();
// Keeps the null stream from going on, or lets it.
void Hold(bool hold);

// Memory of the device, uninitialized. Freed on the null stream: when that gets
// there it is overwritten, and may be given again to work that is queued later.
void* Allocate(int64_t bytes);
void Free(void* data, int64_t bytes);
// Memory that the host and the device can reach.
void* AllocateShared(size_t bytes);
void FreeShared(void* data, size_t bytes);

template <class T>
struct Shared {
  using value_type = T;
  Shared() = default;
  template <class Other>
  explicit Shared(const Shared<Other>&) {}
  T* allocate(size_t count) { return static_cast<T*>(AllocateShared(count * sizeof(T))); }
  void deallocate(T* data, size_t count) { FreeShared(data, count * sizeof(T)); }
  bool operator==(const Shared&) const { return true; }
  bool operator!=(const Shared&) const { return false; }
};
using Floats = std::vector<float, Shared<float>>;

// Whether the following are known; if not, they are zero.
bool Counts();
// Pinned memory, events and streams that are not given back.
int64_t Pinned();
int64_t Events();
int64_t Streams();
// How often a caller waited for the device.
int64_t Waits();
// Kernels, copies, events and what else streams were given.
int64_t Operations();
// Bytes that were copied from the host to the device, and back.
int64_t CopiedToDevice();
int64_t CopiedToHost();
// How often a caller chose a device, which makes a context there.
int64_t Choices();
// The version of CUDA that the driver is for, and whether there is code for the device; until
// the end of the process or the next call. Of a GPU, both are what they are.
void SetDriver(int version);
void SetCode(bool there);

}  // namespace device
}  // namespace opwright
