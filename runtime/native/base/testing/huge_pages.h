// What Linux says of the huge pages of this process.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "base/huge_pages.h"
#include "base/testing/testing.h"

namespace opwright {

// The number of bytes of this process that are in huge pages.
inline int64_t BytesInHugePages() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  int64_t kilobytes = 0;
  for (std::string word; rollup >> word;) {
    if (word == "AnonHugePages:") rollup >> kilobytes;
  }
  return kilobytes << 10;
}

// Memory in small pages, of `pages` huge pages and a little more at both ends.
class SmallPages {
 public:
  explicit SmallPages(size_t pages) : bytes_((pages + 1) * kHugePage) {
    mapped_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(mapped_ != MAP_FAILED);
    madvise(mapped_, bytes_, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < bytes_; i += 4096) static_cast<char*>(mapped_)[i] = 1;
    madvise(mapped_, bytes_, MADV_HUGEPAGE);
  }
  SmallPages(const SmallPages&) = delete;
  ~SmallPages() { munmap(mapped_, bytes_); }

  char* data() const { return static_cast<char*>(mapped_); }
  size_t bytes() const { return bytes_; }

 private:
  const size_t bytes_;
  void* mapped_;
};

// Whether this kernel can replace small pages by a huge one, and counts them. Linux can from
// 6.1 on. An emulator may accept the call and do nothing.
inline bool KernelReplacesSmallPages() {
  const SmallPages pages(1);
  const int64_t before = BytesInHugePages();
  return ReplaceSmallPages(AlignToHugePage(pages.data()), kHugePage) &&
         BytesInHugePages() > before;
}

}  // namespace opwright
