// What the CPU, in the place of the device, is given to do.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

namespace opwright {
namespace on_cpu {

// Queues work of a stream; null is the one that is always there. It counts as so many
// operations of the device.
void Do(cudaStream_t stream, std::function<void()> work, int64_t operations = 1);

// Whether there is code for the device.
bool HasCode();

}  // namespace on_cpu
}  // namespace opwright
