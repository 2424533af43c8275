// Arithmetic on sizes that come from outside: attrs, protos, tensors. Whoever computes with
// one uses these, and asks before the result is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <type_traits>

namespace opwright {

// A sum or a product that remembers whether it ever left int64.
class Checked {
 public:
  Checked(int64_t value) : value_(value) {}  // NOLINT: plain numbers mix in.

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
  // Whether nothing overflowed and the value is at most this.
  bool AtMost(int64_t most) const { return !overflowed_ && value_ <= most; }
  // Nothing computed later from a size that fits can overflow: bytes, padding to whole
  // vectors, two directions.
  bool fits() const { return AtMost(std::numeric_limits<int64_t>::max() / 4096); }
  // Means something only if nothing overflowed.
  int64_t value() const { return value_; }

 private:
  int64_t value_;
  bool overflowed_ = false;
};

// `from` as another integer type, if it has that value there.
template <class To, class From>
[[nodiscard]] bool Narrow(From from, To* to) {
  static_assert(std::is_integral_v<To> && std::is_integral_v<From>);
  *to = static_cast<To>(from);
  return static_cast<From>(*to) == from && (*to < To{}) == (from < From{});
}

// The element of a container at an index that is computed with, and so has a sign.
template <class Container>
decltype(auto) ItemOf(Container& container, int64_t index) {
  return container[static_cast<size_t>(index)];
}

// What is written before it is read. Throws std::bad_alloc.
template <class T>
std::unique_ptr<T[]> Uninitialized(int64_t count) {
  return std::unique_ptr<T[]>(new T[static_cast<size_t>(count)]);
}

// Zeros, as many as a number that has a sign says. Throws std::bad_alloc.
template <class T>
std::unique_ptr<T[]> Array(int64_t count) {
  return std::make_unique<T[]>(static_cast<size_t>(count));
}

}  // namespace opwright
