#include "base/text.h"

#include <cstdint>
#include <string>

#include "base/testing/testing.h"

namespace opwright {
namespace {

TEST(Text, StrCatJoinsStringsAndIntegers) {
  EXPECT_EQ(StrCat(), "");
  EXPECT_EQ(StrCat("at most ", int64_t{8}, ", is ", std::string("nine")), "at most 8, is nine");
}

TEST(Text, StrCatWritesTheEndsOfEachIntegerType) {
  EXPECT_EQ(StrCat(INT64_MIN, " ", INT64_MAX, " ", UINT64_MAX),
            "-9223372036854775808 9223372036854775807 18446744073709551615");
  EXPECT_EQ(StrCat(int8_t{-128}, " ", uint8_t{255}), "-128 255");
}

}  // namespace
}  // namespace opwright
