// Arithmetic on sizes that come from outside the library: attrs, protos, tensors. Code that
// computes with such a size uses these types, and checks for overflow before it uses the
// result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <type_traits>

namespace opwright {

// The result of sums and products. It records whether any of them overflowed int64.
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
  // Returns whether no operation overflowed and the value is at most `most`.
  bool AtMost(int64_t most) const { return !overflowed_ && value_ <= most; }
  // Returns whether the value is so small that sizes derived from it cannot overflow. Such
  // sizes are a size in bytes, a size with padding, or a total over two directions.
  bool fits() const { return AtMost(std::numeric_limits<int64_t>::max() / 4096); }
  // The value is valid only if no operation overflowed.
  int64_t value() const { return value_; }

 private:
  int64_t value_;
  bool overflowed_ = false;
};

// Converts `from` to another integer type. Returns whether the value is unchanged.
template <class To, class From>
[[nodiscard]] bool Narrow(From from, To* to) {
  static_assert(std::is_integral_v<To> && std::is_integral_v<From>);
  *to = static_cast<To>(from);
  return static_cast<From>(*to) == from && (*to < To{}) == (from < From{});
}

// Returns the element of a container at a signed index.
template <class Container>
decltype(auto) At(Container& container, int64_t index) {
  return container[static_cast<size_t>(index)];
}

// Returns an array without initial values. Throws std::bad_alloc.
template <class T>
std::unique_ptr<T[]> Uninitialized(int64_t count) {
  return std::unique_ptr<T[]>(new T[static_cast<size_t>(count)]);
}

// Returns an array of zeros. Its size is signed. Throws std::bad_alloc.
template <class T>
std::unique_ptr<T[]> Array(int64_t count) {
  return std::make_unique<T[]>(static_cast<size_t>(count));
}

}  // namespace opwright
