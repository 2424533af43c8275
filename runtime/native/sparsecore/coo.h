// Conversion of a feature's ids to triples, in coordinate (COO) format.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "embedding/batch.h"
#include "sparsecore/triples.h"

namespace opwright::sparsecore {

// The ids of one feature in a batch.
struct CooFeature {
  enum Form { kDense, kSparse, kRagged };
  Form form;
  // For kSparse: [ids, 2], with the sample in the first column. For kRagged: row splits
  // [sample_count + 1].
  const int32_t* indices;
  const int32_t* ids;
  int64_t id_count;
  const float* weights;  // [id_count], or [1] if all ids have the same weight.
  bool one_weight;
  int64_t sample_count;
};

// Returns the triples in ascending order of samples. A gain is the weight of an id. The
// combiners mean and sqrtn divide it by a denominator. Equal ids that follow each other in a
// sample become one triple, with the sum of their gains. The denominators count each of these
// ids separately.
Status FeatureToTriples(const CooFeature& feature, embedding::Combiner combiner,
                        Triples* triples);

// The position of a feature in the batch and in the table that it shares with other features.
struct CooStacking {
  int64_t sample_count;
  int64_t sc_per_chip;
  int64_t row_offset, col_offset;
  int64_t col_shift;
  int64_t shards;  // A power of two.
  int64_t stacked_samples;
};
Status CheckStacking(const CooStacking& stacking);

// Moves triples, which are in ascending order of samples, to their position in the stack.
// `begins` receives the first triple of each SparseCore and, as last element, the number of
// triples.
Status StackTriples(const CooStacking& stacking, Triples* triples,
                    std::vector<int64_t>* begins);

}  // namespace opwright::sparsecore
