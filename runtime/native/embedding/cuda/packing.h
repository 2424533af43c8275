// How a batch's ids go to a device: in as few bytes as they have. Nothing here needs CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "base/execution_context.h"
#include "embedding/batch.h"
#include "embedding/cuda/arrival.h"
#include "embedding/cuda/kernels.h"
#include "embedding/spec.h"

namespace opwright::embedding::cuda {

// Rows and offsets are int32 where all of a table's rows, or all offsets, fit in it; features
// whose samples have an id each need no offsets. Ids that lie on the device are left where they
// are: what is made of them there takes scratch memory, and is not copied.
class Packing {
 public:
  // `batch` has to stay.
  Packing(const Configuration& configuration, const Batch& batch);

  int64_t bytes() const { return bytes_; }
  void CopyTo(ExecutionContext* exec, char* to) const;
  int64_t scratch_bytes() const { return scratch_bytes_; }
  // The features, once the bytes lie at `base` and `scratch` is aligned to 16 bytes;
  std::vector<Source> SourcesAt(const char* base, const char* scratch) const;
  // and those of them whose ids were left.
  size_t left() const { return left_; }
  std::vector<Arrived> ArrivedAt(const std::vector<Source>& sources, char* scratch) const;

 private:
  // A part of an array, and where it goes; `narrow`: as int32 what is int64.
  struct Part {
    const char* from;
    int64_t at, bytes;
    bool narrow;
  };
  struct Feature {
    int64_t table, samples, count;
    // Where they begin, or -1.
    int64_t offsets = -1, indices = -1, per_sample_weights = -1, scales = -1;
    bool wide_offsets = true, wide_indices = true;
    // If it was left: offsets and scales are in scratch memory.
    const DeviceLookups* left = nullptr;
  };

  template <class X>
  int64_t Append(const X* array, int64_t count, bool narrow);
  void Pack(const Bags& bags, int64_t rows, Feature* one);
  void Leave(const DeviceLookups& left, Feature* one);

  std::vector<Part> parts_;
  std::vector<Feature> features_;
  int64_t bytes_ = 0, scratch_bytes_ = 0;
  size_t left_ = 0;
};

}  // namespace opwright::embedding::cuda
