// Huge pages. With them, accesses to random rows of large tables miss the TLB far less often.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace opwright {

// The size of a huge page. Linux uses a huge page only for an aligned block of this size.
constexpr size_t kHugePage = 2 << 20;

// The first address that is at least `data` and where a huge page can begin.
inline char* AlignToHugePage(void* data) {
  const uintptr_t past = reinterpret_cast<uintptr_t>(data) % kHugePage;
  return static_cast<char*>(data) + (kHugePage - past) % kHugePage;
}

// Asks Linux to use huge pages for the blocks of memory that are written first from now on.
// `data` is the beginning of a huge page.
inline void RequestHugePages([[maybe_unused]] void* data, [[maybe_unused]] size_t bytes) {
#if defined(MADV_HUGEPAGE)
  madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
}

// Asks Linux to replace small pages by huge ones. Linux uses small pages while it has no free
// huge ones. The call takes little time if it can replace nothing. `data` is the beginning of a
// huge page. Returns whether all are huge.
inline bool ReplaceSmallPages(void* data, size_t bytes) {
  // MADV_COLLAPSE. Older headers do not define it. Linux before 6.1 returns an error.
  constexpr int kCollapse = 25;
  return madvise(data, bytes / kHugePage * kHugePage, kCollapse) == 0;
}

// Does both for the huge pages that fit into memory that is in use already.
inline void UseHugePages(void* data, size_t bytes) {
  char* const first = AlignToHugePage(data);
  const size_t skipped = static_cast<size_t>(first - static_cast<char*>(data));
  if (bytes < skipped + kHugePage) return;
  RequestHugePages(first, bytes - skipped);
  ReplaceSmallPages(first, bytes - skipped);
}

}  // namespace opwright
