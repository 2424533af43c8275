// Makes memory allocations fail where a test chooses.
#pragma once

#include <cstddef>
#include <cstdint>

namespace opwright::embedding {

// While such an object exists, `new` throws std::bad_alloc in the thread that created it.
// FromBytes makes it throw for all blocks of at least `bytes` bytes. AtBlock makes it throw
// once, for the block with this number, counted from 0.
class ScarceMemory {
 public:
  static ScarceMemory FromBytes(size_t bytes) { return ScarceMemory(bytes, -1); }
  static ScarceMemory AtBlock(int64_t block) { return ScarceMemory(0, block); }

  ScarceMemory(const ScarceMemory&) = delete;
  ScarceMemory& operator=(const ScarceMemory&) = delete;
  ~ScarceMemory();

  // Whether `new` has thrown because of this object.
  bool was_short() const;

 private:
  ScarceMemory(size_t bytes, int64_t block);
};

}  // namespace opwright::embedding
