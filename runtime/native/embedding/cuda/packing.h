// The layout in which a batch's ids are copied to a device. It uses as few bytes as the values
// need. This file does not need CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "base/execution_context.h"
#include "embedding/batch.h"
#include "embedding/cuda/arrival.h"
#include "embedding/cuda/kernels.h"
#include "embedding/spec.h"

namespace opwright::embedding::cuda {

// Rows and offsets are int32 if all rows of the table, or all offsets, fit in int32. Features
// with one id for each sample need no offsets. Ids that are on the device already are not
// copied. Their offsets and scales are computed there, in scratch memory.
class Packing {
 public:
  // `batch` must outlive this object.
  Packing(const Configuration& configuration, const Batch& batch);

  int64_t bytes() const { return bytes_; }
  void CopyTo(ExecutionContext* exec, char* to) const;
  int64_t scratch_bytes() const { return scratch_bytes_; }
  // Returns the features as sources. The packed bytes are at `base`, and `scratch` is aligned
  // to 16 bytes.
  std::vector<Source> SourcesAt(const char* base, const char* scratch) const;
  // The number of features whose ids were on the device already.
  size_t left() const { return left_; }
  std::vector<Arrived> ArrivedAt(const std::vector<Source>& sources, char* scratch) const;

 private:
  // A part of an array and its position in the packed bytes. If `narrow`, int64 values are
  // packed as int32.
  struct Part {
    const char* from;
    int64_t at, bytes;
    bool narrow;
  };
  struct Feature {
    int64_t table, samples, count;
    // The positions of the arrays in the packed bytes, or -1.
    int64_t offsets = -1, indices = -1, per_sample_weights = -1, scales = -1;
    bool wide_offsets = true, wide_indices = true;
    // Not null if the ids were on the device already. Then `offsets` and `scales` are positions
    // in scratch memory.
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
