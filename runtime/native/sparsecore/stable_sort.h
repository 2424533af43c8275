// A stable sort of non-negative int32 keys.
#pragma once

#include <cstdint>

#include "base/execution_context.h"
#include "base/uninitialized_vector.h"

namespace opwright::sparsecore {

// Returns a value with the key in the upper half and the position in the lower half.
inline uint64_t KeyAndPosition(int32_t key, int64_t position) {
  return (static_cast<uint64_t>(key) << 32) | static_cast<uint64_t>(position);
}

// Sorts by key. Items with equal keys keep their order. Only bits in `key_bits` may be set in
// keys.
void SortByKey(uint32_t key_bits, UninitializedVector<uint64_t>* items, ExecutionContext& exec);

// The positions of keys, in groups of equal keys.
struct Groups {
  UninitializedVector<int32_t> order;  // Positions. Those of equal keys are in ascending order.
  UninitializedVector<int64_t> begins;  // Each group's first element of `order`, [groups + 1].
  UninitializedVector<int64_t> keys;    // The key of each group.

  int64_t size() const { return static_cast<int64_t>(keys.size()); }
};
enum class GroupOrder {
  kAscending,  // By key.
  // Neighboring keys do not follow each other, unless most keys between them are there too.
  kSpread,
};
Groups GroupByKey(const UninitializedVector<int32_t>& keys, ExecutionContext& exec,
                  GroupOrder order = GroupOrder::kAscending);

}  // namespace opwright::sparsecore
