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

// Sorts by key. Items with equal keys keep their order.
void SortByKey(UninitializedVector<uint64_t>* items, ExecutionContext& exec);

// The positions of keys in ascending order of keys, in groups of equal keys.
struct Groups {
  UninitializedVector<int32_t> order;  // Positions. Those of equal keys are in ascending order.
  UninitializedVector<int64_t>
      begins;  // The first element of each group in `order`, [groups + 1].

  int64_t size() const { return static_cast<int64_t>(begins.size()) - 1; }
};
Groups GroupByKey(const UninitializedVector<int32_t>& keys, ExecutionContext& exec);

}  // namespace opwright::sparsecore
