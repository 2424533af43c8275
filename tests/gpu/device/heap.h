// The memory of the device as a store's tests give it, and how long the device is late.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "device/device.h"
#include "embedding/cuda/tables.h"

namespace opwright {
namespace device {

// Memory that may be given again while earlier work uses it, as TensorFlow's is: what was
// freed is overwritten when the device gets there.
class Heap : public embedding::cuda::Memory {
 public:
  void* Allocate(int64_t bytes) override {
    std::unique_lock<std::mutex> lock(mutex_);
    if (refusals_ > 0 && --refusals_ > 0) {
      lock.unlock();
      on_refusal_();
      return nullptr;
    }
    if (bytes > limit_ - used_) return nullptr;
    used_ += bytes;
    void* const data = device::Allocate(bytes);
    sizes_[data] = bytes;
    return data;
  }
  void Free(void* data) override {
    int64_t bytes;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      bytes = sizes_.at(data);
      sizes_.erase(data);
      used_ -= bytes;
    }
    device::Free(data, bytes);
  }
  int64_t Left() override {
    std::lock_guard<std::mutex> lock(mutex_);
    return limit_ - used_;
  }

  int64_t used() {
    std::lock_guard<std::mutex> lock(mutex_);
    return used_;
  }
  void LeaveOnly(int64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    limit_ = used_ + bytes;
  }
  // Refuses so many times, and says so each time.
  void Refuse(int64_t times, std::function<void()> on_refusal) {
    std::lock_guard<std::mutex> lock(mutex_);
    refusals_ = times + 1;
    on_refusal_ = std::move(on_refusal);
  }

 private:
  std::mutex mutex_;
  std::map<void*, int64_t> sizes_;
  int64_t used_ = 0, limit_ = int64_t{1} << 40, refusals_ = 0;
  std::function<void()> on_refusal_;
};

// While this lasts, the device gets to its work later.
struct Later {
  Later() { SetLater(true); }
  ~Later() { SetLater(false); }
};

}  // namespace device
}  // namespace opwright
