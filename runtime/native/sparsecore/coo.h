// From the ids of a feature to triples, in coordinate (COO) format.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "embedding/batch.h"
#include "sparsecore/triples.h"

namespace opwright::sparsecore {

// The ids of a batch.
struct CooFeature {
  enum Form { kDense, kSparse, kRagged };
  Form form;
  // kSparse: [ids, 2], the sample first; kRagged: [sample_count + 1] row splits.
  const int32_t* indices;
  const int32_t* ids;
  int64_t id_count;
  const float* weights;  // [id_count], or [1] for all ids.
  bool one_weight;
  int64_t sample_count;
};

// Triples by ascending sample. The combiner is part of the gains. Equal ids that follow each
// other in a sample become one triple; the denominators of mean and sqrtn count each of them.
Status FeatureToTriples(const CooFeature& feature, embedding::Combiner combiner,
                        Triples* triples);

// The place of a feature in the batch and the table that it shares with other features.
struct CooStacking {
  int64_t sample_count;
  int64_t sc_per_chip;
  int64_t row_offset, col_offset;
  int64_t col_shift;
  int64_t shards;  // A power of two.
  int64_t stacked_samples;
};
Status CheckStacking(const CooStacking& stacking);

// Moves triples of ascending samples to their place in the stack. `begins` gets the first
// triple of each SparseCore, and at its end the number of triples.
Status StackTriples(const CooStacking& stacking, Triples* triples,
                    std::vector<int64_t>* begins);

}  // namespace opwright::sparsecore
