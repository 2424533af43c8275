#include "sparsecore/formats.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <utility>

#include "base/checked.h"
#include "embedding/cpu/rows.h"

namespace opwright::sparsecore {

using embedding::Contribution;
using embedding::FactsOf;
using embedding::LookupCall;
using embedding::OptimizerFacts;
using embedding::RowKernels;
using embedding::SelectRowKernels;
using embedding::UpdateCall;
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

int64_t RoundUp(int64_t value) {
  return (value + kSparseCoreAlignment - 1) / kSparseCoreAlignment * kSparseCoreAlignment;
}

std::string At(const std::string& name, int64_t i) {
  return name + "[" + std::to_string(i) + "]";
}

// By key, the upper half, which is not negative; equal keys keep their order.
void SortByUpperHalf(std::vector<uint64_t>* items) {
  constexpr int kBits = 11;
  uint64_t largest = 0;
  for (const uint64_t item : *items) largest = std::max(largest, item);
  std::vector<uint64_t> other(items->size());
  for (int shift = 32; shift < 64 && (largest >> shift) != 0; shift += kBits) {
    const auto digit = [shift](uint64_t item) { return (item >> shift) & ((1u << kBits) - 1); };
    std::vector<int64_t> at(size_t{1} << kBits);
    for (const uint64_t item : *items) ++at[digit(item)];
    int64_t begin = 0;
    for (int64_t& count : at) begin += std::exchange(count, begin);
    for (const uint64_t item : *items) other[at[digit(item)]++] = item;
    items->swap(other);
  }
}

uint64_t Item(int32_t key, int64_t position) {
  return (static_cast<uint64_t>(key) << 32) | static_cast<uint64_t>(position);
}

// The sample of each id.
Status ReadSamples(const CooFeature& feature, std::vector<int32_t>* samples) {
  const char* const name = "indices_or_row_splits";
  samples->resize(feature.id_count);
  switch (feature.form) {
    case CooFeature::kDense:
      for (int64_t i = 0; i < feature.id_count; ++i) (*samples)[i] = static_cast<int32_t>(i);
      return OkStatus();
    case CooFeature::kSparse:
      for (int64_t i = 0, last = 0; i < feature.id_count; ++i) {
        const int32_t sample = feature.indices[2 * i];
        if (sample < last || sample >= feature.sample_count) {
          return InvalidArgumentError(
              name, "samples must ascend from 0 and stay below sample_count, which is " +
                        std::to_string(feature.sample_count) + "; that of id " +
                        std::to_string(i) + " is " + std::to_string(sample) +
                        (i > 0 ? " after " + std::to_string(last) : ""));
        }
        (*samples)[i] = sample;
        last = sample;
      }
      return OkStatus();
    case CooFeature::kRagged: break;
  }
  int32_t last = 0;
  for (int64_t i = 0; i <= feature.sample_count; ++i) {
    const int32_t split = feature.indices[i];  // Read once: what is checked is used.
    const bool good = i == 0                      ? split == 0
                      : i == feature.sample_count ? split == feature.id_count
                                                  : split <= feature.id_count;
    if (!good || split < last) {
      return InvalidArgumentError(
          name, "row splits must ascend from 0 to the number of ids, which is " +
                    std::to_string(feature.id_count) + "; number " + std::to_string(i) +
                    " is " + std::to_string(split));
    }
    if (i > 0) {
      std::fill(samples->begin() + last, samples->begin() + split, static_cast<int32_t>(i - 1));
    }
    last = split;
  }
  return OkStatus();
}

}  // namespace

void Triples::Reserve(int64_t count) {
  samples.reserve(count);
  rows.reserve(count);
  gains.reserve(count);
}

void Triples::Add(int32_t sample, int32_t row, float gain) {
  samples.push_back(sample);
  rows.push_back(row);
  gains.push_back(gain);
}

Status FeatureToTriples(const CooFeature& feature, Combiner combiner, Triples* triples) {
  if (feature.sample_count < 0 || feature.sample_count > kMaxInt) {
    return InvalidArgumentError("sample_count", "must be at least 0 and at most " +
                                                    std::to_string(kMaxInt) + ", is " +
                                                    std::to_string(feature.sample_count));
  }
  std::vector<int32_t> samples;
  OPWRIGHT_RETURN_IF_ERROR(ReadSamples(feature, &samples));
  triples->Reserve(feature.id_count);
  // The triples of a sample lie side by side: those from `first` on are of the last one.
  int64_t first = 0;
  double sum = 0;
  const auto divide = [&]() -> Status {
    const double below = combiner == Combiner::kSqrtN ? std::sqrt(sum) : sum;
    for (; first < triples->size(); ++first) {
      float& gain = triples->gains[first];
      if (combiner != Combiner::kSum) {
        gain = below == 0 ? 0.f : static_cast<float>(gain / below);
      }
      if (std::isfinite(gain)) continue;
      return InvalidArgumentError("weights",
                                  "must combine to finite gains in float32, those of sample " +
                                      std::to_string(triples->samples[first]) + " and id " +
                                      std::to_string(triples->rows[first]) + " do not");
    }
    sum = 0;
    return OkStatus();
  };
  for (int64_t i = 0; i < feature.id_count; ++i) {
    const int32_t id = feature.ids[i];
    if (id < 0) {
      return InvalidArgumentError("values", "ids must not be negative, number " +
                                                std::to_string(i) + " is " +
                                                std::to_string(id));
    }
    const float weight = feature.weights[feature.one_weight ? 0 : i];
    if (!std::isfinite(weight)) {
      return InvalidArgumentError("weights", "must be finite, that of id " + std::to_string(i) +
                                                 " is " + std::to_string(weight));
    }
    if (i > 0 && samples[i] != samples[i - 1]) {
      OPWRIGHT_RETURN_IF_ERROR(divide());
    }
    const double exact = weight;
    if (combiner == Combiner::kMean) sum += exact;
    if (combiner == Combiner::kSqrtN) sum += exact * exact;
    if (triples->size() > 0 && triples->samples.back() == samples[i] &&
        triples->rows.back() == id) {
      triples->gains.back() += weight;
    } else {
      triples->Add(samples[i], id, weight);
    }
  }
  return divide();
}

Status CheckStacking(const CooStacking& stacking) {
  // What names a place is an int32 there, and only a shift may be negative.
  const struct {
    const char* name;
    int64_t value, least;
  } places[] = {{"sample_count", stacking.sample_count, 1},
                {"num_sc_per_chip", stacking.sc_per_chip, 1},
                {"row_offset", stacking.row_offset, 0},
                {"col_offset", stacking.col_offset, 0},
                {"col_shift", stacking.col_shift, std::numeric_limits<int32_t>::min()},
                {"num_sc_shards", stacking.shards, 1},
                {"stacked_table_sample_count", stacking.stacked_samples, 0}};
  for (const auto& [name, value, least] : places) {
    if (value >= least && value <= kMaxInt) continue;
    return InvalidArgumentError(name, "must be at least " + std::to_string(least) +
                                          " and at most " + std::to_string(kMaxInt) + ", is " +
                                          std::to_string(value));
  }
  if ((stacking.shards & (stacking.shards - 1)) != 0) {
    return InvalidArgumentError(
        "num_sc_shards", "must be a power of two, is " + std::to_string(stacking.shards));
  }
  if (stacking.sample_count % stacking.sc_per_chip != 0) {
    return InvalidArgumentError("sample_count",
                                "must be a multiple of num_sc_per_chip, which is " +
                                    std::to_string(stacking.sc_per_chip) + ", is " +
                                    std::to_string(stacking.sample_count));
  }
  // The last sample of the last SparseCore.
  const Checked last =
      Checked(stacking.row_offset) + stacking.stacked_samples + stacking.sample_count;
  if (!last.AtMost(kMaxInt)) {
    return InvalidArgumentError("stacked_table_sample_count",
                                "with row_offset and sample_count it must fit in "
                                "int32, is " +
                                    std::to_string(stacking.stacked_samples));
  }
  return OkStatus();
}

Status StackTriples(const CooStacking& stacking, Triples* triples,
                    std::vector<int64_t>* begins) {
  const int64_t samples = stacking.sample_count / stacking.sc_per_chip;
  const int64_t offset = stacking.row_offset / stacking.sc_per_chip;
  const int64_t stacked = stacking.stacked_samples / stacking.sc_per_chip;
  begins->assign(stacking.sc_per_chip + 1, triples->size());
  int64_t core = 0;
  (*begins)[0] = 0;
  for (int64_t i = 0; i < triples->size(); ++i) {
    int32_t& sample = triples->samples[i];
    while (core < sample / samples) (*begins)[++core] = i;
    sample = static_cast<int32_t>(sample % samples + offset + core * stacked);
    const int64_t id = triples->rows[i];
    const int64_t column = ((id + stacking.col_shift) & (stacking.shards - 1)) +
                           (id & ~(stacking.shards - 1)) + stacking.col_offset;
    if (column > kMaxInt) {
      return InvalidArgumentError(
          "values", "the id " + std::to_string(id) + " with col_offset " +
                        std::to_string(stacking.col_offset) + " does not fit in int32");
    }
    triples->rows[i] = static_cast<int32_t>(column);
  }
  return OkStatus();
}

Status MergeFeatures(const std::vector<TriplesView>& features,
                     const std::vector<int32_t>& col_offsets, int64_t shards,
                     int64_t vocabulary, ShardedTriples* merged) {
  std::map<int32_t, std::vector<size_t>> tables;
  Checked sum = 0;
  for (size_t i = 0; i < features.size(); ++i) {
    tables[col_offsets[i]].push_back(i);
    sum += features[i].size;
  }
  const int64_t all = sum.value();
  if (!sum.AtMost(kMaxInt)) {
    return InvalidArgumentError("row_ids_list", "there are " + std::to_string(all) +
                                                    " triples, too many for int32 positions");
  }
  Triples& triples = merged->triples;
  triples.Reserve(all);
  merged->ids.assign(shards, 0);
  merged->distinct_rows.assign(shards, 0);
  std::vector<uint64_t> items;
  std::vector<int32_t> samples;
  std::vector<float> gains;
  for (const auto& [offset, members] : tables) {
    items.clear();
    samples.clear();
    gains.clear();
    for (const size_t member : members) {
      const TriplesView& feature = features[member];
      for (int64_t i = 0; i < feature.size; ++i) {
        // Read once: what is checked is used.
        const int32_t sample = feature.samples[i], row = feature.rows[i];
        if (sample < 0) {
          return InvalidArgumentError(At("row_ids_list", member),
                                      "samples must not be negative, number " +
                                          std::to_string(i) + " is " + std::to_string(sample));
        }
        if (row < 0 || row >= vocabulary) {
          return InvalidArgumentError(
              At("col_ids_list", member),
              "rows must be at least 0 and below table_vocab_size, which is " +
                  std::to_string(vocabulary) + "; number " + std::to_string(i) + " is " +
                  std::to_string(row));
        }
        items.push_back(Item(row, static_cast<int64_t>(items.size())));
        samples.push_back(sample);
      }
      gains.insert(gains.end(), feature.gains, feature.gains + feature.size);
    }
    SortByUpperHalf(&items);
    int32_t last_row = -1, last_sample = -1;
    for (const uint64_t item : items) {
      const int32_t row = static_cast<int32_t>(item >> 32);
      const uint32_t position = static_cast<uint32_t>(item);
      const int32_t sample = samples[position];
      if (row == last_row && sample == last_sample) {
        triples.gains.back() += gains[position];
        continue;
      }
      triples.Add(sample, row, gains[position]);
      ++merged->ids[row & (shards - 1)];
      if (row != last_row) ++merged->distinct_rows[row & (shards - 1)];
      last_row = row;
      last_sample = sample;
    }
  }
  return OkStatus();
}

void DealToShards(const ShardedTriples& merged, int64_t samples, int32_t* id_counts,
                  int32_t* out_samples, int32_t* out_rows, float* out_gains) {
  const int32_t shards = static_cast<int32_t>(merged.ids.size());
  id_counts[0] = 0;
  for (int32_t i = 0; i < shards; ++i) id_counts[i + 1] = id_counts[i] + merged.ids[i];
  std::vector<int32_t> next(id_counts, id_counts + shards);
  const Triples& triples = merged.triples;
  for (int64_t i = 0; i < triples.size(); ++i) {
    const int32_t at = next[triples.rows[i] % shards]++;
    out_samples[at] = static_cast<int32_t>(triples.samples[i] % samples);
    out_rows[at] = triples.rows[i] / shards;
    out_gains[at] = triples.gains[i];
  }
}

std::vector<int64_t> MinibatchEnds(int64_t splits) {
  std::vector<int64_t> ends;
  // Level l of the tree has 2^l nodes; each one halves its part of the divisions.
  int bit = 0;
  for (int level = 0; level < kDivisionLevels; ++level) {
    const int64_t half = kDivisions >> (level + 1);
    for (int64_t node = 0; node < (int64_t{1} << level); ++node, ++bit) {
      if ((splits >> bit) & 1) ends.push_back((2 * node + 1) * half);
    }
  }
  ends.push_back(kDivisions);
  std::sort(ends.begin(), ends.end());
  return ends;
}

Status CheckCsrSources(const CsrShape& shape, int64_t splits,
                       const std::vector<CsrSource>& sources) {
  if (shape.capacity % kSparseCoreAlignment != 0 || shape.capacity > kMaxInt) {
    return InvalidArgumentError(
        "max_ids_per_chip_per_sample",
        "times sample_count_per_sc and num_sc_per_chip it must be a multiple of " +
            std::to_string(kSparseCoreAlignment) + " that fits in int32, is " +
            std::to_string(shape.capacity));
  }
  if (splits < 0) {
    return InvalidArgumentError("splits", "must not be negative, is " + std::to_string(splits));
  }
  const int64_t minibatches = static_cast<int64_t>(MinibatchEnds(splits).size());
  if (minibatches > shape.max_minibatches) {
    return InvalidArgumentError("splits", "make " + std::to_string(minibatches) +
                                              " minibatches, max_minibatches_per_sc is " +
                                              std::to_string(shape.max_minibatches));
  }
  const int64_t whole = shape.shards + 1, divided = shape.shards * kDivisions + 1;
  for (size_t i = 0; i < sources.size(); ++i) {
    const std::string name = At("id_counts_list", i);
    const CsrSource& source = sources[i];
    if (source.id_counts_size != whole && source.id_counts_size != divided) {
      return InvalidArgumentError(name, "must have " + std::to_string(whole) +
                                            " elements, or " + std::to_string(divided) +
                                            " with minibatches, has " +
                                            std::to_string(source.id_counts_size));
    }
    if (source.id_counts_size != sources[0].id_counts_size) {
      return InvalidArgumentError(name,
                                  "must have as many elements as the first one, which has " +
                                      std::to_string(sources[0].id_counts_size) + ", has " +
                                      std::to_string(source.id_counts_size));
    }
    if (minibatches > 1 && source.id_counts_size != divided) {
      return InvalidArgumentError(name, "must have " + std::to_string(divided) +
                                            " elements for " + std::to_string(minibatches) +
                                            " minibatches, has " +
                                            std::to_string(source.id_counts_size));
    }
    int64_t last = 0;
    for (int64_t k = 0; k < source.id_counts_size; ++k) {
      if (source.id_counts[k] < last || source.id_counts[k] > source.triples.size) {
        return InvalidArgumentError(
            name, "must ascend from 0 to at most the number of triples, which is " +
                      std::to_string(source.triples.size) + "; number " + std::to_string(k) +
                      " is " + std::to_string(source.id_counts[k]));
      }
      last = source.id_counts[k];
    }
  }
  return OkStatus();
}

Status PackCsr(const CsrShape& shape, int64_t splits, bool drop,
               const std::vector<CsrSource>& sources, CsrBuffers* out) {
  const std::vector<int64_t> ends = MinibatchEnds(splits);
  int64_t pointer = 0, at = 0, packed = 0, all = 0;
  for (const CsrSource& source : sources) all += source.id_counts[source.id_counts_size - 1];
  const auto pad = [out, &at](int64_t to) {
    std::fill(out->samples + at, out->samples + to, kSparseCorePad);
    std::fill(out->rows + at, out->rows + to, kSparseCorePad);
    std::fill(out->gains + at, out->gains + to, static_cast<float>(kSparseCorePad));
    at = to;
  };
  for (const CsrSource& source : sources) {
    // Without minibatches id_counts knows of one division.
    const bool divided = source.id_counts_size == shape.shards * kDivisions + 1;
    int64_t begin_division = 0;
    for (const int64_t end_division : ends) {
      for (int64_t shard = 0; shard < shape.shards; ++shard) {
        const int32_t* const counts = source.id_counts + shard * (divided ? kDivisions : 1);
        const int64_t begin = counts[divided ? begin_division : 0];
        int64_t count = counts[divided ? end_division : 1] - begin;
        if (at + count > shape.capacity) {
          if (!drop) {
            return InvalidArgumentError(
                "max_ids_per_chip_per_sample",
                "makes room for " + std::to_string(shape.capacity) +
                    " triples, padding included; " + std::to_string(all - packed) + " of " +
                    std::to_string(all) + " do not fit, and allow_id_dropping is not set");
          }
          count = shape.capacity - at;
        }
        std::copy_n(source.triples.samples + begin, count, out->samples + at);
        std::copy_n(source.triples.rows + begin, count, out->rows + at);
        std::copy_n(source.triples.gains + begin, count, out->gains + at);
        at += count;
        packed += count;
        out->row_pointers[pointer++] = static_cast<int32_t>(at);
        pad(RoundUp(at));
      }
      while (pointer % kSparseCoreAlignment != 0) {
        out->row_pointers[pointer++] = static_cast<int32_t>(at);
      }
      begin_division = end_division;
    }
  }
  out->row_pointers_size = pointer;
  out->ids_size = at;
  out->minibatches = static_cast<int64_t>(ends.size());
  out->dropped = all - packed;
  const int64_t pointers =
      shape.max_minibatches * static_cast<int64_t>(sources.size()) * shape.stride();
  std::fill(out->row_pointers + pointer, out->row_pointers + pointers,
            static_cast<int32_t>(at));
  pad(shape.capacity);
  return OkStatus();
}

Status ReadCsr(const CsrView& csr, int64_t samples, int64_t table_rows, Triples* triples) {
  const int64_t shards = csr.sparse_cores;
  const int64_t stride = CsrShape{shards, 0, 0}.stride();
  const int64_t used = csr.row_pointers_size / stride / csr.sparse_cores;
  if (csr.minibatches < 1 || csr.minibatches > used) {
    return InvalidArgumentError("num_minibatches_per_physical_sparse_core",
                                "must be at least 1 and at most " + std::to_string(used) +
                                    ", for which row_pointers has room with " +
                                    std::to_string(shards) + " SparseCores, is " +
                                    std::to_string(csr.minibatches));
  }
  const int64_t core_samples = samples / csr.sparse_cores;
  const int64_t shard_rows = table_rows / shards;
  const int32_t* next = csr.row_pointers;
  int64_t at = 0;
  for (int64_t core = 0; core < csr.sparse_cores; ++core) {
    for (int64_t batch = 0; batch < csr.minibatches; ++batch) {
      for (int64_t shard = 0; shard < stride; ++shard, ++next) {
        const auto pointer = [&] {
          return "number " + std::to_string(next - csr.row_pointers);
        };
        const int64_t end = *next;  // Read once: what is checked is used.
        // A pointer that pads ends an empty run, which begins where it would be aligned.
        if (end < at || end > csr.triples.size) {
          return InvalidArgumentError("row_pointers",
                                      "must ascend from run to run, which begin at multiples "
                                      "of 8, to at most the number of triples, which is " +
                                          std::to_string(csr.triples.size) + "; " + pointer() +
                                          " is " + std::to_string(end) + " after " +
                                          std::to_string(at));
        }
        const int64_t count = end - at;
        if (shard >= shards && count > 0) {
          return InvalidArgumentError("row_pointers",
                                      pointer() + " belongs to shard " + std::to_string(shard) +
                                          ", this device has " + std::to_string(shards) +
                                          "; rows of other devices are out of its reach");
        }
        if (count > csr.limits.ids) {
          return InvalidArgumentError("max_ids_per_sparse_core",
                                      "is " + std::to_string(csr.limits.ids) + ", SparseCore " +
                                          std::to_string(core) + " asks shard " +
                                          std::to_string(shard) + " for " +
                                          std::to_string(count) + " triples");
        }
        int64_t distinct = 0;
        for (int64_t i = at; i < end; ++i) {
          const int32_t sample = csr.triples.samples[i], row = csr.triples.rows[i];
          if (sample < 0 || sample >= core_samples) {
            return InvalidArgumentError(
                "sorted_sample_ids", "must be at least 0 and below a SparseCore's " +
                                         std::to_string(core_samples) + " samples; number " +
                                         std::to_string(i) + " is " + std::to_string(sample));
          }
          if (row < 0 || row >= shard_rows) {
            return InvalidArgumentError("sorted_token_ids",
                                        "must be at least 0 and below a shard's " +
                                            std::to_string(shard_rows) + " rows; number " +
                                            std::to_string(i) + " is " + std::to_string(row));
          }
          const float gain = csr.triples.gains[i];
          if (!std::isfinite(gain)) {
            return InvalidArgumentError(
                "sorted_gains",
                "must be finite, number " + std::to_string(i) + " is " + std::to_string(gain));
          }
          if (i == at || row != csr.triples.rows[i - 1]) ++distinct;
          triples->Add(static_cast<int32_t>(core * core_samples + sample),
                       static_cast<int32_t>(shard * shard_rows + row), gain);
        }
        if (distinct > csr.limits.distinct_rows) {
          return InvalidArgumentError("max_unique_ids_per_sparse_core",
                                      "is " + std::to_string(csr.limits.distinct_rows) +
                                          ", SparseCore " + std::to_string(core) +
                                          " asks shard " + std::to_string(shard) + " for " +
                                          std::to_string(distinct) + " rows");
        }
        at = RoundUp(end);
      }
    }
  }
  return OkStatus();
}

namespace {

// Positions by key, and where each run of equal keys begins, and their number.
struct Groups {
  std::vector<int32_t> order;
  std::vector<int64_t> begins;

  int64_t size() const { return static_cast<int64_t>(begins.size()) - 1; }
};

Groups GroupByKey(const std::vector<int32_t>& keys) {
  std::vector<uint64_t> items(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) items[i] = Item(keys[i], static_cast<int64_t>(i));
  SortByUpperHalf(&items);
  Groups groups;
  groups.order.resize(keys.size());
  for (size_t i = 0; i < items.size(); ++i) {
    groups.order[i] = static_cast<int32_t>(items[i]);
    if (i == 0 || (items[i] >> 32) != (items[i - 1] >> 32)) {
      groups.begins.push_back(static_cast<int64_t>(i));
    }
  }
  groups.begins.push_back(static_cast<int64_t>(items.size()));
  return groups;
}

// Runs task(first, last) over ranges of runs of rows, which begin at `begins`; the last one
// ends at its end. The ranges have about as many rows each.
template <class Task>
void ForRuns(const std::vector<int64_t>& begins, int64_t width, ExecutionContext& exec,
             const Task& task) {
  constexpr int64_t kElements = 16 << 10;  // Of a task that is worth it.
  const int64_t runs = static_cast<int64_t>(begins.size()) - 1;
  // A run costs something even if it is empty.
  const int64_t all = begins.back() + runs;
  const int64_t tasks = std::min({runs, int64_t{8} * exec.Threads(),
                                  1 + all / (1 + kElements / std::max<int64_t>(1, width))});
  if (tasks <= 0) return;
  const auto first = [&](int64_t task_number) {
    int64_t low = 0, high = runs;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (begins[middle] + middle < task_number * all / tasks) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  };
  exec.For(tasks, [&](int64_t i) { task(first(i), i + 1 == tasks ? runs : first(i + 1)); });
}

// Triples by sample: what lies from offsets[sample] to offsets[sample + 1].
struct BySample {
  std::vector<int64_t> offsets, rows;
  std::vector<float> gains;
};

BySample SortBySample(const Triples& triples, int64_t samples) {
  BySample sorted;
  sorted.offsets.assign(samples + 1, 0);
  for (const int32_t sample : triples.samples) ++sorted.offsets[sample + 1];
  for (int64_t i = 0; i < samples; ++i) sorted.offsets[i + 1] += sorted.offsets[i];
  sorted.rows.resize(triples.size());
  sorted.gains.resize(triples.size());
  std::vector<int64_t> next(sorted.offsets.begin(), sorted.offsets.end() - 1);
  for (int64_t i = 0; i < triples.size(); ++i) {
    const int64_t at = next[triples.samples[i]]++;
    sorted.rows[at] = triples.rows[i];
    sorted.gains[at] = triples.gains[i];
  }
  return sorted;
}

}  // namespace

void SumRows(const Triples& triples, const float* table, int64_t width,
             const Quantization& quantization, int64_t samples, float* activations,
             ExecutionContext& exec) {
  if (width == 0) return;
  const BySample sorted = SortBySample(triples, samples);
  LookupCall call{};
  call.table = table;
  call.stride = call.dimension = call.out_stride = width;
  call.offsets = sorted.offsets.data();
  call.indices = sorted.rows.data();
  call.per_sample_weights = sorted.gains.data();
  call.quantization = quantization.enabled ? &quantization : nullptr;
  call.out = activations;
  const RowKernels& kernels = SelectRowKernels();
  ForRuns(sorted.offsets, width, exec, [&](int64_t first, int64_t last) {
    LookupCall part = call;
    part.first = first;
    part.end = last;
    kernels.lookup(part);
  });
}

Status SumRows(const Triples& triples, const int32_t* table, int64_t width, int64_t samples,
               int32_t* activations, ExecutionContext& exec) {
  for (int64_t i = 0; i < triples.size(); ++i) {
    const float gain = triples.gains[i];
    if (gain != std::floor(gain) || std::abs(gain) > static_cast<float>(1 << 24)) {
      return InvalidArgumentError("sorted_gains",
                                  "must be whole numbers of at most 2^24 for tables of int32, "
                                  "one is " +
                                      std::to_string(gain));
    }
  }
  const BySample sorted = SortBySample(triples, samples);
  ForRuns(sorted.offsets, width, exec, [&](int64_t first, int64_t last) {
    std::fill(activations + first * width, activations + last * width, 0);
    for (int64_t sample = first; sample < last; ++sample) {
      int32_t* const sum = activations + sample * width;
      for (int64_t i = sorted.offsets[sample]; i < sorted.offsets[sample + 1]; ++i) {
        const int32_t* const row = table + sorted.rows[i] * width;
        const uint32_t gain = static_cast<uint32_t>(static_cast<int32_t>(sorted.gains[i]));
        for (int64_t k = 0; k < width; ++k) {
          sum[k] = static_cast<int32_t>(static_cast<uint32_t>(sum[k]) +
                                        gain * static_cast<uint32_t>(row[k]));
        }
      }
    }
  });
  return OkStatus();
}

std::optional<WrongNumber> UpdateRows(const Triples& triples, const float* gradients,
                                      int64_t width, Optimizer optimizer, const Hyper& hyper,
                                      float* const* tables, ExecutionContext& exec) {
  if (width == 0) return std::nullopt;
  const Groups groups = GroupByKey(triples.rows);
  const OptimizerFacts& facts = FactsOf(optimizer);
  const int64_t parts = 1 + facts.slot_count();
  const RowKernels& kernels = SelectRowKernels();
  const auto update = kernels.update[static_cast<int>(optimizer)];
  const auto range = [&facts](int64_t part) { return facts.range(part - 1); };
  std::atomic<bool> refused{false};
  ForRuns(groups.begins, width, exec, [&](int64_t first, int64_t last) {
    // The kernels want a row's slots next to each other; here each has a table of its own. So
    // some rows at a time are brought together, updated and put back.
    const int64_t most = std::max<int64_t>(1, (64 << 10) / (4 * parts * width));
    std::vector<float> together(most * parts * width);
    std::vector<double> sum(width);
    std::vector<int64_t> rows(most);
    std::vector<int32_t> offsets(most + 1);
    std::vector<Contribution> contributions;
    for (int64_t i = 0; i < most; ++i) rows[i] = i;
    UpdateCall call{};
    call.table = {together.data(), parts * width, together.data() + width, parts * width,
                  width};
    call.rows = rows.data();
    call.accumulate = true;
    call.hyper = &hyper;
    call.sum = sum.data();
    for (int64_t group = first; group < last; group += call.count) {
      call.count = std::min(most, last - group);
      // Calls visit(a row of a table, its place among those brought together).
      const auto for_rows = [&](const auto& visit) {
        for (int64_t i = 0; i < call.count; ++i) {
          const int64_t row = triples.rows[groups.order[groups.begins[group + i]]];
          for (int64_t part = 0; part < parts; ++part) {
            visit(tables[part] + row * width, together.data() + (i * parts + part) * width);
          }
        }
      };
      for_rows([width](const float* row, float* place) { std::copy_n(row, width, place); });
      // While they are in the cache.
      for (int64_t part = 0; part < parts; ++part) {
        if (!kernels.within(range(part), call.count, parts * width, width,
                            together.data() + part * width)) {
          refused = true;
        }
      }
      if (refused) return;
      contributions.clear();
      for (int64_t i = 0; i < call.count; ++i) {
        for (int64_t k = groups.begins[group + i]; k < groups.begins[group + i + 1]; ++k) {
          const int32_t triple = groups.order[k];
          contributions.push_back(
              {gradients + triples.samples[triple] * width, triples.gains[triple]});
        }
        offsets[i + 1] = static_cast<int32_t>(contributions.size());
      }
      call.offsets = offsets.data();
      call.contributions = contributions.data();
      update(call);
      for_rows([width](float* row, const float* place) { std::copy_n(place, width, row); });
    }
  });
  if (!refused) return std::nullopt;
  // What is wrong is where it was: those rows have not been put back.
  for (int64_t group = 0; group < groups.size(); ++group) {
    const int64_t row = triples.rows[groups.order[groups.begins[group]]];
    for (int64_t part = 0; part < parts; ++part) {
      for (int64_t k = 0; k < width; ++k) {
        const float value = tables[part][row * width + k];
        if (!Within(range(part), value)) return WrongNumber{part, row, k, value, range(part)};
      }
    }
  }
  return WrongNumber{};  // Somebody else writes to the tables.
}

Status RowsToTriples(const int32_t* indices, int64_t count, int64_t table_rows,
                     Triples* triples) {
  if (count > kMaxInt) {
    return InvalidArgumentError(
        "indices", "there are " + std::to_string(count) + ", too many for int32 positions");
  }
  std::vector<int32_t> rows(indices, indices + count);
  for (int64_t i = 0; i < count; ++i) {
    if (rows[i] < 0 || rows[i] >= table_rows) {
      return InvalidArgumentError("indices", "must be at least 0 and below the table's " +
                                                 std::to_string(table_rows) + " rows; number " +
                                                 std::to_string(i) + " is " +
                                                 std::to_string(rows[i]));
    }
  }
  const Groups groups = GroupByKey(rows);
  triples->Reserve(groups.size());
  for (int64_t group = 0; group < groups.size(); ++group) {
    const int32_t last = groups.order[groups.begins[group + 1] - 1];
    triples->Add(last, rows[last], 1.0f);
  }
  return OkStatus();
}

}  // namespace opwright::sparsecore
