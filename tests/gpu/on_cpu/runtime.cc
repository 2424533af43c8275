// The part of CUDA's runtime that the backend calls, where the CPU is the device: 2 GiB of it.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "device/device.h"
#include "on_cpu/queue.h"

namespace opwright {
namespace on_cpu {
namespace {

std::atomic<int64_t> pinned{0}, events{0}, streams{0}, waits{0}, operations{0}, copied{0},
    copied_back{0}, choices{0};
std::atomic<int> driver{CUDART_VERSION};
std::atomic<bool> code{true};

// Of a thread.
thread_local std::vector<CUcontext> contexts;
CUresult GetContext(CUcontext* context) {
  *context = contexts.empty() ? nullptr : contexts.back();
  return CUDA_SUCCESS;
}
CUresult PushContext(CUcontext context) {
  contexts.push_back(context);
  return CUDA_SUCCESS;
}
CUresult PopContext(CUcontext* context) {
  GetContext(context);
  if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  contexts.pop_back();
  return CUDA_SUCCESS;
}

// A stream with a thread of its own, or none: then work is done at once.
class Stream {
 public:
  ~Stream() { SetLater(false); }

  void Do(std::function<void()> work) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!thread_.joinable()) {
      lock.unlock();
      work();
      return;
    }
    queue_.push_back(std::move(work));
    changed_.notify_all();
  }

  void SetLater(bool later) {
    Hold(false);
    Settle();
    std::unique_lock<std::mutex> lock(mutex_);
    if (later == thread_.joinable()) return;
    if (later) {
      end_ = false;
      thread_ = std::thread([this] { Work(); });
      return;
    }
    end_ = true;
    changed_.notify_all();
    std::thread ending = std::move(thread_);
    lock.unlock();
    ending.join();
  }

  void Settle() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return queue_.empty() && !busy_; });
  }

  void Hold(bool hold) {
    std::lock_guard<std::mutex> lock(mutex_);
    hold_ = hold;
    changed_.notify_all();
  }

 private:
  void Work() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return end_ || (!queue_.empty() && !hold_); });
      if (end_) return;
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
      lock.unlock();
      if (++done_ % 7 == 0) std::this_thread::yield();
      work();
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::thread thread_;
  uint64_t done_ = 0;
  bool busy_ = false, hold_ = false, end_ = false;
};

// All that there are: the null stream and those that were made.
struct Device {
  Stream null;
  std::mutex mutex;
  std::vector<std::shared_ptr<Stream>> made;
  bool later = false;

  std::vector<std::shared_ptr<Stream>> All() {
    std::lock_guard<std::mutex> lock(mutex);
    std::vector<std::shared_ptr<Stream>> all = made;
    all.emplace_back(&null, [](Stream*) {});
    return all;
  }
};
Device& TheDevice() {
  static Device device;
  return device;
}
Stream& StreamOf(cudaStream_t stream) {
  return stream ? *reinterpret_cast<Stream*>(stream) : TheDevice().null;
}

struct Event {
  Event() { ++events; }
  ~Event() { --events; }
  std::atomic<int64_t> recorded{0};
  std::mutex mutex;
  std::condition_variable changed;
  int64_t passed = 0;

  void Pass(int64_t number) {
    std::lock_guard<std::mutex> lock(mutex);
    passed = std::max(passed, number);
    changed.notify_all();
  }
  bool Passed(int64_t number) {
    std::lock_guard<std::mutex> lock(mutex);
    return passed >= number;
  }
  void Await(int64_t number) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return passed >= number; });
  }
};

cudaError_t Allocate(void** data, size_t bytes) {
  if (bytes > size_t{2} << 30) return cudaErrorMemoryAllocation;
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  // What was never written shows.
  std::memset(*data, 0xA5, bytes);
  return cudaSuccess;
}

// Events may be destroyed before they have passed.
std::shared_ptr<Event>& EventOf(cudaEvent_t event) {
  return *reinterpret_cast<std::shared_ptr<Event>*>(event);
}

}  // namespace

void Do(cudaStream_t stream, std::function<void()> work, int64_t count) {
  operations += count;
  StreamOf(stream).Do(std::move(work));
}

bool HasCode() { return code; }

}  // namespace on_cpu

namespace device {

void SetLater(bool later) {
  Hold(false);
  {
    std::lock_guard<std::mutex> lock(on_cpu::TheDevice().mutex);
    on_cpu::TheDevice().later = later;
  }
  // One may wait for another.
  Settle();
  for (const auto& stream : on_cpu::TheDevice().All()) stream->SetLater(later);
}
void Settle() {
  for (const auto& stream : on_cpu::TheDevice().All()) stream->Settle();
}
void Hold(bool hold) { on_cpu::TheDevice().null.Hold(hold); }

void* Allocate(int64_t bytes) {
  void* data = nullptr;
  if (on_cpu::Allocate(&data, static_cast<size_t>(bytes)) != cudaSuccess) return nullptr;
  // Queued work may still use it.
  const auto write = [=] { std::memset(data, 0xA5, static_cast<size_t>(bytes)); };
  on_cpu::Do(nullptr, write, /*operations=*/0);
  return data;
}
void Free(void* data, int64_t bytes) {
  const auto free = [=] {
    std::memset(data, 0xA5, static_cast<size_t>(bytes));
    std::free(data);
  };
  on_cpu::Do(nullptr, free, /*operations=*/0);
}
void* AllocateShared(size_t bytes) { return std::aligned_alloc(16, (bytes + 15) / 16 * 16); }
void FreeShared(void* data, size_t) { std::free(data); }

bool Counts() { return true; }
int64_t Pinned() { return on_cpu::pinned; }
int64_t Events() { return on_cpu::events; }
int64_t Streams() { return on_cpu::streams; }
int64_t Waits() { return on_cpu::waits; }
int64_t Operations() { return on_cpu::operations; }
int64_t CopiedToDevice() { return on_cpu::copied; }
int64_t CopiedToHost() { return on_cpu::copied_back; }
int64_t Choices() { return on_cpu::choices; }
void SetDriver(int version) { on_cpu::driver = version; }
void SetCode(bool there) { on_cpu::code = there; }

}  // namespace device
}  // namespace opwright

namespace on_cpu = opwright::on_cpu;

extern "C" {

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
  ++on_cpu::choices;
  on_cpu::contexts = {reinterpret_cast<CUcontext>(&on_cpu::contexts)};
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = 2; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 7; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 5; break;
    default: *value = 2048;
  }
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = on_cpu::driver;
  return cudaSuccess;
}
#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** found, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
#else
cudaError_t cudaGetDriverEntryPoint(const char* name, void** found, unsigned long long,
                                    cudaDriverEntryPointQueryResult* result) {
#endif
  const std::string wanted = name;
  *found = wanted == "cuCtxGetCurrent"    ? reinterpret_cast<void*>(on_cpu::GetContext)
           : wanted == "cuCtxPushCurrent" ? reinterpret_cast<void*>(on_cpu::PushContext)
           : wanted == "cuCtxPopCurrent"  ? reinterpret_cast<void*>(on_cpu::PopContext)
                                          : nullptr;
  *result = *found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, size_t bytes) { return on_cpu::Allocate(data, bytes); }
cudaError_t cudaFree(void* data) {
  opwright::device::Settle();
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** data, size_t bytes) {
  const cudaError_t error = on_cpu::Allocate(data, bytes);
  if (error == cudaSuccess) ++on_cpu::pinned;
  return error;
}
cudaError_t cudaFreeHost(void* data) {
  --on_cpu::pinned;
  return cudaFree(data);
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = size_t{2} << 30;
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  on_cpu::Do(stream, [=] { std::memset(data, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (kind == cudaMemcpyHostToDevice) on_cpu::copied += static_cast<int64_t>(bytes);
  if (kind == cudaMemcpyDeviceToHost) on_cpu::copied_back += static_cast<int64_t>(bytes);
  on_cpu::Do(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int) {
  const auto made = std::make_shared<on_cpu::Stream>();
  std::lock_guard<std::mutex> lock(on_cpu::TheDevice().mutex);
  made->SetLater(on_cpu::TheDevice().later);
  on_cpu::TheDevice().made.push_back(made);
  *stream = reinterpret_cast<cudaStream_t>(made.get());
  ++on_cpu::streams;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  on_cpu::StreamOf(stream).Settle();
  std::lock_guard<std::mutex> lock(on_cpu::TheDevice().mutex);
  auto& made = on_cpu::TheDevice().made;
  made.erase(std::find_if(made.begin(), made.end(), [&](const auto& one) {
    return one.get() == reinterpret_cast<on_cpu::Stream*>(stream);
  }));
  --on_cpu::streams;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  *event = reinterpret_cast<cudaEvent_t>(
      new std::shared_ptr<on_cpu::Event>(std::make_shared<on_cpu::Event>()));
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &on_cpu::EventOf(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto one = on_cpu::EventOf(event);
  const int64_t number = ++one->recorded;
  on_cpu::Do(stream, [=] { one->Pass(number); });
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  const auto one = on_cpu::EventOf(event);
  const int64_t number = one->recorded;
  on_cpu::Do(stream, [=] { one->Await(number); });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto& one = on_cpu::EventOf(event);
  return one->Passed(one->recorded) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ++on_cpu::waits;
  const auto one = on_cpu::EventOf(event);
  one->Await(one->recorded);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ++on_cpu::waits;
  on_cpu::StreamOf(stream).Settle();
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  ++on_cpu::waits;
  opwright::device::Settle();
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorMemoryAllocation"; }
const char* cudaGetErrorString(cudaError_t) { return "out of memory"; }

}  // extern "C"
