// The buffers of a lookup, in compressed sparse row (CSR) format: runs of triples by
// SparseCore, minibatch and shard, and pointers to the ends of the runs.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "base/status.h"
#include "sparsecore/triples.h"

namespace opwright::sparsecore {

// What fills the buffers between runs of triples.
constexpr int32_t kSparseCorePad = std::numeric_limits<int32_t>::max();
// Runs begin at multiples of this, and so do the row pointers of each minibatch.
constexpr int64_t kSparseCoreAlignment = 8;
// A vocabulary is divided into 2^6 parts, of which minibatches consist.
constexpr int kDivisionLevels = 6;
constexpr int64_t kDivisions = int64_t{1} << kDivisionLevels;

constexpr int64_t AlignUp(int64_t value) {
  return (value + kSparseCoreAlignment - 1) / kSparseCoreAlignment * kSparseCoreAlignment;
}
// The number of row pointers of one minibatch of one SparseCore, with padding.
constexpr int64_t RowPointerStride(int64_t shards) { return AlignUp(shards); }

// Ends of the minibatches, counted in divisions, from a mask over a binary tree of divisions.
std::vector<int64_t> MinibatchEnds(int64_t splits);

// ---- From sorted triples to buffers.

struct CsrShape {
  int64_t shards;
  int64_t max_minibatches;
  int64_t capacity;  // Number of triples that the buffers can hold.

  int64_t stride() const { return RowPointerStride(shards); }
};
struct CsrSource {
  TriplesView triples;
  const int32_t* id_counts;  // [shards + 1], or [shards * kDivisions + 1].
  int64_t id_counts_size;
};
struct CsrBuffers {
  int32_t* row_pointers;  // [max_minibatches * SparseCores * stride]
  int32_t* samples;       // [capacity], like the next two.
  int32_t* rows;
  float* gains;
  // Results: how much of the buffers is in use, and how many triples did not fit.
  int64_t row_pointers_size, ids_size;
  int64_t minibatches;
  int64_t dropped;
};
Status CheckCsrSources(const CsrShape& shape, int64_t splits,
                       const std::vector<CsrSource>& sources);
// Requires sources that passed CheckCsrSources. Fills the unused part of the buffers too.
Status PackCsr(const CsrShape& shape, int64_t splits, bool drop,
               const std::vector<CsrSource>& sources, CsrBuffers* out);

// ---- From buffers to triples.

struct CsrLimits {
  int64_t ids = std::numeric_limits<int64_t>::max();
  int64_t distinct_rows = std::numeric_limits<int64_t>::max();
};
// The buffers of a device that holds all shards.
struct CsrView {
  const int32_t* row_pointers;
  int64_t row_pointers_size;
  TriplesView triples;  // Rows count within a shard, samples within a SparseCore.
  int64_t minibatches;
  int64_t sparse_cores;
  CsrLimits limits;
};
// Triples with samples of the device and rows of its table, in the order of the buffers.
// `samples` and `table_rows` are multiples of the number of SparseCores.
Status ReadCsr(const CsrView& csr, int64_t samples, int64_t table_rows, Triples* triples);

}  // namespace opwright::sparsecore
