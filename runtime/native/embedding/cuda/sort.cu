// CUB's sort. It is in its own file because it is compiled separately for each architecture.
#include "embedding/cuda/sort.h"

#include <cub/device/device_radix_sort.cuh>

namespace opwright::embedding::cuda {
namespace {

template <class Key>
cudaError_t SortKeys(void* temporary, size_t* bytes, const Keys (&keys)[2],
                     uint32_t* const (&positions)[2], int64_t count, int bits,
                     cudaStream_t stream) {
  return cub::DeviceRadixSort::SortPairs(
      temporary, *bytes, static_cast<const Key*>(keys[0].data), static_cast<Key*>(keys[1].data),
      positions[0], positions[1], static_cast<int>(count), 0, bits, stream);
}

}  // namespace

cudaError_t Sort(void* temporary, size_t* bytes, const Keys (&keys)[2],
                 uint32_t* const (&positions)[2], int64_t count, int bits,
                 cudaStream_t stream) {
  return keys[0].wide
             ? SortKeys<uint64_t>(temporary, bytes, keys, positions, count, bits, stream)
             : SortKeys<uint32_t>(temporary, bytes, keys, positions, count, bits, stream);
}

}  // namespace opwright::embedding::cuda
