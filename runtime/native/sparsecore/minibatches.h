// Sorts the triples of a chip, and cuts the vocabulary into minibatches that are within limits.
#pragma once

#include <cstdint>
#include <vector>

#include "base/execution_context.h"
#include "base/status.h"
#include "sparsecore/csr.h"
#include "sparsecore/sort.h"
#include "sparsecore/triples.h"

namespace opwright::sparsecore {

// The vocabulary has kDivisions divisions of equal size. The last ones may be smaller or empty.
constexpr int64_t DivisionSize(int64_t vocabulary) { return (vocabulary - 1) / kDivisions + 1; }

struct ChipShape {
  int64_t samples;  // Of all SparseCores, each of which has as many.
  int64_t sparse_cores;
  int64_t shards;  // Of the system. This chip has as many as SparseCores.
  int64_t vocabulary;

  int64_t core_samples() const { return samples / sparse_cores; }
  int64_t shard_rows() const { return (vocabulary - 1) / shards + 1; }
  // The number of counts: the begin of each division's triples, and the number of all triples.
  int64_t counts() const { return sparse_cores * shards * kDivisions + 1; }
};

// Sorts the triples of each SparseCore by row. Samples must ascend. Triples with the same
// sample and row become one, with the sum of their gains.
Status SortChip(const ChipShape& shape, const TriplesView& triples,
                std::vector<ShardedTriples>* of_cores, ExecutionContext& exec);

// Chooses cuts, so that no SparseCore requests more of a shard in a minibatch than the limits
// allow. A division that is beyond them alone is a minibatch of its own.
class MinibatchCutter {
 public:
  explicit MinibatchCutter(const CsrLimits& limits) : limits_(limits) {}

  // What a SparseCore requests of a shard: the sums over the divisions before each division,
  // and over all.
  struct Sums {
    int64_t ids[kDivisions + 1] = {}, distinct_rows[kDivisions + 1] = {};
  };
  void Add(const Sums& sums);
  // Returns the mask of the cuts of all that was added.
  int64_t splits() const { return splits_; }

 private:
  bool Fits(const Sums& sums, int64_t begin, int64_t end) const;
  void Halve(const Sums& sums, int64_t node, int level);

  const CsrLimits limits_;
  int64_t halved_ = 0;  // The nodes that were too large for a shard so far.
  int64_t splits_ = 0;
};

struct ChipDemand {
  int64_t splits = 0;
  int64_t ids = 0, distinct_rows = 0;  // The most that a SparseCore requests of a shard.
};
// Writes the sorted triples SparseCore by SparseCore, shard by shard, row by row. Samples are
// positions in their SparseCore, and rows are positions in their shard. `id_counts` has
// shape.counts() elements.
ChipDemand WriteChip(const ChipShape& shape, const std::vector<ShardedTriples>& of_cores,
                     const CsrLimits& limits, int32_t* id_counts, int32_t* samples,
                     int32_t* rows, float* gains);

}  // namespace opwright::sparsecore
