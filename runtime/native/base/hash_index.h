// Hash tables with open addressing and linear probing, which group ids by row.
#pragma once

#include <cstdint>

namespace opwright {

// Fibonacci hashing. The upper bits of the product are the most evenly distributed ones.
inline uint64_t HashOf(int64_t key) { return static_cast<uint64_t>(key) * 0x9E3779B97F4A7C15u; }

// The number of slots for `keys` different keys: a power of two, at least half of it free.
inline int64_t SlotsFor(int64_t keys) {
  int64_t slots = 16;
  while (slots < 2 * keys) slots *= 2;
  return slots;
}

// The slot of `key` among `size` slots, a power of two. A slot holds the index of a key in
// `keys`, or -1 if it is free. The caller fills the slot if it is free. At least one slot must
// be free.
template <typename Index>
Index& SlotOf(Index* slots, int64_t size, const int64_t* keys, int64_t key) {
  // Buckets are chosen by the upper bits of the hash, so slots are chosen by lower ones.
  const auto mask = static_cast<uint64_t>(size - 1);
  uint64_t at = HashOf(key) >> 20 & mask;
  while (slots[at] >= 0 && keys[slots[at]] != key) at = (at + 1) & mask;
  return slots[at];
}

}  // namespace opwright
