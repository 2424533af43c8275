// Sorting on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "embedding/cuda/kernels.h"

namespace opwright::embedding::cuda {

// Sorts keys[0] with positions[0] into keys[1] and positions[1]. The sort is stable and uses
// the lowest `bits` bits. If `temporary` is null, it only sets `bytes` to the size of the
// temporary memory.
cudaError_t Sort(void* temporary, size_t* bytes, const Keys (&keys)[2],
                 uint32_t* const (&positions)[2], int64_t count, int bits, cudaStream_t stream);

}  // namespace opwright::embedding::cuda
