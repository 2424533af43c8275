// Lookups, cut into parts that threads take one by one.
#pragma once

#include <cstdint>
#include <vector>

#include "embedding/cpu/rows.h"
#include "embedding/packed.h"

namespace opwright::embedding {

// Of rows and outputs; INT64_MAX, if they are more.
int64_t LookupBytes(int64_t ids, int64_t samples, int64_t dimension);

// Samples `first` to `end` of a feature.
struct LookupPart {
  int64_t feature, first, end;
};

// All samples of all features. Large parts come first, since the first rows of a part are not
// prefetched. Small parts come last, so that all threads end together.
class LookupPlan {
 public:
  struct Feature {
    int64_t samples, ids, dimension;
  };
  LookupPlan(const std::vector<Feature>& features, int64_t threads);

  const std::vector<LookupPart>& parts() const { return parts_; }
  int64_t bytes() const { return bytes_; }
  // Whether the outputs alone fill half of the caches or more. Streaming stores then
  // neither read their cache lines nor evict rows.
  bool streaming() const { return streaming_; }

 private:
  // Into parts, of which as many bytes are `left`.
  void Cut(int64_t number, const Feature& feature, int64_t threads, int64_t* left);

  std::vector<LookupPart> parts_;
  int64_t bytes_ = 0;
  bool streaming_ = false;
};

// A feature of a batch, whose ids are `indices`, rows of the table.
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

// Threads share what takes more than `few_bytes`.
void LookUp(ExecutionContext* exec, const LookupParts& lookups, int64_t few_bytes);
void LookUpFeatures(ExecutionContext* exec, std::vector<FeatureLookup> features);

// As TableStore::LookUpPacked; `tables` by feature.
Status LookUpPackedBags(ExecutionContext* exec, const Configuration& configuration,
                        const PackedBags& bags, const std::vector<TableLookup>& tables,
                        int64_t few_bytes, float* activations);

}  // namespace opwright::embedding
