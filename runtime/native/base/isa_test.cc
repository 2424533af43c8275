#include "base/isa.h"

#include <cstring>
#include <string>

#include "base/testing/testing.h"

namespace opwright {
namespace {

TEST(Isa, NamesAreDistinct) {
  EXPECT_EQ(std::string(NameOf(Isa::kPortable)), "portable");
  EXPECT_EQ(std::string(NameOf(Isa::kNeon)), "neon");
  EXPECT_EQ(std::string(NameOf(Isa::kAvx2)), "avx2");
  EXPECT_EQ(std::string(NameOf(Isa::kAvx512)), "avx512");
}

TEST(Isa, ChosenIsaIsUsed) {
  const std::string before = NameOf(CurrentIsa());
  int known = 0;
  for (const Isa isa : kIsas) {
    if (!UseIsa(NameOf(isa))) continue;
    EXPECT_EQ(CurrentIsa(), isa);
    ++known;
  }
  EXPECT(known >= 1);
  EXPECT(UseIsa(before.c_str()));
}

TEST(Isa, PortableRunsEverywhere) {
  const std::string before = NameOf(CurrentIsa());
  EXPECT(UseIsa("portable"));
  EXPECT(UseIsa(before.c_str()));
}

TEST(Isa, EmptyNameChoosesTheBest) {
  const std::string before = NameOf(CurrentIsa());
  EXPECT(UseIsa(""));
  const Isa best = CurrentIsa();
  for (const Isa isa : kIsas) {
    if (UseIsa(NameOf(isa))) EXPECT(CurrentIsa() <= best);
  }
  EXPECT(UseIsa(before.c_str()));
}

TEST(Isa, UnknownNameChangesNothing) {
  const Isa before = CurrentIsa();
  EXPECT(!UseIsa("avx"));
  EXPECT(!UseIsa("AVX2"));
  EXPECT_EQ(CurrentIsa(), before);
}

}  // namespace
}  // namespace opwright
