// Arithmetic on sizes that come from outside: attrs, protos, tensors. Code that computes with
// such a size uses these, and checks for overflow before it uses the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <type_traits>

namespace opwright {

// A sum or a product that remembers whether it overflowed int64.
class Checked {
 public:
  Checked(int64_t value) : value_(value) {}  // NOLINT: plain integers convert.

  Checked operator+(const Checked& other) const {
    Checked sum(0);
    sum.overflowed_ = overflowed_ | other.overflowed_ |
                      __builtin_add_overflow(value_, other.value_, &sum.value_);
    return sum;
  }
  Checked operator*(const Checked& other) const {
    Checked product(0);
    product.overflowed_ = overflowed_ | other.overflowed_ |
                          __builtin_mul_overflow(value_, other.value_, &product.value_);
    return product;
  }
  Checked& operator+=(const Checked& other) { return *this = *this + other; }
  Checked& operator*=(const Checked& other) { return *this = *this * other; }

  bool overflowed() const { return overflowed_; }
  // Whether nothing overflowed and the value is at most `most`.
  bool AtMost(int64_t most) const { return !overflowed_ && value_ <= most; }
  // Sizes that are computed later from one that fits cannot overflow: bytes, padding to
  // vectors, two directions.
  bool fits() const { return AtMost(std::numeric_limits<int64_t>::max() / 4096); }
  // Valid only if nothing overflowed.
  int64_t value() const { return value_; }

 private:
  int64_t value_;
  bool overflowed_ = false;
};

// Converts `from` to another integer type. Returns whether the value is the same there.
template <class To, class From>
[[nodiscard]] bool Narrow(From from, To* to) {
  static_assert(std::is_integral_v<To> && std::is_integral_v<From>);
  *to = static_cast<To>(from);
  return static_cast<From>(*to) == from && (*to < To{}) == (from < From{});
}

// The element of a container at a signed index.
template <class Container>
decltype(auto) At(Container& container, int64_t index) {
  return container[static_cast<size_t>(index)];
}

// An array without initial values. Throws std::bad_alloc.
template <class T>
std::unique_ptr<T[]> Uninitialized(int64_t count) {
  return std::unique_ptr<T[]>(new T[static_cast<size_t>(count)]);
}

// An array of zeros with a signed size. Throws std::bad_alloc.
template <class T>
std::unique_ptr<T[]> Array(int64_t count) {
  return std::make_unique<T[]>(static_cast<size_t>(count));
}

}  // namespace opwright
