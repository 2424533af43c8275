// A stable sort of int32 keys that are not negative.
#pragma once

#include <cstdint>
#include <vector>

namespace opwright::sparsecore {

// A key in the upper half and its position in the lower half.
inline uint64_t KeyAndPosition(int32_t key, int64_t position) {
  return (static_cast<uint64_t>(key) << 32) | static_cast<uint64_t>(position);
}

// Sorts by key. Equal keys keep their order.
void SortByKey(std::vector<uint64_t>* items);

// The positions of keys, by ascending key, in groups of equal keys.
struct Groups {
  std::vector<int32_t> order;   // Positions; those of equal keys ascend.
  std::vector<int64_t> begins;  // [groups + 1], into `order`.

  int64_t size() const { return static_cast<int64_t>(begins.size()) - 1; }
};
Groups GroupByKey(const std::vector<int32_t>& keys);

}  // namespace opwright::sparsecore
