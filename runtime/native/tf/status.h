// What every kernel has in common: whom it steps aside for, and how it refuses a call.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "core/error.h"

namespace opwright {

// TensorFlow's own kernels, should a build have some for the CPU, come first.
constexpr int kPriority = -1;

inline absl::Status Invalid(const std::string& argument, const std::string& problem) {
  return absl::InvalidArgumentError(argument + ": " + problem);
}
inline absl::Status Invalid(const Error& error) {
  return Invalid(error.argument, error.problem);
}

}  // namespace opwright
