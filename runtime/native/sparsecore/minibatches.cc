#include "sparsecore/minibatches.h"

#include <algorithm>

#include "base/text.h"

namespace opwright::sparsecore {

Status SortChip(const ChipShape& shape, const TriplesView& triples,
                std::vector<ShardedTriples>* of_cores, ExecutionContext& exec) {
  const int64_t size = triples.size;
  if (size > kMaxInt32) {
    return InvalidArgumentError(
        "row_ids", StrCat("there are ", size, " triples, too many for int32 positions"));
  }
  UninitializedVector<int32_t> samples, rows;
  OPWRIGHT_RETURN_IF_ERROR(
      CopyWithin("row_ids", "sample_count", shape.samples, triples.samples, size, &samples));
  OPWRIGHT_RETURN_IF_ERROR(
      CopyWithin("col_ids", "table_vocab_size", shape.vocabulary, triples.rows, size, &rows));
  const auto descent = std::adjacent_find(samples.begin(), samples.end(),
                                          [](int32_t a, int32_t b) { return a > b; });
  if (descent != samples.end()) {
    return InvalidArgumentError(
        "row_ids",
        StrCat("must ascend, as those of ConvertToCooTensor do; the one at position ",
               descent - samples.begin() + 1, " is ", descent[1], " after ", descent[0]));
  }
  of_cores->resize(static_cast<size_t>(shape.sparse_cores));
  int64_t begin = 0;
  for (int64_t core = 0; core < shape.sparse_cores; ++core) {
    const int64_t next_sample = (core + 1) * shape.core_samples();
    const int64_t end =
        std::lower_bound(samples.begin() + begin, samples.end(), next_sample) - samples.begin();
    OPWRIGHT_RETURN_IF_ERROR(MergeFeatures(
        {{samples.data() + begin, rows.data() + begin, triples.gains + begin, end - begin}},
        {0}, shape.shards, shape.vocabulary, &(*of_cores)[static_cast<size_t>(core)], exec));
    begin = end;
  }
  return OkStatus();
}

bool MinibatchCutter::Fits(const Sums& sums, int64_t begin, int64_t end) const {
  return sums.ids[end] - sums.ids[begin] <= limits_.ids &&
         sums.distinct_rows[end] - sums.distinct_rows[begin] <= limits_.distinct_rows;
}

// Halves the node if it is too large, or was too large for an earlier shard. Then its halves.
void MinibatchCutter::Halve(const Sums& sums, int64_t node, int level) {
  if (level == kDivisionLevels) return;
  const int64_t bit = int64_t{1} << (node - 1);
  if ((halved_ & bit) == 0) {
    if (Fits(sums, FirstDivision(node, level), FirstDivision(node + 1, level))) return;
    halved_ |= bit;
  }
  Halve(sums, 2 * node, level + 1);
  Halve(sums, 2 * node + 1, level + 1);
}

void MinibatchCutter::Add(const Sums& sums) {
  Halve(sums, 1, 0);
  if (halved_ == 0) return;
  // Neighbours that fit into one minibatch are joined again. So are those without ids, which a
  // division that is too large alone leaves.
  std::vector<int64_t> cuts;
  int64_t begin = 0, last = 0;
  for (const int64_t end : MinibatchEnds(halved_)) {
    const bool both = sums.ids[begin] < sums.ids[last] && sums.ids[last] < sums.ids[end];
    if (both && !Fits(sums, begin, end)) {
      cuts.push_back(last);
      begin = last;
    }
    last = end;
  }
  splits_ |= MaskOfCuts(cuts);
}

ChipDemand WriteChip(const ChipShape& shape, const std::vector<ShardedTriples>& of_cores,
                     const CsrLimits& limits, int32_t* id_counts, int32_t* samples,
                     int32_t* rows, float* gains) {
  MinibatchCutter cutter(limits);
  ChipDemand demand;
  const int64_t division_size = DivisionSize(shape.vocabulary);
  std::vector<int32_t> begins(static_cast<size_t>(shape.shards) + 1);
  int64_t first = 0;  // The first triple of the SparseCore.
  *id_counts++ = 0;
  for (const ShardedTriples& of_core : of_cores) {
    PartitionByShard(of_core, shape.core_samples(), begins.data(), samples + first,
                     rows + first, gains + first);
    for (int64_t shard = 0; shard < shape.shards; ++shard) {
      const int64_t begin = first + begins[static_cast<size_t>(shard)],
                    end = first + begins[static_cast<size_t>(shard) + 1];
      MinibatchCutter::Sums sums;
      int64_t at = begin, distinct = 0;
      for (int64_t division = 1; division <= kDivisions; ++division) {
        // Rows ascend, and so do their divisions.
        while (at < end && rows[at] * shape.shards + shard < division * division_size) {
          distinct += at == begin || rows[at] != rows[at - 1];
          ++at;
        }
        sums.ids[division] = at - begin;
        sums.distinct_rows[division] = distinct;
        *id_counts++ = static_cast<int32_t>(at);
      }
      cutter.Add(sums);
      demand.ids = std::max(demand.ids, at - begin);
      demand.distinct_rows = std::max(demand.distinct_rows, distinct);
    }
    first += begins.back();
  }
  demand.splits = cutter.splits();
  return demand;
}

}  // namespace opwright::sparsecore
