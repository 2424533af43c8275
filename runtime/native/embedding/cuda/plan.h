// What can be said of the CUDA backend's calls without a GPU: sizes, shapes and limits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "embedding/spec.h"

namespace opwright::embedding::cuda {

constexpr int kThreads = 256;  // Of a block.
// Floats of a row that a thread has: one load of 16 bytes, if all is aligned.
constexpr int kFloats = 4;
constexpr int kMaxLanes = 32;
// A table's rows lie in so many allocations at most.
constexpr int kMaxChunks = 64;
// Features that one lookup takes: their outputs' addresses are the kernel's arguments.
constexpr int kMaxOutputs = 256;
// Threads of a part begin at a multiple of this: a warp is of one part.
constexpr int64_t kWarp = 32;
constexpr int64_t kChunkBytes = int64_t{4} << 30;
// Sorted ids are cut into tiles; a run of equal ids that spans more than kShortTiles of them
// is summed by a thread block.
constexpr int64_t kMaxTile = 32;
constexpr int64_t kMinTile = 4;
constexpr int64_t kShortTiles = 16;
// Positions are sorted along with ids in 32 bits.
constexpr int64_t kMaxIds = (int64_t{1} << 31) - 1;

// The rows of a table: row r is in chunk r >> shift, at r & (2^shift - 1).
struct Chunks {
  int64_t rows = 0;
  int64_t stride = 0;  // Floats from row to row: the weights and then the slots.
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

// Refuses what no row can be addressed in, in the words of the table's description. Chunks
// are as large as `most_bytes` allows, and larger if there would be too many.
StatusOr<Chunks> PlanChunks(const TableConfig& table, int64_t most_bytes);

// The threads that share a row. Each has kFloats of a block of columns; there are as many
// blocks as the dimension takes, and they need nothing of each other.
struct Shape {
  int64_t dimension;
  int lane_bits;  // There are 2^lane_bits lanes.
  int blocks;     // Of columns.

  OPWRIGHT_RULE int64_t lanes() const { return int64_t{1} << lane_bits; }
};
Shape PlanShape(int64_t dimension);

// Bits that the largest of `rows` numbers has, which are all that is sorted.
int KeyBits(int64_t rows);
inline bool WideKeys(int64_t rows) { return KeyBits(rows) > 32; }

// Lanes that share the ids of a sample where each id is looked at once.
int SampleLaneBits(int64_t samples, int64_t ids);

// What an update works in: offsets into one piece of memory, multiples of 256.
struct Workspace {
  // Of one table.
  struct Part {
    int64_t ids = 0, first_id = 0;  // Where its ids begin once all are sorted.
    int64_t tiles = 0;
    int64_t partials = 0;
    int64_t touched = 0, touched_bytes = 0;
  };
  std::vector<Part> tables;
  int64_t ids = 0, tile = 0, tiles = 0;  // Of all; and ids of a tile.
  bool wide_keys = false;
  int key_bits = 0;
  int64_t image = 0;  // Descriptors, copied from the host.
  int64_t keys[2], positions[2], contributions, crossing, touched, sort;
  int64_t touched_bytes = 0;
  int64_t sort_bytes = 0;
  int64_t bytes = 0;
};
// `ids` has a number for each table, `resident` is how many threads the device runs at once,
// `sort_bytes` what sorting takes.
StatusOr<Workspace> PlanUpdate(const std::vector<TableConfig>& tables,
                               const std::vector<int64_t>& ids, int64_t resident,
                               int64_t image_bytes, int64_t sort_bytes);

// Blocks for so many threads: kernels go on where the grid ends.
int64_t GridOf(int64_t threads);

// "table 'items': 5 rows of 8 float32 with 1 slots".
std::string Describe(const TableConfig& table);
// Of several: "26 tables, the first of them ...".
std::string Describe(const std::vector<TableConfig>& tables);

}  // namespace opwright::embedding::cuda
