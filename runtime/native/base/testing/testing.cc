#include "base/testing/testing.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <vector>

namespace opwright::testing {
namespace {

struct Test {
  std::string name;
  void (*run)();
};

std::vector<Test>& Tests() {
  static std::vector<Test>& tests = *new std::vector<Test>;
  return tests;
}

int64_t rounds = 1;
uint64_t first_seed = 1;
uint64_t seeds_drawn = 0;

bool Passes(const Test& test) {
  seeds_drawn = 0;
  try {
    test.run();
    return true;
  } catch (const Failure& failure) {
    std::printf("  %s\n", failure.text.c_str());
  } catch (const std::exception& error) {
    std::printf("  threw: %s\n", error.what());
  }
  return false;
}

// Parses an integer that must be at least 1. Returns whether it could.
bool Read(const char* text, int64_t* value) {
  char* end = nullptr;
  *value = std::strtoll(text, &end, 10);
  return end != text && *end == '\0' && *value >= 1;
}

int Usage(const char* program) {
  std::printf(
      "usage: %s [--list] [--rounds N] [--seed N] [NAME ...]\n\n"
      "Runs the tests whose names have one of these in them, without any all of them.\n"
      "  --list      only says their names\n"
      "  --rounds N  draws N times as often\n"
      "  --seed N    draws other numbers\n",
      program);
  return 2;
}

}  // namespace

bool Register(const char* suite, const char* name, void (*run)()) {
  Tests().push_back({std::string(suite) + "." + name, run});
  return true;
}

void Fail(const char* file, int line, const std::string& text) {
  throw Failure{std::string(file) + ":" + std::to_string(line) + ": " + text};
}

void ExpectError(const char* file, int line, const char* text, const Status& status,
                 StatusCode code, const std::string& words) {
  if (status.ok()) Fail(file, line, std::string(text) + " is not refused");
  ExpectEqual(file, line, text, status.code(), code);
  if (status.message().find(words) == std::string::npos) {
    Fail(file, line, std::string(text) + ": '" + status.message() + "' lacks '" + words + "'");
  }
}

int64_t Rounds(int64_t few) { return few * rounds; }
uint64_t Seed() { return first_seed * 1000003 + seeds_drawn++; }

int Main(int count, char** arguments) {
  std::vector<std::string> wanted;
  bool lists = false;
  for (int i = 1; i < count; ++i) {
    int64_t value = 0;
    if (!std::strcmp(arguments[i], "--list")) {
      lists = true;
    } else if (!std::strcmp(arguments[i], "--rounds") || !std::strcmp(arguments[i], "--seed")) {
      const bool is_seed = arguments[i][2] == 's';
      if (i + 1 == count || !Read(arguments[++i], &value)) return Usage(arguments[0]);
      if (is_seed)
        first_seed = static_cast<uint64_t>(value);
      else
        rounds = value;
    } else if (arguments[i][0] == '-') {
      return Usage(arguments[0]);
    } else {
      wanted.emplace_back(arguments[i]);
    }
  }
  int ran = 0, failed = 0;
  for (const Test& test : Tests()) {
    bool runs = wanted.empty();
    for (const std::string& name : wanted) {
      runs = runs || test.name.find(name) != std::string::npos;
    }
    if (!runs) continue;
    ++ran;
    if (lists) {
      std::printf("%s\n", test.name.c_str());
      continue;
    }
    std::printf("%s\n", test.name.c_str());
    std::fflush(stdout);
    const auto begin = std::chrono::steady_clock::now();
    const bool passes = Passes(test);
    const std::chrono::duration<double, std::milli> took =
        std::chrono::steady_clock::now() - begin;
    std::printf("  %s, %.0f ms\n", passes ? "passed" : "FAILED", took.count());
    failed += !passes;
  }
  if (lists) return ran > 0 ? 0 : 1;
  std::printf("%d tests, %d failed\n", ran, failed);
  return ran > 0 && failed == 0 ? 0 : 1;
}

}  // namespace opwright::testing

int main(int count, char** arguments) { return opwright::testing::Main(count, arguments); }
