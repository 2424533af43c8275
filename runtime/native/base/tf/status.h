// Definitions for all kernels: their priority, and the statuses with which they refuse a call.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "base/status.h"

namespace opwright {

// The priority is below 0, so that TensorFlow prefers its own kernels in builds that have them.
constexpr int kPriority = -1;

inline absl::Status ToAbsl(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk: return absl::OkStatus();
    case StatusCode::kInvalidArgument: return absl::InvalidArgumentError(status.message());
    case StatusCode::kFailedPrecondition:
      return absl::FailedPreconditionError(status.message());
    case StatusCode::kUnimplemented: return absl::UnimplementedError(status.message());
    case StatusCode::kResourceExhausted: return absl::ResourceExhaustedError(status.message());
    case StatusCode::kInternal: return absl::InternalError(status.message());
  }
  return absl::InternalError(status.message());
}

// The message names the argument and the problem.
inline absl::Status Invalid(const std::string& argument, const std::string& problem) {
  return absl::InvalidArgumentError(argument + ": " + problem);
}

}  // namespace opwright
