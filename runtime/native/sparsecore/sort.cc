#include "sparsecore/sort.h"

#include <map>
#include <string>

#include "base/checked.h"
#include "base/text.h"
#include "base/uninitialized_vector.h"
#include "sparsecore/stable_sort.h"

namespace opwright::sparsecore {
namespace {

// The shards of a system. Row r is in shard r % count at position r / count.
struct AnyShards {
  int32_t count;

  int32_t Of(int32_t row) const { return row % count; }
  int32_t Position(int32_t row) const { return row / count; }
};
// A mask and a shift take less time than divisions.
struct PowerOfTwoShards {
  int32_t mask;
  int shift;

  int32_t Of(int32_t row) const { return row & mask; }
  int32_t Position(int32_t row) const { return row >> shift; }
};
template <class Use>
void WithShards(int64_t shards, const Use& use) {
  const int32_t count = static_cast<int32_t>(shards);
  if ((count & (count - 1)) != 0) return use(AnyShards{count});
  int shift = 0;
  while ((int32_t{1} << shift) < count) ++shift;
  use(PowerOfTwoShards{count - 1, shift});
}

// The triples of one table, feature by feature.
class TableTriples {
 public:
  explicit TableTriples(int64_t vocabulary) : vocabulary_(vocabulary) {}

  void Clear() {
    items_.clear();
    samples_.clear();
    gains_.clear();
    row_bits_ = 0;
  }

  // Appends the triples of feature number `index`.
  Status Append(const TriplesView& feature, size_t index) {
    const size_t begin = items_.size(), size = static_cast<size_t>(feature.size);
    items_.resize(begin + size);
    samples_.resize(begin + size);
    uint64_t* const items = items_.data() + begin;
    int32_t* const samples = samples_.data() + begin;
    for (size_t i = 0; i < size; ++i) {
      // Each number is read only once, because another thread may change the input.
      const int32_t sample = feature.samples[i], row = feature.rows[i];
      if (sample < 0) {
        return InvalidArgumentError(
            StrCat("row_ids_list[", index, "]"),
            StrCat("samples must not be negative; the one at position ", i, " is ", sample));
      }
      if (row < 0 || row >= vocabulary_) {
        return InvalidArgumentError(
            StrCat("col_ids_list[", index, "]"),
            StrCat("rows must be at least 0 and below table_vocab_size, which is ", vocabulary_,
                   "; the one at position ", i, " is ", row));
      }
      items[i] = KeyAndPosition(row, static_cast<int64_t>(begin + i));
      row_bits_ |= static_cast<uint32_t>(row);
      samples[i] = sample;
    }
    gains_.insert(gains_.end(), feature.gains, feature.gains + feature.size);
    return OkStatus();
  }

  // Appends the sorted triples to those of other tables.
  void SortInto(int64_t shards, ShardedTriples* merged, ExecutionContext& exec) {
    SortByKey(row_bits_, &items_, exec);
    WithShards(shards, [&](const auto& of_system) { MergeInto(of_system, merged); });
  }

 private:
  // Joins the sorted triples that are equal.
  template <class Shards>
  void MergeInto(const Shards& shards, ShardedTriples* merged) const {
    Triples& triples = merged->triples;
    int64_t size = triples.size();
    triples.Resize(size + static_cast<int64_t>(items_.size()));
    int32_t* const samples = triples.samples.data();
    int32_t* const rows = triples.rows.data();
    float* const gains = triples.gains.data();
    int32_t last_row = -1, last_sample = -1;
    for (const uint64_t item : items_) {
      const int32_t row = static_cast<int32_t>(item >> 32);
      const uint32_t position = static_cast<uint32_t>(item);
      const int32_t sample = samples_[position];
      if (row == last_row && sample == last_sample) {
        gains[size - 1] += gains_[position];
        continue;
      }
      samples[size] = sample;
      rows[size] = row;
      gains[size] = gains_[position];
      ++size;
      const int32_t shard = shards.Of(row);
      ++merged->ids[shard];
      merged->distinct_rows[shard] += row != last_row;
      last_row = row;
      last_sample = sample;
    }
    triples.Resize(size);
  }

  const int64_t vocabulary_;
  UninitializedVector<uint64_t> items_;
  UninitializedVector<int32_t> samples_;
  std::vector<float> gains_;
  uint32_t row_bits_ = 0;  // The bits that are set in at least one row.
};

}  // namespace

Status CopyWithin(const char* name, const char* what, int64_t end, const int32_t* from,
                  int64_t size, UninitializedVector<int32_t>* to) {
  to->resize(static_cast<size_t>(size));
  int32_t* const copies = to->data();
  for (int64_t i = 0; i < size; ++i) {
    const int32_t number = from[i];
    if (number < 0 || number >= end) {
      return InvalidArgumentError(
          name, StrCat("must be at least 0 and below ", what, ", which is ", end,
                       "; the one at position ", i, " is ", number));
    }
    copies[i] = number;
  }
  return OkStatus();
}

Status MergeFeatures(const std::vector<TriplesView>& features,
                     const std::vector<int32_t>& col_offsets, int64_t shards,
                     int64_t vocabulary, ShardedTriples* merged, ExecutionContext& exec) {
  std::map<int32_t, std::vector<size_t>> tables;
  Checked sum = 0;
  for (size_t i = 0; i < features.size(); ++i) {
    tables[col_offsets[i]].push_back(i);
    sum += features[i].size;
  }
  if (!sum.AtMost(kMaxInt32)) {
    return InvalidArgumentError(
        "row_ids_list",
        StrCat("there are ", sum.value(), " triples, too many for int32 positions"));
  }
  merged->triples.Reserve(sum.value());
  merged->ids.assign(shards, 0);
  merged->distinct_rows.assign(shards, 0);
  TableTriples table(vocabulary);
  for (const auto& [offset, members] : tables) {
    table.Clear();
    for (const size_t member : members) {
      OPWRIGHT_RETURN_IF_ERROR(table.Append(features[member], member));
    }
    table.SortInto(shards, merged, exec);
  }
  return OkStatus();
}

void PartitionByShard(const ShardedTriples& merged, int64_t samples, int32_t* id_counts,
                      int32_t* out_samples, int32_t* out_rows, float* out_gains) {
  const auto count = static_cast<int64_t>(merged.ids.size());
  id_counts[0] = 0;
  for (int64_t i = 0; i < count; ++i) id_counts[i + 1] = id_counts[i] + merged.ids[i];
  std::vector<int32_t> next(id_counts, id_counts + count);
  const Triples& triples = merged.triples;
  WithShards(count, [&](const auto& shards) {
    int64_t first = 0;  // The first sample of the SparseCore that had the last triple.
    for (int64_t i = 0; i < triples.size(); ++i) {
      const int32_t row = triples.rows[i], sample = triples.samples[i];
      if (sample < first || sample >= first + samples) first = sample / samples * samples;
      const int32_t at = next[shards.Of(row)]++;
      out_samples[at] = static_cast<int32_t>(sample - first);
      out_rows[at] = shards.Position(row);
      out_gains[at] = triples.gains[i];
    }
  });
}

}  // namespace opwright::sparsecore
