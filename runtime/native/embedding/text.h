// The text of a value in a message.
#pragma once

#include <string>

namespace opwright::embedding {

template <class Number>
std::string Text(Number value) {
  return std::to_string(value);
}
inline std::string Text(bool value) { return value ? "true" : "false"; }

}  // namespace opwright::embedding
