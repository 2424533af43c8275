#include "embedding/cuda/plan.h"

#include <algorithm>
#include <limits>

namespace opwright::embedding::cuda {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

int BitsOf(uint64_t value) {
  int bits = 0;
  for (; value; value >>= 1) ++bits;
  return bits;
}

// Returns the smallest b with 2^b >= value.
int CeilLog2(int64_t value) { return value <= 1 ? 0 : BitsOf(value - 1); }

// Reserves `bytes` bytes at `*end`. Returns their offset, and moves `*end` behind them.
int64_t Reserve(int64_t bytes, int64_t* end) {
  const int64_t at = *end;
  *end += (bytes + 255) / 256 * 256;
  return at;
}

}  // namespace

std::string Describe(const TableConfig& table) {
  return "table '" + table.name + "': " + std::to_string(table.rows) + " rows of " +
         std::to_string(table.dimension) + " float32 with " + std::to_string(table.slots()) +
         " slots";
}

std::string Describe(const std::vector<TableConfig>& tables) {
  if (tables.size() == 1) return Describe(tables[0]);
  return std::to_string(tables.size()) + " tables" +
         (tables.empty() ? std::string() : ", the first of them " + Describe(tables[0]));
}

StatusOr<Chunks> PlanChunks(const TableConfig& table, int64_t most_bytes) {
  if (table.rows < 1 || table.dimension < 1) {
    return InvalidArgumentError(Describe(table) + "; both must be at least 1");
  }
  if (most_bytes < 1) {
    return InvalidArgumentError(Describe(table) + " in chunks of " +
                                std::to_string(most_bytes) +
                                " bytes; there must be at least 1");
  }
  if (TraitsOf(table.optimizer).row_wise) {
    return UnimplementedError(Describe(table) + ": " + TraitsOf(table.optimizer).field +
                              " has no kernels for GPUs; put the tables on the CPU");
  }
  const int64_t parts = 1 + table.slots();
  if (table.dimension > kMax / 4 / parts / table.rows) {
    return ResourceExhaustedError(Describe(table) + " take more bytes than 64 bits can count");
  }
  Chunks chunks;
  chunks.rows = table.rows;
  chunks.stride = table.dimension * parts;
  const int64_t row_bytes = chunks.stride * static_cast<int64_t>(sizeof(float));
  int shift = std::max(0, BitsOf(most_bytes / row_bytes) - 1);
  shift = std::max(shift, CeilLog2(table.rows) - CeilLog2(kMaxChunks));
  chunks.shift = std::min(shift, CeilLog2(table.rows));
  chunks.count = static_cast<int>(((table.rows - 1) >> chunks.shift) + 1);
  return chunks;
}

Shape PlanShape(int64_t dimension) {
  Shape shape;
  shape.dimension = dimension;
  const int64_t threads = (dimension + kFloats - 1) / kFloats;
  shape.lane_bits = CeilLog2(std::min<int64_t>(kMaxLanes, threads));
  shape.blocks = static_cast<int>((threads + shape.lanes() - 1) / shape.lanes());
  return shape;
}

int KeyBits(int64_t rows) { return std::max(1, CeilLog2(rows)); }

int SampleLaneBits(int64_t samples, int64_t ids) {
  return samples == 0 ? 0 : std::min(5, CeilLog2(ids / samples));
}

StatusOr<Workspace> PlanUpdate(const std::vector<TableConfig>& tables,
                               const std::vector<int64_t>& ids, int64_t resident,
                               int64_t image_bytes, int64_t sort_bytes) {
  Workspace w;
  w.tables.resize(tables.size());
  int64_t threads = 0, rows = 0;
  for (size_t t = 0; t < tables.size(); ++t) {
    const TableConfig& table = tables[t];
    const Shape shape = PlanShape(table.dimension);
    // The second dimension of a grid numbers the blocks of columns, and CUDA limits it to
    // 65535.
    if (shape.blocks > 65535) {
      return InvalidArgumentError(Describe(table) + "; at most " +
                                  std::to_string(int64_t{65535} * kMaxLanes * kFloats) +
                                  " columns can be updated");
    }
    if (ids[t] < 0 || ids[t] > kMaxIds - w.ids) {
      return InvalidArgumentError("an update of " + Describe(tables) + " has " +
                                  std::to_string(w.ids + ids[t]) + " ids; between 0 and " +
                                  std::to_string(kMaxIds) + " are possible");
    }
    if (table.rows > kMax - rows) {
      return InvalidArgumentError(Describe(tables) + " have more rows than 63 bits can count");
    }
    w.tables[t].ids = ids[t];
    w.tables[t].first_id = w.ids;
    w.ids += ids[t];
    rows += table.rows;
    threads += ids[t] * shape.lanes() * shape.blocks;
  }
  // Long tiles leave fewer partial sums to add. Short tiles keep more threads busy.
  w.tile = kMaxTile;
  while (w.tile > kMinTile && threads / w.tile < 2 * resident) w.tile /= 2;
  w.key_bits = KeyBits(rows);
  w.wide_keys = WideKeys(rows);
  const int64_t key_bytes = w.wide_keys ? 8 : 4;
  int64_t end = 0;
  w.image = Reserve(image_bytes, &end);
  for (int64_t& keys : w.keys) keys = Reserve(w.ids * key_bytes, &end);
  for (int64_t& positions : w.positions) positions = Reserve(w.ids * 4, &end);
  w.contributions = Reserve(w.ids * 16, &end);
  w.touched = end;
  for (size_t t = 0; t < tables.size(); ++t) {
    Workspace::Part& part = w.tables[t];
    part.touched_bytes = tables[t].every_row ? (tables[t].rows + 31) / 32 * 4 : 0;
    part.touched = Reserve(part.touched_bytes, &end);
  }
  w.touched_bytes = end - w.touched;
  for (size_t t = 0; t < tables.size(); ++t) {
    Workspace::Part& part = w.tables[t];
    part.tiles = (part.ids + w.tile - 1) / w.tile;
    // Each tile has two sums: of the run that continues from the tile before, and of the run
    // that continues in the next tile.
    if (part.tiles > 0 && tables[t].dimension > (kMax / 2 - end) / 16 / part.tiles) {
      return ResourceExhaustedError("an update of " + Describe(tables) + " with " +
                                    std::to_string(w.ids) +
                                    " ids takes more bytes than 64 bits can count");
    }
    part.partials = Reserve(2 * part.tiles * tables[t].dimension * 8, &end);
    w.tiles += part.tiles;
  }
  w.crossing = Reserve(w.tiles * 4, &end);
  w.sort_bytes = sort_bytes;
  w.sort = Reserve(sort_bytes, &end);
  w.bytes = end;
  return w;
}

int64_t GridOf(int64_t threads) {
  constexpr int64_t kMaxBlocks = (int64_t{1} << 31) - 1;
  return std::max<int64_t>(1, std::min(kMaxBlocks, (threads + kThreads - 1) / kThreads));
}

}  // namespace opwright::embedding::cuda
