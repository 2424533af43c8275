// The buffers of a lookup, in compressed sparse row (CSR) format. The buffers contain runs of
// triples by SparseCore, minibatch and shard, and pointers to the ends of the runs.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/execution_context.h"
#include "base/status.h"
#include "sparsecore/triples.h"

namespace opwright::sparsecore {

// The value of buffer elements between runs of triples.
constexpr int32_t kSparseCorePad = std::numeric_limits<int32_t>::max();
// Runs begin at multiples of this number. The row pointers of each minibatch do too.
constexpr int64_t kSparseCoreAlignment = 8;
// The vocabulary is divided into 2^6 divisions. A minibatch consists of consecutive divisions.
constexpr int kDivisionLevels = 6;
constexpr int64_t kDivisions = int64_t{1} << kDivisionLevels;

constexpr int64_t AlignUp(int64_t value) {
  return (value + kSparseCoreAlignment - 1) / kSparseCoreAlignment * kSparseCoreAlignment;
}
// Returns the number of row pointers of one minibatch of one SparseCore, including padding.
constexpr int64_t RowPointerStride(int64_t shards) { return AlignUp(shards); }

// A binary tree halves the divisions again and again. Its root is node 1. The children of node
// n are the nodes 2 * n and 2 * n + 1. A node of level l has 2^(6 - l) divisions.
//
// A cut is the division at which a minibatch begins. A mask of cuts has bit n - 1 if node n is
// cut in the middle.
constexpr int64_t FirstDivision(int64_t node, int level) {
  return (node << (kDivisionLevels - level)) - kDivisions;
}
// Returns the ends of the minibatches, counted in divisions.
std::vector<int64_t> MinibatchEnds(int64_t splits);
// Returns the mask of cuts, each of which is at least 1 and below 64.
int64_t MaskOfCuts(const std::vector<int64_t>& cuts);

// ---- Conversion of sorted triples to buffers.

struct CsrShape {
  int64_t shards;
  int64_t max_minibatches;
  int64_t capacity;  // The number of triples that the buffers have space for.

  int64_t stride() const { return RowPointerStride(shards); }
};
struct CsrSource {
  TriplesView triples;
  const int32_t* id_counts;  // [shards + 1], or [shards * kDivisions + 1].
  int64_t id_counts_size;
};
struct CsrBuffers {
  int32_t* row_pointers;  // [max_minibatches * SparseCores * stride]
  int32_t* samples;       // The arrays samples, rows and gains are [capacity].
  int32_t* rows;
  float* gains;
  // The fields below are results: the used sizes of the buffers, the size that all triples
  // need, and the numbers of all triples and of those that did not fit.
  int64_t row_pointers_size, ids_size, needed_size;
  int64_t minibatches;
  int64_t triples, dropped;
};
// Checks the shape, and that there is space for the minibatches.
Status CheckCsrShape(const CsrShape& shape, int64_t splits);
// Checks that counts ascend from 0 to at most the number of triples. `name` is that of the
// counts.
Status CheckIdCounts(const std::string& name, const CsrSource& source);
// Checks the shape and all sources. Messages call the counts of the sources id_counts_list.
Status CheckCsrSources(const CsrShape& shape, int64_t splits,
                       const std::vector<CsrSource>& sources);
// Requires a shape and sources that passed the checks. Leaves out the triples that do not fit,
// and fills the unused part of the buffers.
void PackCsr(const CsrShape& shape, int64_t splits, const std::vector<CsrSource>& sources,
             CsrBuffers* out);

// ---- Conversion of buffers to triples.

struct CsrLimits {
  int64_t ids = std::numeric_limits<int64_t>::max();
  int64_t distinct_rows = std::numeric_limits<int64_t>::max();
};
// The buffers of one device.
struct CsrView {
  const int32_t* row_pointers;
  int64_t row_pointers_size;
  // Rows are relative to their shard. Samples are relative to their SparseCore.
  TriplesView triples;
  int64_t minibatches;
  int64_t sparse_cores;
  CsrLimits limits;
  // How many devices hold the table. Each has as many shards as SparseCores, one device after
  // another.
  int64_t devices = 1;
  // The number of the device's first sample. Triples count samples from there.
  int64_t first_sample = 0;
  // The position of each triple's id in its sample, or null.
  const int32_t* positions = nullptr;

  int64_t shards() const { return devices * sparse_cores; }
};
// Adds triples in the order of the buffers. Their rows are rows of the whole table. `samples`
// is the number of samples of the device. It must be a multiple of the number of SparseCores,
// and `table_rows` a multiple of the number of shards.
Status ReadCsr(const CsrView& csr, int64_t samples, int64_t table_rows, Triples* triples,
               ExecutionContext& exec);

}  // namespace opwright::sparsecore
