// The memory of a table on the CPU, and where it has rows and slots.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "base/huge_pages.h"
#include "embedding/cpu/rows.h"

namespace opwright::embedding {

// Mapped memory that is zero, and takes no physical memory before it is written. It uses huge
// pages if possible: accesses to random rows then miss the TLB far less often.
class Pages {
 public:
  Pages() = default;
  Pages(const Pages&) = delete;
  Pages(Pages&& other) noexcept
      : data_(other.data_), mapped_(other.mapped_), bytes_(other.bytes_), whole_(other.whole_) {
    other.mapped_ = nullptr;
  }
  ~Pages() {
    if (mapped_) munmap(mapped_, bytes_);
  }

  bool Map(size_t bytes) {
    const size_t slack = bytes >= kHugePage ? kHugePage : 0;
    void* const mapped = mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return false;
    mapped_ = mapped;
    bytes_ = bytes + slack;
    char* data = static_cast<char*>(mapped);
    if (slack) {
      data = AlignToHugePage(mapped);
      whole_ = bytes / kHugePage * kHugePage;
      RequestHugePages(data, whole_);
    }
    data_ = reinterpret_cast<float*>(data);
    return true;
  }

  void Enlarge() const {
    if (whole_ > 0) ReplaceSmallPages(data_, whole_);
  }

  float* get() const { return data_; }

 private:
  float* data_ = nullptr;
  void* mapped_ = nullptr;
  size_t bytes_ = 0;
  size_t whole_ = 0;  // The bytes that huge pages can cover.
};

struct Table {
  TableConfig config;
  Pages pages;
  TableRows rows;
};

inline int64_t WholeCacheLines(int64_t floats) { return (floats + 15) / 16 * 16; }

// The slots of a row of fewer columns follow its weights: an update then finds them in the same
// cache lines and page. The slots of wider rows are in a separate array. The weights are then
// adjacent, so that lookups need half the pages and use all sets of the caches. Row-wise slots
// are always in a separate array, where many rows share a cache line. One value after each
// short row would make most rows share cache lines with other rows.
constexpr int64_t kInterleavedBelow = 64;

// If the weights of all tables have at most this many bytes, they stay in the caches of the CPU
// cores. The slots would not fit besides them, and are in a separate array.
constexpr int64_t kCacheResidentBytes = 16 << 20;

// The stride of the rows of tables that stay in caches. Each row begins at the start of a cache
// line, if the padding is at most an eighth of the padded row. Loads from L2 are faster if no
// vector crosses a cache line.
inline int64_t CacheResidentStride(int64_t words) {
  const int64_t whole = WholeCacheLines(words);
  return (whole - words) * 8 <= whole ? whole : words;
}

inline bool Map(Table* table, bool cache_resident) {
  const TableConfig& config = table->config;
  const int64_t slots = config.slot_floats();
  const bool interleaved = config.dimension < kInterleavedBelow &&
                           config.columns(0) == config.dimension && !cache_resident;
  const int64_t words = config.row_words();
  const int64_t stride = cache_resident ? CacheResidentStride(words) : words;
  const int64_t weights = config.rows * stride;
  if (!table->pages.Map((WholeCacheLines(weights) + config.rows * slots) * sizeof(float))) {
    return false;
  }
  float* const data = table->pages.get();
  table->rows.dimension = config.dimension;
  table->rows.dtype = config.dtype;
  table->rows.weights = data;
  table->rows.stride = stride + (interleaved ? slots : 0);
  table->rows.slots = data + (interleaved ? words : WholeCacheLines(weights));
  table->rows.slots_stride = interleaved ? table->rows.stride : slots;
  return true;
}

}  // namespace opwright::embedding
