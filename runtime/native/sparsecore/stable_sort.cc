#include "sparsecore/stable_sort.h"

#include <algorithm>
#include <utility>

namespace opwright::sparsecore {

// This is a radix sort. It skips digits that are zero in all keys.
void SortByKey(std::vector<uint64_t>* items) {
  constexpr int kBits = 11;
  uint64_t largest = 0;
  for (const uint64_t item : *items) largest = std::max(largest, item);
  std::vector<uint64_t> other(items->size());
  for (int shift = 32; shift < 64 && (largest >> shift) != 0; shift += kBits) {
    const auto digit = [shift](uint64_t item) { return (item >> shift) & ((1u << kBits) - 1); };
    std::vector<int64_t> at(size_t{1} << kBits);
    for (const uint64_t item : *items) ++at[digit(item)];
    int64_t begin = 0;
    for (int64_t& count : at) begin += std::exchange(count, begin);
    for (const uint64_t item : *items) other[at[digit(item)]++] = item;
    items->swap(other);
  }
}

Groups GroupByKey(const std::vector<int32_t>& keys) {
  std::vector<uint64_t> items(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    items[i] = KeyAndPosition(keys[i], static_cast<int64_t>(i));
  }
  SortByKey(&items);
  Groups groups;
  groups.order.resize(keys.size());
  for (size_t i = 0; i < items.size(); ++i) {
    groups.order[i] = static_cast<int32_t>(items[i]);
    if (i == 0 || (items[i] >> 32) != (items[i - 1] >> 32)) {
      groups.begins.push_back(static_cast<int64_t>(i));
    }
  }
  groups.begins.push_back(static_cast<int64_t>(items.size()));
  return groups;
}

}  // namespace opwright::sparsecore
