// The formats in which SparseCores take a batch, and the lookups made from them.
//
// A batch is a sparse matrix of triples (sample, row, gain): a sample's activations are the
// sum of its triples' rows, each times its gain. Row r of a table lies in shard r % shards at
// r / shards. A chip's SparseCores each hold one shard and have a contiguous part of the
// chip's samples.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/execution_context.h"
#include "base/status.h"
#include "embedding/batch.h"

namespace opwright::sparsecore {

using embedding::Combiner;
using embedding::Hyper;
using embedding::Optimizer;
using embedding::Quantization;
using embedding::Range;

// What fills the buffers between runs of triples.
constexpr int32_t kSparseCorePad = std::numeric_limits<int32_t>::max();
// Runs begin, and minibatches' row pointers end, at multiples of this.
constexpr int64_t kSparseCoreAlignment = 8;
// Parts of a vocabulary from which minibatches are made, 2^6 of them.
constexpr int kDivisionLevels = 6;
constexpr int64_t kDivisions = int64_t{1} << kDivisionLevels;

struct TriplesView {
  const int32_t* samples;
  const int32_t* rows;
  const float* gains;
  int64_t size;
};

struct Triples {
  std::vector<int32_t> samples, rows;
  std::vector<float> gains;

  int64_t size() const { return static_cast<int64_t>(samples.size()); }
  void Reserve(int64_t count);
  void Add(int32_t sample, int32_t row, float gain);
  TriplesView view() const { return {samples.data(), rows.data(), gains.data(), size()}; }
};

// ---- From a feature to triples.

// The ids of a batch.
struct CooFeature {
  enum Form { kDense, kSparse, kRagged };
  Form form;
  // kSparse: [ids, 2], the sample first; kRagged: [sample_count + 1] row splits.
  const int32_t* indices;
  const int32_t* ids;
  int64_t id_count;
  const float* weights;  // [id_count], or [1], which stands for all of them.
  bool one_weight;
  int64_t sample_count;
};

// Triples by ascending sample, the combiner folded into the gains. Equal ids next to each
// other in a sample become one triple; denominators count them one by one.
Status FeatureToTriples(const CooFeature& feature, Combiner combiner, Triples* triples);

// Where a feature lies in the batch and the table that it shares with others.
struct CooStacking {
  int64_t sample_count;
  int64_t sc_per_chip;
  int64_t row_offset, col_offset;
  int64_t col_shift;
  int64_t shards;  // A power of two.
  int64_t stacked_samples;
};
Status CheckStacking(const CooStacking& stacking);
// Moves triples of ascending samples to where they lie in the stack. `begins` gets the first
// triple of each SparseCore, and their number.
Status StackTriples(const CooStacking& stacking, Triples* triples,
                    std::vector<int64_t>* begins);

// ---- From a SparseCore's triples to its shards' order.

struct ShardedTriples {
  Triples triples;                          // Table by table, by ascending row.
  std::vector<int32_t> ids, distinct_rows;  // Of each shard.
};
// Puts together features of the same table, those with the same column offset. Triples with
// the same row and the same sample become one if nothing but such ones lies between them in
// the order of the features.
Status MergeFeatures(const std::vector<TriplesView>& features,
                     const std::vector<int32_t>& col_offsets, int64_t shards,
                     int64_t vocabulary, ShardedTriples* merged);
// `id_counts` is [shards + 1]; `out` has room for all triples. Samples are taken modulo the
// SparseCore's own, rows become positions in their shard.
void DealToShards(const ShardedTriples& merged, int64_t samples, int32_t* id_counts,
                  int32_t* out_samples, int32_t* out_rows, float* out_gains);

// ---- From sorted triples to the buffers of a lookup.

// Ends of the minibatches, as numbers of divisions, from a mask over a binary tree of them.
std::vector<int64_t> MinibatchEnds(int64_t splits);

struct CsrShape {
  int64_t shards;
  int64_t max_minibatches;
  int64_t capacity;  // Triples that the buffers have room for.

  // Row pointers of one SparseCore's minibatch.
  int64_t stride() const {
    return (shards + kSparseCoreAlignment - 1) / kSparseCoreAlignment * kSparseCoreAlignment;
  }
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
  // What is in use.
  int64_t row_pointers_size, ids_size;
  int64_t minibatches;
  int64_t dropped;
};
Status CheckCsrSources(const CsrShape& shape, int64_t splits,
                       const std::vector<CsrSource>& sources);
// Needs sources that have been checked. What is not in use is filled, too.
Status PackCsr(const CsrShape& shape, int64_t splits, bool drop,
               const std::vector<CsrSource>& sources, CsrBuffers* out);

// ---- Lookups.

struct CsrLimits {
  int64_t ids = std::numeric_limits<int64_t>::max();
  int64_t distinct_rows = std::numeric_limits<int64_t>::max();
};
// The buffers of a device that is a whole system: it has all shards.
struct CsrView {
  const int32_t* row_pointers;
  int64_t row_pointers_size;
  TriplesView triples;  // Within shards, and within SparseCores.
  int64_t minibatches;
  int64_t sparse_cores;
  CsrLimits limits;
};
// Triples with samples of the device and rows of its table, in the order of the buffers.
// `samples` and `table_rows` are multiples of the number of SparseCores.
Status ReadCsr(const CsrView& csr, int64_t samples, int64_t table_rows, Triples* triples);

// activations[sample] = sum of gain * table[row]: [samples, width].
void SumRows(const Triples& triples, const float* table, int64_t width,
             const Quantization& quantization, int64_t samples, float* activations,
             ExecutionContext& exec);
// The same of whole numbers: gains are whole, and sums wrap around.
Status SumRows(const Triples& triples, const int32_t* table, int64_t width, int64_t samples,
               int32_t* activations, ExecutionContext& exec);

// ---- Updates.

// What a row to update holds that it may not: `table` 0 are the weights, then come the slots.
struct WrongNumber {
  int64_t table = 0, row = 0, column = 0;
  float value = 0;
  Range range = Range::kFinite;
};
// Gives each row that triples name the optimizer's step for the sum of gain *
// gradients[sample]. `tables` are the table and the optimizer's slots, [rows, width] each;
// `gradients` is [samples, width]. If it refuses a row, only some of the others are updated.
[[nodiscard]] std::optional<WrongNumber> UpdateRows(const Triples& triples,
                                                    const float* gradients, int64_t width,
                                                    Optimizer optimizer, const Hyper& hyper,
                                                    float* const* tables,
                                                    ExecutionContext& exec);
// Triples that give row indices[i] the gradient i; of equal indices the last one counts.
Status RowsToTriples(const int32_t* indices, int64_t count, int64_t table_rows,
                     Triples* triples);

}  // namespace opwright::sparsecore
