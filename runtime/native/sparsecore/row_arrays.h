// Rows in several arrays: those of a table whose shards are separate variables, or those of
// the gradients of several replicas.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace opwright::sparsecore {

template <class T>
class RowArrays {
 public:
  // Each array has `rows` rows of `width` elements.
  RowArrays(std::vector<T*> arrays, int64_t rows, int64_t width)
      : arrays_(std::move(arrays)), rows_(rows), width_(width) {}

  int64_t width() const { return width_; }
  bool one() const { return arrays_.size() == 1; }
  T* first() const { return arrays_[0]; }

  // Rows are counted over all arrays.
  T* row(int64_t number) const {
    if (one()) return arrays_[0] + number * width_;
    return arrays_[static_cast<size_t>(number / rows_)] + number % rows_ * width_;
  }

 private:
  std::vector<T*> arrays_;
  int64_t rows_, width_;
};

}  // namespace opwright::sparsecore
