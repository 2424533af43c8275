// Sizes, shapes and limits of the CUDA backend's calls. This file does not need a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "embedding/spec.h"

namespace opwright::embedding::cuda {

constexpr int kThreads = 256;  // The number of threads of a thread block.
// The number of floats of a row that a thread processes. They are one load of 16 bytes if all
// addresses are aligned.
constexpr int kFloats = 4;
constexpr int kMaxLanes = 32;
// The largest number of allocations for the rows of a table.
constexpr int kMaxChunks = 64;
// The largest number of features of one lookup kernel. The limit exists because the addresses
// of the outputs are arguments of the kernel.
constexpr int kMaxOutputs = 256;
// The threads of a part begin at a multiple of kWarp, so that all threads of a warp belong to
// the same part.
constexpr int64_t kWarp = 32;
constexpr int64_t kChunkBytes = int64_t{4} << 30;
// Sorted ids are divided into tiles. A run of equal ids that spans more than kShortTiles tiles
// is summed by all threads of a thread block.
constexpr int64_t kMaxTile = 32;
constexpr int64_t kMinTile = 4;
constexpr int64_t kShortTiles = 16;
// An update has at most kMaxIds ids, because their positions are sorted as 32-bit numbers.
constexpr int64_t kMaxIds = (int64_t{1} << 31) - 1;

// The allocations that contain the rows of a table. Row r is in chunk r >> shift, at position r
// & (2^shift - 1).
struct Chunks {
  int64_t rows = 0;
  // The number of floats from one row to the next. A row contains the weights and then the
  // slots.
  int64_t stride = 0;
  int shift = 0;
  int count = 0;

  int64_t rows_of(int chunk) const {
    const int64_t first = static_cast<int64_t>(chunk) << shift;
    const int64_t full = int64_t{1} << shift;
    return rows - first < full ? rows - first : full;
  }
  int64_t bytes_of(int chunk) const {
    return rows_of(chunk) * stride * static_cast<int64_t>(sizeof(float));
  }
};

// Refuses a table with rows that cannot be addressed. Chunks have up to `most_bytes` bytes.
// They are larger if one row is larger, or if the table would have more than kMaxChunks of
// them.
StatusOr<Chunks> PlanChunks(const TableConfig& table, int64_t most_bytes);

// The lanes, which are threads, that share a row, and its blocks of columns. In a block, each
// lane processes kFloats columns. Blocks are independent of each other.
struct Shape {
  int64_t dimension;
  int lane_bits;  // The number of lanes is 2^lane_bits.
  int blocks;     // The number of blocks of columns.

  OPWRIGHT_RULE int64_t lanes() const { return int64_t{1} << lane_bits; }
};
Shape PlanShape(int64_t dimension);

// Returns the number of bits of the largest of `rows` row numbers. Only these bits are sorted.
int KeyBits(int64_t rows);
inline bool WideKeys(int64_t rows) { return KeyBits(rows) > 32; }

// Returns log2 of the number of lanes that share the ids of a sample, for kernels that read
// each id once.
int SampleLaneBits(int64_t samples, int64_t ids);

// The scratch memory of an update. The fields are byte offsets and are multiples of 256, unless
// their comment says otherwise.
struct Workspace {
  // The part of the scratch memory that belongs to one table.
  struct Part {
    // The number of the table's ids, and the position of its first id among all sorted ids.
    int64_t ids = 0, first_id = 0;
    int64_t tiles = 0;
    int64_t partials = 0;
    int64_t touched = 0, touched_bytes = 0;
  };
  std::vector<Part> tables;
  // `ids` and `tiles` are totals over all tables. `tile` is the number of ids in one tile.
  int64_t ids = 0, tile = 0, tiles = 0;
  bool wide_keys = false;
  int key_bits = 0;
  int64_t image = 0;  // The descriptors, which are copied from the host.
  // `keys` and `positions` each have an input and an output array of the sort.
  int64_t keys[2], positions[2], contributions, crossing, touched, sort;
  int64_t touched_bytes = 0;
  int64_t sort_bytes = 0;
  int64_t bytes = 0;
};
// `ids` has the number of ids of each table. `resident` is the number of threads that the
// device can run at the same time. `sort_bytes` is the size of the temporary memory of the
// sort.
StatusOr<Workspace> PlanUpdate(const std::vector<TableConfig>& tables,
                               const std::vector<int64_t>& ids, int64_t resident,
                               int64_t image_bytes, int64_t sort_bytes);

// Returns the number of thread blocks for `threads` threads. If the grid would be too large,
// each thread of the kernel processes several items.
int64_t GridOf(int64_t threads);

// Returns a description, such as "table 'items': 5 rows of 8 float32 with 1 slots".
std::string Describe(const TableConfig& table);
// Returns a description of several tables, such as "26 tables, the first of them ...".
std::string Describe(const std::vector<TableConfig>& tables);

}  // namespace opwright::embedding::cuda
