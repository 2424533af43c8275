// A small test framework. Each failure prints the expected and the actual value. One program
// contains the tests of a domain. Its arguments select tests and set the number of random
// rounds.
//
//   TEST(Gemm, OddLengths) {
//     for (int64_t round = 0; round < testing::Rounds(50); ++round) {
//       EXPECT_NEAR(found, expected, 1e-6);
//     }
//   }
//
// A failed expectation throws, also in functions that a test calls. The test ends, and the next
// test runs.
#pragma once

#include <cmath>
#include <cstdint>
#include <sstream>
#include <string>
#include <type_traits>

#include "base/status.h"

namespace opwright::testing {

struct Failure {
  std::string text;
};

bool Register(const char* suite, const char* name, void (*run)());
[[noreturn]] void Fail(const char* file, int line, const std::string& text);

// Returns the number of random rounds: `few` times the value of --rounds.
int64_t Rounds(int64_t few);
// Returns a different seed for each call within a test. Each run returns the same seeds. --seed
// changes the first seed.
uint64_t Seed();

template <class T>
std::string Print(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return std::to_string(static_cast<int64_t>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    std::ostringstream text;
    text.precision(17);
    text << value;
    return text.str();
  } else {
    std::ostringstream text;
    text << value;
    return text.str();
  }
}

template <class A, class B>
void ExpectEqual(const char* file, int line, const char* text, const A& a, const B& b) {
  if (a == b) return;
  Fail(file, line, std::string(text) + ": " + Print(a) + " and " + Print(b));
}

// Two NaNs count as near, and so do two equal infinities.
inline void ExpectNear(const char* file, int line, const char* text, double a, double b,
                       double tolerance) {
  if (a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= tolerance) return;
  Fail(file, line,
       std::string(text) + ": " + Print(a) + " and " + Print(b) + ", further apart than " +
           Print(tolerance));
}

inline void ExpectOk(const char* file, int line, const char* text, const Status& status) {
  if (!status.ok()) Fail(file, line, std::string(text) + ": " + status.message());
}
template <class T>
void ExpectOk(const char* file, int line, const char* text, const StatusOr<T>& result) {
  ExpectOk(file, line, text, result.status());
}

// Expects that the status has this code and that its message contains `words`.
void ExpectError(const char* file, int line, const char* text, const Status& status,
                 StatusCode code, const std::string& words);
template <class T>
void ExpectError(const char* file, int line, const char* text, const StatusOr<T>& result,
                 StatusCode code, const std::string& words) {
  ExpectError(file, line, text, result.status(), code, words);
}

}  // namespace opwright::testing

#define TEST(SUITE, NAME)                                              \
  static void SUITE##NAME##Test();                                     \
  [[maybe_unused]] static const bool SUITE##NAME##Registered =         \
      ::opwright::testing::Register(#SUITE, #NAME, SUITE##NAME##Test); \
  static void SUITE##NAME##Test()

#define EXPECT(CONDITION)                                                        \
  do {                                                                           \
    if (!(CONDITION)) ::opwright::testing::Fail(__FILE__, __LINE__, #CONDITION); \
  } while (false)
#define EXPECT_EQ(A, B) ::opwright::testing::ExpectEqual(__FILE__, __LINE__, #A " == " #B, A, B)
#define EXPECT_NEAR(A, B, TOLERANCE) \
  ::opwright::testing::ExpectNear(__FILE__, __LINE__, #A " ~ " #B, A, B, TOLERANCE)
#define EXPECT_OK(CALL) ::opwright::testing::ExpectOk(__FILE__, __LINE__, #CALL, CALL)
#define EXPECT_ERROR(CALL, CODE, WORDS) \
  ::opwright::testing::ExpectError(__FILE__, __LINE__, #CALL, CALL, CODE, WORDS)
