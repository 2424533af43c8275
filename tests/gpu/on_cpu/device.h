// The CPU in the place of the device: work is done when it is queued or, on demand, by a
// thread of its own when that gets there.
#pragma once

#include <cstdint>
#include <functional>

namespace opwright {
namespace on_cpu {

// Queues work of the one stream that there is.
void Do(std::function<void()> work);

// Whether work is done by the thread, later. Both wait for what is queued.
void SetLater(bool later);
void Settle();
// Keeps the thread from going on, or lets it.
void Hold(bool hold);

// Pinned memory and events that nobody has given back.
int64_t Pinned();
int64_t Events();
// How often somebody waited for the device.
int64_t Waits();

}  // namespace on_cpu
}  // namespace opwright
