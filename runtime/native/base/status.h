// The result of a call: OK, or a code and a message. The interface is that of absl::Status,
// which code without TensorFlow cannot use. base/tf/status.h converts to absl::Status.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace opwright {

enum class StatusCode {
  kOk,
  kInvalidArgument,
  kFailedPrecondition,
  kUnimplemented,
  kResourceExhausted,
  kInternal,  // A device has failed.
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // Puts a text in front of the message, such as the operation that failed.
  void Prepend(const std::string& text) { message_ = text + message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() { return {}; }
inline Status InvalidArgumentError(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}
// The message names the argument and the problem.
inline Status InvalidArgumentError(const std::string& argument, const std::string& problem) {
  return InvalidArgumentError(argument + ": " + problem);
}
inline Status FailedPreconditionError(std::string message) {
  return {StatusCode::kFailedPrecondition, std::move(message)};
}
inline Status UnimplementedError(std::string message) {
  return {StatusCode::kUnimplemented, std::move(message)};
}
inline Status ResourceExhaustedError(std::string message) {
  return {StatusCode::kResourceExhausted, std::move(message)};
}
inline Status InternalError(std::string message) {
  return {StatusCode::kInternal, std::move(message)};
}

// A value, or the error because of which there is no value.
template <class T>
class [[nodiscard]] StatusOr {
 public:
  // NOLINT: an error converts implicitly.
  StatusOr(Status status) : status_(std::move(status)) {}
  StatusOr(T value) : value_(std::move(value)) {}  // NOLINT: a value converts implicitly.

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  // The functions below require a value.
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace opwright

#define OPWRIGHT_RETURN_IF_ERROR(CALL)                      \
  do {                                                      \
    if (::opwright::Status status = (CALL); !status.ok()) { \
      return status;                                        \
    }                                                       \
  } while (false)
