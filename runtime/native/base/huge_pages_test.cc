#include "base/huge_pages.h"

#include <sys/mman.h>

#include <cstdio>

#include "base/testing/huge_pages.h"
#include "base/testing/testing.h"

namespace opwright {
namespace {

TEST(HugePages, AlignmentRoundsUp) {
  char* const page = reinterpret_cast<char*>(3 * kHugePage);
  EXPECT(AlignToHugePage(page) == page);
  EXPECT(AlignToHugePage(page - 1) == page);
  EXPECT(AlignToHugePage(page + 1) == page + kHugePage);
}

TEST(HugePages, MemoryWithoutAWholeOneStaysAsItIs) {
  const SmallPages pages(1);
  // Or the kernel may replace them at any time.
  madvise(pages.data(), pages.bytes(), MADV_NOHUGEPAGE);
  const int64_t before = BytesInHugePages();
  UseHugePages(AlignToHugePage(pages.data()) + 1, kHugePage - 1);
  UseHugePages(pages.data(), 0);
  EXPECT_EQ(BytesInHugePages(), before);
}

TEST(HugePages, SmallPagesAreReplaced) {
  if (!KernelReplacesSmallPages()) {
    std::puts("  not here: this kernel makes no huge page of small ones");
    return;
  }
  const SmallPages pages(4);
  const int64_t before = BytesInHugePages();
  UseHugePages(pages.data(), pages.bytes());
  EXPECT(BytesInHugePages() > before);
  for (size_t i = 0; i < pages.bytes(); i += 4096) EXPECT_EQ(pages.data()[i], 1);
}

}  // namespace
}  // namespace opwright
