// From the triples of a SparseCore to the order of its shards.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "sparsecore/triples.h"

namespace opwright::sparsecore {

struct ShardedTriples {
  Triples triples;                          // Table by table, by ascending row.
  std::vector<int32_t> ids, distinct_rows;  // Of each shard.
};

// Merges the features of each table, which have the same column offset. Triples of the same row
// and sample become one if they are neighbours in the order of the features.
Status MergeFeatures(const std::vector<TriplesView>& features,
                     const std::vector<int32_t>& col_offsets, int64_t shards,
                     int64_t vocabulary, ShardedTriples* merged);

// Writes the triples shard by shard. `id_counts` is [shards + 1]; each output has a place for
// every triple. Samples are taken modulo the SparseCore's number of samples. Rows become
// positions in their shard.
void PartitionByShard(const ShardedTriples& merged, int64_t samples, int32_t* id_counts,
                      int32_t* out_samples, int32_t* out_rows, float* out_gains);

}  // namespace opwright::sparsecore
