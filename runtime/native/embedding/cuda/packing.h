// How a batch's ids go to a device: in as few bytes as they have. Nothing here asks for CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "base/execution_context.h"
#include "embedding/batch.h"
#include "embedding/cuda/kernels.h"
#include "embedding/spec.h"

namespace opwright::embedding::cuda {

// Rows and offsets are int32 where all of a table's rows, or all offsets, fit in it; features
// whose samples have an id each need no offsets.
class Packing {
 public:
  // `batch` has to stay.
  Packing(const Configuration& configuration, const Batch& batch);

  int64_t bytes() const { return bytes_; }
  void CopyTo(ExecutionContext* exec, char* to) const;
  // The features, once the bytes lie at `base`.
  std::vector<Source> SourcesAt(const char* base) const;

 private:
  // A part of an array, and where it goes; `narrow`: as int32 what is int64.
  struct Part {
    const char* from;
    int64_t at, bytes;
    bool narrow;
  };
  struct Feature {
    int64_t table, samples, count;
    int64_t offsets, indices, per_sample_weights, scales;  // Where they begin, or -1.
    bool wide_offsets, wide_indices;
  };

  template <class X>
  int64_t Append(const X* array, int64_t count, bool narrow);

  std::vector<Part> parts_;
  std::vector<Feature> features_;
  int64_t bytes_ = 0;
};

}  // namespace opwright::embedding::cuda
