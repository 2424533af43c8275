// Memory that runs out where a test says.
#pragma once

#include <cstddef>
#include <cstdint>

namespace opwright::embedding {

// While it lives, `new` throws std::bad_alloc in this thread, and in no other: for blocks of
// at least so many bytes, or for one block, counted from 0.
class ScarceMemory {
 public:
  static ScarceMemory FromBytes(size_t bytes) { return ScarceMemory(bytes, -1); }
  static ScarceMemory AtBlock(int64_t block) { return ScarceMemory(0, block); }

  ScarceMemory(const ScarceMemory&) = delete;
  ScarceMemory& operator=(const ScarceMemory&) = delete;
  ~ScarceMemory();

  // Whether something requested such a block.
  bool was_short() const;

 private:
  ScarceMemory(size_t bytes, int64_t block);
};

}  // namespace opwright::embedding
