// A GPU as the device of the store's tests.
#include "device/device.h"

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

namespace opwright {
namespace device {
namespace {

// A test cannot go on after an error of the device's own.
void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s, %s\n", what, cudaGetErrorName(error),
               cudaGetErrorString(error));
  std::abort();
}
#define CHECK_CUDA(call) Check((call), #call)

std::mutex mutex;
std::condition_variable changed;
bool held = false;

// On a thread of the driver's: the stream goes on when it returns.
void CUDART_CB UntilLetGo(void*) {
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [] { return !held; });
}

// Pinned memory is taken once: to take and to give it back may wait for the device, which a
// test may hold.
struct SharedMemory {
  static constexpr size_t kBytes = size_t{256} << 20;

  SharedMemory() {
    void* data = nullptr;
    CHECK_CUDA(cudaMallocHost(&data, kBytes));
    next = static_cast<char*>(data);
    end = next + kBytes;
  }
  std::mutex mutex;
  char *next, *end;
  std::multimap<size_t, void*> free;
};
SharedMemory& TheSharedMemory() {
  static SharedMemory* const memory = new SharedMemory;
  return *memory;
}

}  // namespace

void SetLater(bool) {
  Hold(false);
  Settle();
}
void Settle() { CHECK_CUDA(cudaDeviceSynchronize()); }

void Hold(bool hold) {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (held == hold) return;
    held = hold;
    changed.notify_all();
  }
  if (hold) CHECK_CUDA(cudaLaunchHostFunc(nullptr, UntilLetGo, nullptr));
}

void* Allocate(int64_t bytes) {
  void* data = nullptr;
  CHECK_CUDA(cudaMallocAsync(&data, static_cast<size_t>(bytes), nullptr));
  CHECK_CUDA(cudaMemsetAsync(data, 0xA5, static_cast<size_t>(bytes), nullptr));
  return data;
}
void Free(void* data, int64_t bytes) {
  CHECK_CUDA(cudaMemsetAsync(data, 0xA5, static_cast<size_t>(bytes), nullptr));
  CHECK_CUDA(cudaFreeAsync(data, nullptr));
}

void* AllocateShared(size_t bytes) {
  SharedMemory& memory = TheSharedMemory();
  const std::lock_guard<std::mutex> lock(memory.mutex);
  const size_t size = (bytes + 255) / 256 * 256;
  if (const auto found = memory.free.find(size); found != memory.free.end()) {
    void* const data = found->second;
    memory.free.erase(found);
    return data;
  }
  if (size > static_cast<size_t>(memory.end - memory.next)) {
    std::fprintf(stderr, "no %zu bytes of pinned memory left\n", size);
    std::abort();
  }
  memory.next += size;
  return memory.next - size;
}
void FreeShared(void* data, size_t bytes) {
  SharedMemory& memory = TheSharedMemory();
  const std::lock_guard<std::mutex> lock(memory.mutex);
  memory.free.emplace((bytes + 255) / 256 * 256, data);
}

bool Counts() { return false; }
int64_t Pinned() { return 0; }
int64_t Events() { return 0; }
int64_t Streams() { return 0; }
int64_t Waits() { return 0; }
int64_t Operations() { return 0; }
int64_t CopiedToDevice() { return 0; }
int64_t CopiedToHost() { return 0; }
int64_t Choices() { return 0; }
void SetDriver(int) {}
void SetCode(bool) {}

}  // namespace device
}  // namespace opwright
