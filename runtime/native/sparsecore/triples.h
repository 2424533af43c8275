// The sparse matrix of a batch, in the form that SparseCores read.
//
// Each nonzero of the matrix is a triple (sample, row, gain). The gain is the factor that the
// row is multiplied by. It is the weight of an id. The combiners mean and sqrtn divide it by a
// denominator. The activations of a sample are the sum of gain * row over its triples.
//
// Row r of a table is in shard r % shards at position r / shards. Each SparseCore of a chip has
// one shard and a contiguous part of the chip's samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/uninitialized_vector.h"

namespace opwright::sparsecore {

// The samples, rows and positions of triples are int32.
constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

struct TriplesView {
  const int32_t* samples;
  const int32_t* rows;
  const float* gains;
  int64_t size;
};

struct Triples {
  UninitializedVector<int32_t> samples, rows;
  UninitializedVector<float> gains;
  // The position of each triple's id in its sample. Only custom combiners have positions.
  UninitializedVector<int32_t> positions = {};

  int64_t size() const { return static_cast<int64_t>(samples.size()); }
  TriplesView view() const { return {samples.data(), rows.data(), gains.data(), size()}; }

  void Reserve(int64_t count) {
    const auto size = static_cast<size_t>(count);
    samples.reserve(size);
    rows.reserve(size);
    gains.reserve(size);
  }
  // New triples have no values until they are written.
  void Resize(int64_t count) {
    const auto size = static_cast<size_t>(count);
    samples.resize(size);
    rows.resize(size);
    gains.resize(size);
  }
  void Add(int32_t sample, int32_t row, float gain) {
    samples.push_back(sample);
    rows.push_back(row);
    gains.push_back(gain);
  }
};

}  // namespace opwright::sparsecore
