// Messages that are built from pieces.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

namespace opwright {

inline void AppendTo(std::string* text, std::string_view piece) { text->append(piece); }

// A char or a bool would print as a number.
template <class Integer,
          std::enable_if_t<std::is_integral_v<Integer> && !std::is_same_v<Integer, char> &&
                               !std::is_same_v<Integer, bool>,
                           int> = 0>
void AppendTo(std::string* text, Integer value) {
  text->append(std::to_string(value));
}

// The pieces in their order, as absl::StrCat, which code without TensorFlow cannot use. A piece
// is a string or an integer. A float is not: its caller chooses how many digits it needs.
template <class... Pieces>
std::string StrCat(const Pieces&... pieces) {
  std::string text;
  (AppendTo(&text, pieces), ...);
  return text;
}

}  // namespace opwright
