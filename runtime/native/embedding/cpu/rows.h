// The inner loops over rows of a table. They are compiled once for each instruction set, and
// chosen at run time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/execution_context.h"
#include "embedding/batch.h"
#include "embedding/spec.h"

namespace opwright::embedding {

// The layout of a table. The slots of a row are adjacent. Each slot has `dimension` floats, or
// one float if the rule is row-wise. A stride is the number of floats from one row to the next.
// Where `dtype` is narrow, a row's weights take RowWords floats, which have other contents.
struct TableRows {
  float* weights;
  int64_t stride;
  float* slots;
  int64_t slots_stride;
  int64_t dimension;
  RowDtype dtype = RowDtype::kFloat32;
};

// The part of a table that lookups read.
struct TableLookup {
  const float* table;
  int64_t stride, dimension;
  // Whether the table is so small that most of its rows are in a cache of the CPU core.
  bool cache_resident;
  const Quantization* quantization;  // Null if lookups do not quantize rows.
  RowDtype dtype = RowDtype::kFloat32;
};

// A lookup of samples `first` to `end` of a feature:
// out[s] = scales[s] * sum of per_sample_weights[i] * row indices[i], for i from offsets[s] to
// offsets[s + 1] - 1. If `offsets` is null, sample s has the id indices[s] only, and there are
// no weights and no scales.
struct LookupCall : TableLookup {
  const int64_t* offsets = nullptr;
  const int64_t* indices = nullptr;
  const float* per_sample_weights = nullptr;  // Null if all are 1.
  const float* scales = nullptr;              // Null if all are 1.
  int64_t first = 0, end = 0;
  float* out = nullptr;    // The rows of the output, with `dimension` floats each.
  int64_t out_stride = 0;  // The number of floats from one row of the output to the next.
  bool streaming = false;  // Whether the output is too large to stay in the caches.
};

// An update of distinct rows. If `accumulate` is true, the contributions to a row are summed
// and the row is updated once. Otherwise it is updated once for each of them, in their order.
struct UpdateCall {
  TableRows table;
  int64_t count;
  const int64_t* rows;
  const int32_t* offsets;  // [count + 1]. The index of each row's first contribution.
  const Contribution* contributions;
  bool accumulate;
  const Hyper* hyper;
  double* sum;  // Scratch memory, [dimension].
  // For narrow rows: how they are rounded, and scratch memory for one of them, [dimension].
  Rounding rounding{};
  float* wide = nullptr;
};

// An update of rows `first` to `end` with a gradient of zero. Rows whose bit in `touched` is
// set are left out.
struct RestCall {
  TableRows table;
  int64_t first, end;
  const uint64_t* touched;
  const Hyper* hyper;
  Rounding rounding{};  // As in UpdateCall.
  float* wide = nullptr;
};

struct RowKernels {
  void (*lookup)(const LookupCall&);
  // Functions for each optimizer. They are null for an optimizer without a rule.
  void (*update[kOptimizers])(const UpdateCall&);
  void (*rest[kOptimizers])(const RestCall&);
  // Whether all values are in a range. There are `rows` rows of `width` values, `stride` floats
  // from one row to the next.
  bool (*within)(Range range, int64_t rows, int64_t stride, int64_t width, const float* values);
  // Reads `count` weights of a row in a narrow dtype, from column `first` on.
  void (*widen)(RowDtype dtype, const float* row, int64_t first, int64_t count, float* to);
  // Whether updates of many rows are faster if neighboring rows do not follow each other.
  bool spread_updates;
};

// The functions for the instruction set in use (see base/isa.h).
const RowKernels& SelectRowKernels();

// Returns an error if a gradient is not finite. There is one array of gradients for each
// feature.
Status CheckFinite(ExecutionContext* exec, const Configuration& configuration,
                   const std::vector<const float*>& gradients);

// Sets each float to the one with these bits.
void FillWithBits(uint32_t bits, int64_t count, float* to);
// Finds the first value that is outside of a range.
std::optional<Outside> FindOutside(ExecutionContext& exec, Range range, int64_t count,
                                   const float* values);

}  // namespace opwright::embedding
