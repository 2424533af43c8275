// The inner loops over rows, compiled once per instruction set and chosen at run time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/execution_context.h"
#include "embedding/batch.h"
#include "embedding/spec.h"

namespace opwright::embedding {

// Where the rows of a table are: their weights, and their slots, those of one row after each
// other, `dimension` floats each or, of a row-wise rule, one. Strides are floats from row to
// row.
struct TableRows {
  float* weights;
  int64_t stride;
  float* slots;
  int64_t slots_stride;
  int64_t dimension;
};

// What lookups read of a table.
struct TableLookup {
  const float* table;
  int64_t stride, dimension;
  bool cache_resident;  // The table is so small that its rows are in a cache of the core,
                        // mostly.
  const Quantization* quantization;  // Or null.
};

// Samples `first` to `end` of a feature:
// out[s] = scales[s] * sum of per_sample_weights[i] * row indices[i], for i from offsets[s] to
// offsets[s + 1]. Without offsets each has one id, and neither weights nor scales.
struct LookupCall : TableLookup {
  const int64_t* offsets = nullptr;  // Or null.
  const int64_t* indices = nullptr;
  const float* per_sample_weights = nullptr;  // Or null: ones.
  const float* scales = nullptr;              // Or null: ones.
  int64_t first = 0, end = 0;
  float* out = nullptr;    // Rows of `dimension`,
  int64_t out_stride = 0;  // so many floats from row to row.
  bool streaming = false;  // The output does not stay in the caches anyway.
};

// Updates of different rows. Those of one row are summed, or made one after the other.
struct UpdateCall {
  TableRows table;
  int64_t count;
  const int64_t* rows;
  const int32_t* offsets;  // [count + 1], into contributions.
  const Contribution* contributions;
  bool accumulate;
  const Hyper* hyper;
  double* sum;  // [dimension], to work in.
};

// Updates of rows `first` to `end` with a gradient of zero, but for those whose bit in
// `touched` is set.
struct RestCall {
  TableRows table;
  int64_t first, end;
  const uint64_t* touched;
  const Hyper* hyper;
};

struct RowKernels {
  void (*lookup)(const LookupCall&);
  void (*update[kOptimizers])(const UpdateCall&);  // Null where there is no rule.
  void (*rest[kOptimizers])(const RestCall&);
  // Whether all of `rows` times `width` values are, `stride` from row to row.
  bool (*within)(Range range, int64_t rows, int64_t stride, int64_t width, const float* values);
};

// Of the instruction set in use (see base/isa.h).
const RowKernels& SelectRowKernels();

// Refuses gradients, by feature, that are not finite.
Status CheckFinite(ExecutionContext* exec, const Configuration& configuration,
                   const std::vector<const float*>& gradients);

// Makes each float the one with these bits.
void FillWithBits(uint32_t bits, int64_t count, float* to);
// The first value that is outside of a range.
std::optional<Outside> FindOutside(ExecutionContext& exec, Range range, int64_t count,
                                   const float* values);

}  // namespace opwright::embedding
