// The part of CUDA's runtime that the backend calls, where the CPU is the device: 2 GiB of it.
#include <cuda_runtime_api.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "on_cpu/device.h"

namespace opwright {
namespace on_cpu {
namespace {

std::atomic<int64_t> pinned{0}, events{0}, waits{0};

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

Stream& TheStream() {
  static Stream stream;
  return stream;
}

struct Event {
  Event() { ++events; }
  ~Event() { --events; }
  std::atomic<int64_t> recorded{0}, passed{0};
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

void Do(std::function<void()> work) { TheStream().Do(std::move(work)); }
void SetLater(bool later) { TheStream().SetLater(later); }
void Settle() { TheStream().Settle(); }
void Hold(bool hold) { TheStream().Hold(hold); }
int64_t Pinned() { return pinned; }
int64_t Events() { return events; }
int64_t Waits() { return waits; }

}  // namespace on_cpu
}  // namespace opwright

namespace on_cpu = opwright::on_cpu;

extern "C" {

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount ? 2 : 2048;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, size_t bytes) { return on_cpu::Allocate(data, bytes); }
cudaError_t cudaFree(void* data) {
  on_cpu::Settle();
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
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t) {
  on_cpu::Do([=] { std::memset(data, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  on_cpu::Do([=] { std::memcpy(to, from, bytes); });
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
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  const auto one = on_cpu::EventOf(event);
  const int64_t number = ++one->recorded;
  on_cpu::Do([=] { one->passed = number; });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto& one = on_cpu::EventOf(event);
  return one->passed == one->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaStreamSynchronize(nullptr); }
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  ++on_cpu::waits;
  on_cpu::Settle();
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return cudaStreamSynchronize(nullptr); }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorMemoryAllocation"; }
const char* cudaGetErrorString(cudaError_t) { return "out of memory"; }

}  // extern "C"
