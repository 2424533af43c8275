#include "sparsecore/stable_sort.h"

#include <algorithm>
#include <utility>

#include "sparsecore/parallel.h"

namespace opwright::sparsecore {

// This is a radix sort. It skips digits that are zero in all keys. In each pass, every thread
// moves the items of one part to their places.
void SortByKey(std::vector<uint64_t>* items, ExecutionContext& exec) {
  constexpr int kBits = 11;
  constexpr int64_t kDigits = int64_t{1} << kBits;
  const auto size = static_cast<int64_t>(items->size());
  const int64_t parts = PartsOf(size, exec);
  uint64_t largest = 0;
  for (const uint64_t item : *items) largest = std::max(largest, item);
  std::vector<uint64_t> other(items->size());
  std::vector<int64_t> places(static_cast<size_t>(parts * kDigits));
  for (int shift = 32; shift < 64 && (largest >> shift) != 0; shift += kBits) {
    const auto digit = [shift](uint64_t item) { return (item >> shift) & (kDigits - 1); };
    const uint64_t* const from = items->data();
    uint64_t* const to = other.data();
    exec.For(parts, [&](int64_t part) {
      int64_t* const counts = places.data() + part * kDigits;
      std::fill_n(counts, kDigits, 0);
      const int64_t end = (part + 1) * size / parts;
      for (int64_t i = part * size / parts; i < end; ++i) ++counts[digit(from[i])];
    });
    int64_t begin = 0;
    for (int64_t k = 0; k < kDigits; ++k) {
      for (int64_t part = 0; part < parts; ++part) {
        begin += std::exchange(places[part * kDigits + k], begin);
      }
    }
    exec.For(parts, [&](int64_t part) {
      int64_t* const next = places.data() + part * kDigits;
      const int64_t end = (part + 1) * size / parts;
      for (int64_t i = part * size / parts; i < end; ++i) to[next[digit(from[i])]++] = from[i];
    });
    items->swap(other);
  }
}

Groups GroupByKey(const std::vector<int32_t>& keys, ExecutionContext& exec) {
  std::vector<uint64_t> items(keys.size());
  const auto size = static_cast<int64_t>(keys.size()), parts = PartsOf(size, exec);
  exec.For(parts, [&](int64_t part) {
    const int64_t end = (part + 1) * size / parts;
    for (int64_t i = part * size / parts; i < end; ++i) items[i] = KeyAndPosition(keys[i], i);
  });
  SortByKey(&items, exec);
  Groups groups;
  groups.order.resize(keys.size());
  groups.begins.resize(keys.size() + 1);
  size_t count = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    groups.order[i] = static_cast<int32_t>(items[i]);
    // It is written in any case, because a branch would often be mispredicted.
    groups.begins[count + 1] = static_cast<int64_t>(i) + 1;
    count += i + 1 == items.size() || (items[i] >> 32) != (items[i + 1] >> 32);
  }
  groups.begins.resize(count + 1);
  return groups;
}

}  // namespace opwright::sparsecore
