#include "sparsecore/stable_sort.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "sparsecore/parallel.h"

namespace opwright::sparsecore {

// This is a radix sort. It skips bits that are zero in all keys, and has as many bits in each
// digit. In each pass, every thread moves the items of one part to their places.
void SortByKey(UninitializedVector<uint64_t>* items, ExecutionContext& exec) {
  constexpr int kMostBits = 11;
  const auto size = static_cast<int64_t>(items->size());
  const int64_t parts = PartsOf(size, exec);
  uint64_t largest = 0;
  for (const uint64_t item : *items) largest = std::max(largest, item);
  UninitializedVector<uint64_t> other(items->size());
  int key_bits = 0;
  while (key_bits < 32 && (largest >> 32 >> key_bits) != 0) ++key_bits;
  if (key_bits == 0) return;
  const int passes = (key_bits + kMostBits - 1) / kMostBits;
  const int bits = (key_bits + passes - 1) / passes;
  const int64_t digits = int64_t{1} << bits;
  std::vector<int64_t> places(static_cast<size_t>(parts * digits));
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = 32 + pass * bits;
    const uint64_t mask = static_cast<uint64_t>(digits) - 1;
    const auto digit = [shift, mask](uint64_t item) { return (item >> shift) & mask; };
    const uint64_t* const from = items->data();
    uint64_t* const to = other.data();
    exec.For(parts, [&](int64_t part) {
      int64_t* const counts = places.data() + part * digits;
      std::fill_n(counts, digits, 0);
      const int64_t end = (part + 1) * size / parts;
      for (int64_t i = part * size / parts; i < end; ++i) ++counts[digit(from[i])];
    });
    int64_t begin = 0;
    for (int64_t k = 0; k < digits; ++k) {
      for (int64_t part = 0; part < parts; ++part) {
        begin += std::exchange(places[part * digits + k], begin);
      }
    }
    exec.For(parts, [&](int64_t part) {
      int64_t* const next = places.data() + part * digits;
      const int64_t end = (part + 1) * size / parts;
      for (int64_t i = part * size / parts; i < end; ++i) to[next[digit(from[i])]++] = from[i];
    });
    items->swap(other);
  }
}

Groups GroupByKey(const UninitializedVector<int32_t>& keys, ExecutionContext& exec) {
  UninitializedVector<uint64_t> items(keys.size());
  const auto size = static_cast<int64_t>(keys.size()), parts = PartsOf(size, exec);
  exec.For(parts, [&](int64_t part) {
    const int64_t end = (part + 1) * size / parts;
    for (int64_t i = part * size / parts; i < end; ++i) items[i] = KeyAndPosition(keys[i], i);
  });
  SortByKey(&items, exec);
  Groups groups;
  groups.order.resize(keys.size());
  groups.begins.resize(keys.size() + 1);
  groups.begins[0] = 0;
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
