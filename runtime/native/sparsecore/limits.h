// What the batch of a chip requests of its SparseCores, what batches so far requested, and the
// ids that did not fit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "sparsecore/csr.h"

namespace opwright::sparsecore {

// The sorted rows of one SparseCore. Equal rows of a shard follow each other.
struct SortedRows {
  const int32_t* rows;
  int64_t size;
  std::vector<int32_t> id_counts;  // [shards + 1], the begins of the shards' runs.
};
// Checks that counts ascend from 0 to at most the number of rows.
Status CheckSortedRows(const std::vector<SortedRows>& of_cores);

struct Demand {
  // The most that one SparseCore requests of one shard.
  struct Most {
    int64_t count = 0, core = 0, shard = 0;
  };
  Most ids, distinct_rows;
  // The size of buffers that all triples fit into, padding included.
  int64_t capacity = 0;
};
// Requires rows that passed CheckSortedRows.
Demand MeasureDemand(const std::vector<SortedRows>& of_cores);

// Returns the least number of triples a sample that makes buffers of at least `capacity`, and
// that is a multiple of the largest power of two up to 8 in `present`. Thereby the buffers of
// all tables are multiples of 8, as those of the present number are.
int64_t LeastPerSample(int64_t capacity, int64_t samples, int64_t present);

// Keeps the most that batches requested of a shard of a table, until the TPU system ends. 0 is
// not kept, because a batch without ids says nothing of others. Refuses more tables than fit
// into a few megabytes.
Status StoreStatistics(const std::string& table, int64_t ids, int64_t distinct_rows);
// Returns what was stored of a table. Numbers that were not stored are no limits.
CsrLimits StatisticsOf(const std::string& table);

// Counts of ids that lookups dropped, since the last call of ForgetDroppedIds.
struct DroppedIds {
  int64_t ids = 0, batches = 0;
  // The number of ids a sample with which no batch so far had dropped any.
  int64_t per_sample = 0;
};
// Adds the ids of one batch. Returns whether they are the table's first ones.
bool AddDroppedIds(const std::string& table, int64_t ids, int64_t per_sample);
DroppedIds DroppedIdsOf(const std::string& table);
void ForgetDroppedIds();

}  // namespace opwright::sparsecore
