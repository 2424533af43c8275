// Annotations for ThreadSanitizer. TensorFlow is built without it, so the sanitizer cannot see
// TensorFlow's mutexes and condition variables. The adapter relies on the order that a few
// functions create between threads. This file reimplements these functions with annotations.
// This file is compiled without instrumentation.
#include <sanitizer/tsan_interface.h>
#include <sched.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/synchronization/notification.h"
#include "tensorflow/core/framework/cancellation.h"

// Orders the waiting thread after the notifying thread.
namespace absl {
ABSL_NAMESPACE_BEGIN

void Notification::Notify() {
  __tsan_release(&notified_yet_);
  notified_yet_.store(true, std::memory_order_release);
}

// Neither the waiting nor the notifying thread uses a mutex, because the last thread may
// destroy the object.
void Notification::WaitForNotification() const {
  while (!notified_yet_.load(std::memory_order_acquire)) sched_yield();
  __tsan_acquire(const_cast<std::atomic<bool>*>(&notified_yet_));
}

Notification::~Notification() = default;

ABSL_NAMESPACE_END
}  // namespace absl

namespace tsl {

// Orders each call and the destruction of a callback after its registration.
bool CancellationManager::RegisterCallback(CancellationToken token, CancelCallback callback) {
  struct Callback {
    explicit Callback(CancelCallback of) : callback(std::move(of)) { __tsan_release(this); }
    ~Callback() { __tsan_acquire(this); }

    const CancelCallback callback;
  };
  const auto kept = std::make_shared<Callback>(std::move(callback));
  CallbackConfiguration configuration;
  configuration.callback = [kept] {
    __tsan_acquire(kept.get());
    kept->callback();
    __tsan_release(kept.get());
  };
  return RegisterCallbackConfig(token, std::move(configuration));
}

}  // namespace tsl
