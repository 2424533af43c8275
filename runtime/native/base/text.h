// Functions that build messages from pieces.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

namespace opwright {

inline void AppendTo(std::string* text, std::string_view piece) { text->append(piece); }

// char and bool are excluded, because they would print as numbers.
template <class Integer,
          std::enable_if_t<std::is_integral_v<Integer> && !std::is_same_v<Integer, char> &&
                               !std::is_same_v<Integer, bool>,
                           int> = 0>
void AppendTo(std::string* text, Integer value) {
  text->append(std::to_string(value));
}

// Concatenates the pieces like absl::StrCat, which code without TensorFlow cannot use. A piece
// is a string or an integer. Floats are not supported, because the caller must choose the
// number of digits.
template <class... Pieces>
std::string StrCat(const Pieces&... pieces) {
  std::string text;
  (AppendTo(&text, pieces), ...);
  return text;
}

}  // namespace opwright
