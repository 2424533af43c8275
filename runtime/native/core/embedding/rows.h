// The inner loops over rows, compiled once per instruction set and chosen at run time.
//
// A row of a table is its weights and then, one after the other, its slots: `stride` floats
// in all, so that an update finds all that it needs in one place.
#pragma once

#include <cstdint>

#include "core/embedding/config.h"

namespace opwright {
namespace embedding {

// Samples `first` to `end` of a feature: out[s] = scales[s] * sum of weights[i] * row ids[i].
struct LookupCall {
  const float* table;
  int64_t stride, dimension;
  const int64_t* starts;
  const int64_t* ids;
  const float* weights;  // Or null: ones.
  const float* scales;   // Or null: ones.
  int64_t first, end;
  const Quantization* quantization;  // Or null.
  float* out;                        // [samples, dimension]
};

// What one id of a batch adds to the gradient of its row.
struct Contribution {
  const float* gradient;  // Of the sample that the id is in: [dimension].
  float coefficient;
};

// Updates of different rows. Those of one row are summed, or made one after the other.
struct UpdateCall {
  float* table;
  int64_t stride, dimension;
  int64_t count;
  const int64_t* rows;
  const int32_t* starts;  // [count + 1], into contributions.
  const Contribution* contributions;
  bool accumulate;
  const Hyper* hyper;
  double* sum;  // [dimension], to work in.
};

// Updates of rows `first` to `end` with a gradient of zero, but for those whose bit in
// `touched` is set.
struct RestCall {
  float* table;
  int64_t stride, dimension;
  int64_t first, end;
  const uint64_t* touched;
  const Hyper* hyper;
};

struct RowKernels {
  void (*lookup)(const LookupCall&);
  void (*update[kOptimizers])(const UpdateCall&);  // Null where there is no rule.
  void (*rest[kOptimizers])(const RestCall&);
  // Whether all values are finite.
  bool (*finite)(int64_t count, const float* values);
};

// Of the instruction set in use (see core/isa.h).
const RowKernels& SelectRowKernels();

}  // namespace embedding
}  // namespace opwright
