// Conversion of the triples of a SparseCore to the order of its shards.
#pragma once

#include <cstdint>
#include <vector>

#include "base/execution_context.h"
#include "base/status.h"
#include "sparsecore/triples.h"

namespace opwright::sparsecore {

// Copies the numbers of an input. Checks that each is at least 0 and below `end`. `what` says
// what has that many: "below ", `what`, ", which is ", `end`. Each number is read only once,
// because another thread may change the input.
Status CopyWithin(const char* name, const char* what, int64_t end, const int32_t* from,
                  int64_t size, UninitializedVector<int32_t>* to);

struct ShardedTriples {
  // Triples are in the order of tables, and within a table in ascending order of rows.
  Triples triples;
  // For each shard, the numbers of ids and of distinct rows.
  std::vector<int32_t> ids, distinct_rows;
};

// Joins the triples of the features of each table and sorts them by row. Features with the same
// column offset belong to the same table. Triples of a row stay in the order of the features.
// Triples with the same row and sample that then follow each other become one triple, with the
// sum of their gains.
Status MergeFeatures(const std::vector<TriplesView>& features,
                     const std::vector<int32_t>& col_offsets, int64_t shards,
                     int64_t vocabulary, ShardedTriples* merged, ExecutionContext& exec);

// Writes the triples shard by shard to the arrays `out_samples`, `out_rows` and `out_gains`,
// which must have space for all triples. Sets id_counts[s] to the index of the first triple of
// shard s, and id_counts[shards] to the number of all triples. Samples are written modulo
// `samples`, the SparseCore's number of samples. Rows are written as positions in their shard.
void PartitionByShard(const ShardedTriples& merged, int64_t samples, int32_t* id_counts,
                      int32_t* out_samples, int32_t* out_rows, float* out_gains);

}  // namespace opwright::sparsecore
