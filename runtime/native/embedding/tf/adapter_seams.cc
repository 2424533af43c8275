// What ThreadSanitizer cannot see of TensorFlow, which is built without it: its mutexes and
// condition variables. Here are the few functions of its own, on whose order between
// threads the adapter relies, with annotations for the sanitizer. This file is not
// instrumented.
#include <sanitizer/tsan_interface.h>
#include <sched.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/synchronization/notification.h"
#include "tensorflow/core/framework/cancellation.h"

// The waiting thread is ordered after the notifying thread.
namespace absl {
ABSL_NAMESPACE_BEGIN

void Notification::Notify() {
  __tsan_release(&notified_yet_);
  notified_yet_.store(true, std::memory_order_release);
}

// Neither it nor those who notify count on a mutex: the last to leave may destroy it.
void Notification::WaitForNotification() const {
  while (!notified_yet_.load(std::memory_order_acquire)) sched_yield();
  __tsan_acquire(const_cast<std::atomic<bool>*>(&notified_yet_));
}

Notification::~Notification() = default;

ABSL_NAMESPACE_END
}  // namespace absl

namespace tsl {

// A callback comes after its registration, wherever it is called or destroyed.
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
