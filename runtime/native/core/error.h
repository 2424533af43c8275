// How the mathematics says that a call is bad.
#pragma once

#include <string>

namespace opwright {

// A bad call: which argument, and what is wrong with it.
struct Error {
  std::string argument;
  std::string problem;
};

}  // namespace opwright
