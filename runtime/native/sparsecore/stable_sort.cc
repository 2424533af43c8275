#include "sparsecore/stable_sort.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "sparsecore/parallel.h"

namespace opwright::sparsecore {
namespace {

// Calls task(part, first, end) in parallel for the parts of `size` items.
template <class Task>
void ForParts(int64_t size, ExecutionContext& exec, const Task& task) {
  const int64_t parts = PartsOf(size, exec);
  exec.For(parts,
           [&](int64_t part) { task(part, part * size / parts, (part + 1) * size / parts); });
}

// Returns a number with the bits that are set in at least one key.
uint32_t BitsOf(const UninitializedVector<int32_t>& keys, ExecutionContext& exec) {
  const auto size = static_cast<int64_t>(keys.size());
  std::vector<uint32_t> of_parts(static_cast<size_t>(PartsOf(size, exec)));
  ForParts(size, exec, [&](int64_t part, int64_t first, int64_t end) {
    uint32_t bits = 0;
    for (int64_t i = first; i < end; ++i) bits |= static_cast<uint32_t>(keys[i]);
    of_parts[part] = bits;
  });
  uint32_t all = 0;
  for (const uint32_t bits : of_parts) all |= bits;
  return all;
}

// Returns the least mask of lower bits that has these bits.
uint32_t MaskOf(uint32_t bits) {
  uint32_t mask = 0;
  while (mask < bits) mask = 2 * mask + 1;
  return mask;
}

// Changes keys to others of as many bits, and back. An odd factor modulo a power of two has an
// inverse.
class Spread {
 public:
  Spread(GroupOrder order, size_t keys, uint32_t mask)
      // If most keys are there, rows in ascending order are faster, because the processor
      // prefetches the next ones.
      : spread_(order == GroupOrder::kSpread && keys <= mask / 2), mask_(mask) {}

  int32_t Forward(int32_t key) const { return Times(key, spread_ ? kGoldenRatio : 1); }
  int32_t Back(int32_t key) const { return Times(key, spread_ ? kInverse : 1); }

 private:
  static constexpr uint32_t kGoldenRatio = 0x9E3779B1, kInverse = 0x0E8B2F51;
  static_assert(kGoldenRatio * kInverse == 1);

  int32_t Times(int32_t key, uint32_t factor) const {
    return static_cast<int32_t>(static_cast<uint32_t>(key) * factor & mask_);
  }

  const bool spread_;
  const uint32_t mask_;
};

}  // namespace

// This is a radix sort. It skips bits that are zero in all keys, and has as many bits in each
// digit. In each pass, every thread moves the items of one part to their places.
void SortByKey(uint32_t key_bits, UninitializedVector<uint64_t>* items,
               ExecutionContext& exec) {
  constexpr int kMostBits = 11;
  const auto size = static_cast<int64_t>(items->size());
  const int64_t parts = PartsOf(size, exec);
  UninitializedVector<uint64_t> other(items->size());
  int most = 0;
  while (most < 32 && (key_bits >> most) != 0) ++most;
  if (most == 0) return;
  const int passes = (most + kMostBits - 1) / kMostBits;
  const int bits = (most + passes - 1) / passes;
  const int64_t digits = int64_t{1} << bits;
  std::vector<int64_t> places(static_cast<size_t>(parts * digits));
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = 32 + pass * bits;
    const uint64_t mask = static_cast<uint64_t>(digits) - 1;
    const auto digit = [shift, mask](uint64_t item) { return (item >> shift) & mask; };
    const uint64_t* const from = items->data();
    uint64_t* const to = other.data();
    ForParts(size, exec, [&](int64_t part, int64_t first, int64_t end) {
      int64_t* const counts = places.data() + part * digits;
      std::fill_n(counts, digits, 0);
      for (int64_t i = first; i < end; ++i) ++counts[digit(from[i])];
    });
    int64_t begin = 0;
    for (int64_t k = 0; k < digits; ++k) {
      for (int64_t part = 0; part < parts; ++part) {
        begin += std::exchange(places[part * digits + k], begin);
      }
    }
    ForParts(size, exec, [&](int64_t part, int64_t first, int64_t end) {
      int64_t* const next = places.data() + part * digits;
      for (int64_t i = first; i < end; ++i) to[next[digit(from[i])]++] = from[i];
    });
    items->swap(other);
  }
}

Groups GroupByKey(const UninitializedVector<int32_t>& keys, ExecutionContext& exec,
                  GroupOrder order) {
  const auto size = static_cast<int64_t>(keys.size());
  const uint32_t mask = MaskOf(BitsOf(keys, exec));
  const Spread spread(order, keys.size(), mask);
  UninitializedVector<uint64_t> items(keys.size());
  ForParts(size, exec, [&](int64_t, int64_t first, int64_t end) {
    for (int64_t i = first; i < end; ++i) items[i] = KeyAndPosition(spread.Forward(keys[i]), i);
  });
  SortByKey(mask, &items, exec);
  const auto begins_group = [&](int64_t i) {
    return i == 0 || (items[i] >> 32) != (items[i - 1] >> 32);
  };
  // For each part, the number of groups that begin there, and then the number of the first one.
  std::vector<int64_t> firsts(static_cast<size_t>(PartsOf(size, exec)));
  ForParts(size, exec, [&](int64_t part, int64_t first, int64_t end) {
    int64_t count = 0;
    for (int64_t i = first; i < end; ++i) count += begins_group(i);
    firsts[part] = count;
  });
  int64_t groups = 0;
  for (int64_t& first : firsts) groups += std::exchange(first, groups);
  Groups result;
  result.order.resize(keys.size());
  result.begins.resize(static_cast<size_t>(groups) + 1);
  result.keys.resize(static_cast<size_t>(groups));
  result.begins[0] = 0;
  ForParts(size, exec, [&](int64_t part, int64_t first, int64_t end) {
    // The part before writes the rest of a group that began there.
    while (first < size && !begins_group(first)) ++first;
    while (end < size && !begins_group(end)) ++end;
    int64_t group = firsts[part] - 1;
    for (int64_t i = first; i < end; ++i) {
      result.order[i] = static_cast<int32_t>(items[i]);
      group += begins_group(i);
      // They are written in any case, because a branch would often be mispredicted.
      result.begins[group + 1] = i + 1;
      result.keys[group] = spread.Back(static_cast<int32_t>(items[i] >> 32));
    }
  });
  return result;
}

}  // namespace opwright::sparsecore
