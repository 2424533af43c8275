#include "embedding/testing/scarce_memory.h"

#include <cstdlib>
#include <new>

namespace opwright::embedding {
namespace {

// The limits of the calling thread. It has no constructor, because `new` may be called before
// constructors run.
struct Limits {
  bool on;
  size_t bytes;   // Blocks of at least this size fail. 0 if the size is not limited.
  int64_t block;  // The allocations before the one that fails. Negative if none fails.
  bool was_short;
};
thread_local Limits limits;

void* Allocate(size_t bytes) {
  if (limits.on) {
    const bool too_large = limits.bytes > 0 && bytes >= limits.bytes;
    const bool chosen = limits.bytes == 0 && limits.block-- == 0;
    if (too_large || chosen) {
      limits.was_short = true;
      throw std::bad_alloc();
    }
  }
  if (void* const block = std::malloc(bytes == 0 ? 1 : bytes)) return block;
  throw std::bad_alloc();
}

}  // namespace

ScarceMemory::ScarceMemory(size_t bytes, int64_t block) {
  limits = {true, bytes, block, false};
}
ScarceMemory::~ScarceMemory() { limits.on = false; }
bool ScarceMemory::was_short() const { return limits.was_short; }

}  // namespace opwright::embedding

void* operator new(size_t bytes) { return opwright::embedding::Allocate(bytes); }
void* operator new[](size_t bytes) { return opwright::embedding::Allocate(bytes); }
void operator delete(void* block) noexcept { std::free(block); }
void operator delete[](void* block) noexcept { std::free(block); }
void operator delete(void* block, size_t) noexcept { std::free(block); }
void operator delete[](void* block, size_t) noexcept { std::free(block); }
