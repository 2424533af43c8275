// The dtype in which a table stores the weights of its rows. Only the store of the tables knows
// it: all other code has float32.
#pragma once

#include <cstdint>

namespace opwright::embedding {

enum class RowDtype : int32_t { kFloat32, kFloat16, kBfloat16, kInt8 };
constexpr RowDtype kRowDtypes[] = {RowDtype::kFloat32, RowDtype::kFloat16, RowDtype::kBfloat16,
                                   RowDtype::kInt8};
static inline const char* NameOf(RowDtype dtype) {
  constexpr const char* kNames[] = {"float32", "float16", "bfloat16", "int8"};
  return kNames[static_cast<int>(dtype)];
}

// An int8 row begins with its scale and its offset, in float32. Unsigned 8-bit codes follow.
// The weight of a code is code * scale + offset.
constexpr int64_t kInt8HeaderBytes = 8;

// The size of the weights of a row, in words of 4 bytes. Rows of narrow dtypes are padded to
// whole words, so that slots are aligned and no two rows share a word.
static inline int64_t RowWords(RowDtype dtype, int64_t dimension) {
  switch (dtype) {
    case RowDtype::kFloat32: return dimension;
    case RowDtype::kInt8: return (kInt8HeaderBytes + dimension + 3) / 4;
    default: return (dimension + 1) / 2;
  }
}

// How the weights of a row in a narrow dtype are rounded in an update, at random: a weight
// between two values of the dtype becomes the one that is farther from zero (for int8, the
// larger one) if fraction + u >= 1. `fraction` is the weight's place between the two values,
// and u a random number in [0, 1). It depends only on the numbers of the table, the update, the
// row and the column. Results are therefore the same with any number of threads and cores.
struct Rounding {
  uint64_t key;  // Made by KeyOf from the numbers of the table and of the update.
  // Row i of a host's shard is row first_row + i * row_step of the table.
  int64_t first_row, row_step;
};

// SplitMix64's function from one state to a number.
static inline uint64_t SplitMix(uint64_t state) {
  state += 0x9e3779b97f4a7c15u;
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
  state = (state ^ (state >> 27)) * 0x94d049bb133111ebu;
  return state ^ (state >> 31);
}
static inline uint64_t KeyOf(int64_t table, int64_t update) {
  return SplitMix(SplitMix(static_cast<uint64_t>(table)) + static_cast<uint64_t>(update));
}
static inline uint64_t KeyOfRow(const Rounding& rounding, int64_t row) {
  const int64_t of_table = rounding.first_row + row * rounding.row_step;
  return SplitMix(rounding.key + static_cast<uint64_t>(of_table));
}

// The finalizer of MurmurHash3 for 32 bits.
static inline uint32_t Finalize(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}
// The random number of a column is this number / 2^32.
static inline uint32_t RandomBits(uint64_t key_of_row, int64_t column) {
  const uint32_t low = static_cast<uint32_t>(key_of_row);
  const uint32_t high = static_cast<uint32_t>(key_of_row >> 32);
  return Finalize(Finalize(low + static_cast<uint32_t>(column)) ^ high);
}

}  // namespace opwright::embedding
