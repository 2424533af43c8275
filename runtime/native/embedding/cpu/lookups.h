// Lookups of batches. They are cut into parts, which threads take one by one.
#pragma once

#include <cstdint>
#include <vector>

#include "embedding/cpu/rows.h"
#include "embedding/packed.h"

namespace opwright::embedding {

// The bytes of the rows and the outputs of a lookup. INT64_MAX if the number overflows.
int64_t LookupBytes(int64_t ids, int64_t samples, int64_t dimension);

// A part of a lookup: samples `first` to `end` of a feature.
struct LookupPart {
  int64_t feature, first, end;
};

// Cuts all samples of all features into parts. The first parts are large, because the first
// rows of each part are not prefetched. The last parts are small, so that all threads end at
// about the same time.
class LookupPlan {
 public:
  struct Feature {
    int64_t samples, ids, dimension;
  };
  LookupPlan(const std::vector<Feature>& features, int64_t threads);

  const std::vector<LookupPart>& parts() const { return parts_; }
  int64_t bytes() const { return bytes_; }
  // Whether the outputs alone fill at least half of the largest cache. Streaming stores are
  // used then, because they do not read the outputs' cache lines and evict no rows.
  bool streaming() const { return streaming_; }

 private:
  // Cuts a feature into parts. `left` is the number of bytes that are not in a part yet.
  void Cut(int64_t number, const Feature& feature, int64_t threads, int64_t* left);

  std::vector<LookupPart> parts_;
  int64_t bytes_ = 0;
  bool streaming_ = false;
};

// The lookup of one feature of a batch. `indices` are the rows of the table to look up.
struct FeatureLookup : TableLookup {
  const Bags* bags;
  const int64_t* indices;
  float* out;  // [samples, dimension]
};

// The lookups of a batch.
class LookupParts {
 public:
  LookupParts(std::vector<FeatureLookup> features, int64_t threads);

  int64_t count() const { return static_cast<int64_t>(plan_.parts().size()); }
  int64_t bytes() const { return plan_.bytes(); }
  void SetOutputs(const std::vector<float*>& outputs);

  void operator()(int64_t i) const;

 private:
  std::vector<FeatureLookup> features_;
  LookupPlan plan_;
  const RowKernels* const kernels_ = &SelectRowKernels();
};

// Looks up all parts. Several threads share a lookup of more than `few_bytes` bytes.
void LookUp(ExecutionContext* exec, const LookupParts& lookups, int64_t few_bytes);
void LookUpFeatures(ExecutionContext* exec, std::vector<FeatureLookup> features);

// Implements TableStore::LookUpPacked. `tables` has the table of each feature.
Status LookUpPackedBags(ExecutionContext* exec, const Configuration& configuration,
                        const PackedBags& bags, const std::vector<TableLookup>& tables,
                        int64_t few_bytes, float* activations);

}  // namespace opwright::embedding
