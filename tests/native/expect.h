// What a check of the tests of core does when it fails: it says where, and returns false.
#pragma once

#include <cstdio>

#define EXPECT(condition)                                         \
  do {                                                            \
    if (!(condition)) {                                           \
      std::printf("%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      return false;                                               \
    }                                                             \
  } while (false)
