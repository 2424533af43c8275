#include "sparsecore/csr.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/text.h"
#include "embedding/optimizers.h"
#include "sparsecore/parallel.h"

namespace opwright::sparsecore {

using embedding::Number;

namespace {

constexpr char kCapacity[] = "max_ids_per_chip_per_sample";
constexpr char kRowPointers[] = "row_pointers";

// Writes runs of triples and their row pointers into the buffers, one after the other.
class CsrWriter {
 public:
  CsrWriter(const CsrShape& shape, CsrBuffers* out) : shape_(shape), out_(out) {}

  // Adds a minibatch that consists of the divisions `begin` to `end` - 1 of the vocabulary.
  void AddMinibatch(const CsrSource& source, int64_t begin, int64_t end) {
    // Without minibatches, id_counts has only one division for each shard.
    const bool divided = source.id_counts_size == shape_.shards * kDivisions + 1;
    for (int64_t shard = 0; shard < shape_.shards; ++shard) {
      const int32_t* const counts = source.id_counts + shard * (divided ? kDivisions : 1);
      const int64_t first = counts[divided ? begin : 0];
      AddRun(source.triples, first, counts[divided ? end : 1] - first);
    }
    while (pointer_ % kSparseCoreAlignment != 0) AddPointer();
  }

  // Fills the unused part of the buffers.
  void Finish(int64_t minibatches, int64_t pointers, int64_t triples) {
    out_->row_pointers_size = pointer_;
    out_->ids_size = at_;
    out_->needed_size = needed_;
    out_->minibatches = minibatches;
    out_->triples = triples;
    out_->dropped = triples - packed_;
    while (pointer_ < pointers) AddPointer();
    Pad(shape_.capacity);
  }

 private:
  void AddRun(const TriplesView& triples, int64_t first, int64_t count) {
    needed_ = AlignUp(needed_ + count);
    count = std::min(count, shape_.capacity - at_);
    std::copy_n(triples.samples + first, count, out_->samples + at_);
    std::copy_n(triples.rows + first, count, out_->rows + at_);
    std::copy_n(triples.gains + first, count, out_->gains + at_);
    at_ += count;
    packed_ += count;
    AddPointer();
    Pad(AlignUp(at_));
  }

  void AddPointer() { out_->row_pointers[pointer_++] = static_cast<int32_t>(at_); }

  void Pad(int64_t end) {
    std::fill(out_->samples + at_, out_->samples + end, kSparseCorePad);
    std::fill(out_->rows + at_, out_->rows + end, kSparseCorePad);
    std::fill(out_->gains + at_, out_->gains + end, static_cast<float>(kSparseCorePad));
    at_ = end;
  }

  const CsrShape& shape_;
  CsrBuffers* const out_;
  int64_t pointer_ = 0, at_ = 0, packed_ = 0, needed_ = 0;
};

// Reads runs of triples. First finds the runs by their pointers, and then reads the triples of
// the runs, which threads can do concurrently.
class CsrReader {
 public:
  CsrReader(const CsrView& csr, int64_t samples, int64_t table_rows, Triples* triples)
      : csr_(csr),
        core_samples_(samples / csr.sparse_cores),
        shard_rows_(table_rows / csr.shards()),
        first_(triples->size()),
        triples_(triples) {}

  Status FindRun(int64_t core, int64_t shard) {
    int64_t end = 0;
    OPWRIGHT_RETURN_IF_ERROR(ReadPointer(shard, &end));
    const int64_t count = end - at_;
    if (count > csr_.limits.ids) {
      return InvalidArgumentError("max_ids_per_sparse_core",
                                  StrCat("is ", csr_.limits.ids, ", SparseCore ", core,
                                         " requests ", count, " triples of shard ", shard));
    }
    if (count > 0) {
      runs_.push_back({core, shard, at_});
      begins_.push_back(begins_.back() + count);
    }
    at_ = AlignUp(end);
    return OkStatus();
  }

  Status ReadRuns(ExecutionContext& exec) {
    triples_->Resize(first_ + begins_.back());
    if (csr_.positions) triples_->positions.resize(triples_->samples.size());
    std::vector<Status> statuses(runs_.size());
    ParallelForGroups(begins_, 1, exec, [&](int64_t first, int64_t last) {
      for (int64_t run = first; run < last; ++run) statuses[run] = ReadRun(run);
    });
    for (const Status& of_run : statuses) OPWRIGHT_RETURN_IF_ERROR(of_run);
    return OkStatus();
  }

 private:
  struct Run {
    int64_t core, shard;
    int64_t begin;  // Index of the first triple in the buffers.
  };

  Status ReadRun(int64_t number) const {
    const auto [core, shard, begin] = runs_[number];
    const int64_t count = begins_[number + 1] - begins_[number];
    const int64_t first_sample = csr_.first_sample + core * core_samples_;
    const int64_t first_row = shard * shard_rows_;
    const int64_t to = first_ + begins_[number];
    int32_t* const samples = triples_->samples.data() + to;
    int32_t* const rows = triples_->rows.data() + to;
    float* const gains = triples_->gains.data() + to;
    int64_t distinct = 0;
    int32_t last_row = -1;
    for (int64_t i = 0; i < count; ++i) {
      // Each number is read only once, because another thread may change the input.
      const int32_t sample = csr_.triples.samples[begin + i],
                    row = csr_.triples.rows[begin + i];
      const float gain = csr_.triples.gains[begin + i];
      if (sample < 0 || sample >= core_samples_ || row < 0 || row >= shard_rows_ ||
          !std::isfinite(gain)) {
        return TripleError(begin + i, sample, row, gain);
      }
      samples[i] = static_cast<int32_t>(first_sample + sample);
      rows[i] = static_cast<int32_t>(first_row + row);
      gains[i] = gain;
      distinct += row != std::exchange(last_row, row);
    }
    if (csr_.positions) {
      std::copy_n(csr_.positions + begin, count, triples_->positions.data() + to);
    }
    if (distinct > csr_.limits.distinct_rows) {
      return InvalidArgumentError(
          "max_unique_ids_per_sparse_core",
          StrCat("is ", csr_.limits.distinct_rows, ", SparseCore ", core, " requests ",
                 distinct, " rows of shard ", shard));
    }
    return OkStatus();
  }

  // Reads the end of the next run, which is a run of `shard` or of padding.
  Status ReadPointer(int64_t shard, int64_t* end) {
    const int64_t number = next_++;
    // Each pointer is read only once, because another thread may change the input.
    *end = csr_.row_pointers[number];
    // A pointer of padding ends an empty run. The run begins at the next multiple of 8.
    if (*end < at_ || *end > csr_.triples.size) {
      return InvalidArgumentError(
          kRowPointers,
          StrCat("must ascend from run to run, which begin at multiples of 8, to at most the "
                 "number of triples, which is ",
                 csr_.triples.size, "; the one at position ", number, " is ", *end, " after ",
                 at_));
    }
    if (shard >= csr_.shards() && *end > at_) {
      return InvalidArgumentError(
          kRowPointers,
          StrCat("number ", number, " belongs to shard ", shard, ", this device has ",
                 csr_.shards(), "; rows of other devices are out of its reach"));
    }
    return OkStatus();
  }

  Status TripleError(int64_t i, int32_t sample, int32_t row, float gain) const {
    if (sample < 0 || sample >= core_samples_) {
      return InvalidArgumentError(
          "sorted_sample_ids",
          StrCat("must be at least 0 and below a SparseCore's ", core_samples_,
                 " samples; the one at position ", i, " is ", sample));
    }
    if (row < 0 || row >= shard_rows_) {
      return InvalidArgumentError("sorted_token_ids",
                                  StrCat("must be at least 0 and below a shard's ", shard_rows_,
                                         " rows; the one at position ", i, " is ", row));
    }
    return InvalidArgumentError("sorted_gains", StrCat("must be finite; the one at position ",
                                                       i, " is ", Number(gain)));
  }

  const CsrView& csr_;
  const int64_t core_samples_, shard_rows_;
  const int64_t first_;  // The number of triples that were there before.
  Triples* const triples_;
  int64_t next_ = 0;                   // Index of the next row pointer.
  int64_t at_ = 0;                     // Index of the next triple in the buffers.
  std::vector<Run> runs_;              // Those that are not empty.
  std::vector<int64_t> begins_ = {0};  // The first triple of each run, without padding.
};

}  // namespace

std::vector<int64_t> MinibatchEnds(int64_t splits) {
  std::vector<int64_t> ends;
  for (int level = 0; level < kDivisionLevels; ++level) {
    for (int64_t node = int64_t{1} << level; node < int64_t{2} << level; ++node) {
      // The second child begins in the middle of its parent.
      if ((splits >> (node - 1)) & 1) ends.push_back(FirstDivision(2 * node + 1, level + 1));
    }
  }
  ends.push_back(kDivisions);
  std::sort(ends.begin(), ends.end());
  return ends;
}

int64_t MaskOfCuts(const std::vector<int64_t>& cuts) {
  int64_t mask = 0;
  for (const int64_t cut : cuts) {
    int64_t child = cut + kDivisions;
    while (child % 2 == 0) child /= 2;
    mask |= int64_t{1} << (child / 2 - 1);
  }
  return mask;
}

Status CheckIdCounts(const std::string& name, const CsrSource& source) {
  int64_t last = 0;
  for (int64_t i = 0; i < source.id_counts_size; ++i) {
    const int64_t count = source.id_counts[i];
    if (count < last || count > source.triples.size) {
      return InvalidArgumentError(
          name, StrCat("must ascend from 0 to at most the number of triples, which is ",
                       source.triples.size, "; the one at position ", i, " is ", count));
    }
    last = count;
  }
  return OkStatus();
}

Status CheckCsrShape(const CsrShape& shape, int64_t splits) {
  if (shape.capacity % kSparseCoreAlignment != 0 || shape.capacity > kMaxInt32) {
    return InvalidArgumentError(
        kCapacity, StrCat("times the samples of a chip it must be a multiple of ",
                          kSparseCoreAlignment, " that fits in int32, is ", shape.capacity));
  }
  if (splits < 0) {
    return InvalidArgumentError("splits", StrCat("must not be negative, is ", splits));
  }
  const int64_t minibatches = static_cast<int64_t>(MinibatchEnds(splits).size());
  if (minibatches > shape.max_minibatches) {
    return InvalidArgumentError(
        "splits", StrCat("make ", minibatches, " minibatches, max_minibatches_per_sc is ",
                         shape.max_minibatches, "; set max_minibatches_per_sc to at least ",
                         minibatches));
  }
  return OkStatus();
}

Status CheckCsrSources(const CsrShape& shape, int64_t splits,
                       const std::vector<CsrSource>& sources) {
  OPWRIGHT_RETURN_IF_ERROR(CheckCsrShape(shape, splits));
  const int64_t minibatches = static_cast<int64_t>(MinibatchEnds(splits).size());
  const int64_t undivided = shape.shards + 1, divided = shape.shards * kDivisions + 1;
  for (size_t i = 0; i < sources.size(); ++i) {
    const std::string name = StrCat("id_counts_list[", i, "]");
    const int64_t size = sources[i].id_counts_size;
    if (size != undivided && size != divided) {
      return InvalidArgumentError(name, StrCat("must have ", undivided, " elements, or ",
                                               divided, " with minibatches, has ", size));
    }
    if (size != sources[0].id_counts_size) {
      return InvalidArgumentError(
          name, StrCat("must have as many elements as the first one, which has ",
                       sources[0].id_counts_size, ", has ", size));
    }
    if (minibatches > 1 && size != divided) {
      return InvalidArgumentError(name, StrCat("must have ", divided, " elements for ",
                                               minibatches, " minibatches, has ", size));
    }
    OPWRIGHT_RETURN_IF_ERROR(CheckIdCounts(name, sources[i]));
  }
  return OkStatus();
}

void PackCsr(const CsrShape& shape, int64_t splits, const std::vector<CsrSource>& sources,
             CsrBuffers* out) {
  const std::vector<int64_t> ends = MinibatchEnds(splits);
  int64_t triples = 0;
  for (const CsrSource& source : sources) {
    triples += source.id_counts[source.id_counts_size - 1] - source.id_counts[0];
  }
  CsrWriter writer(shape, out);
  for (const CsrSource& source : sources) {
    int64_t begin = 0;
    for (const int64_t end : ends) {
      writer.AddMinibatch(source, begin, end);
      begin = end;
    }
  }
  writer.Finish(static_cast<int64_t>(ends.size()),
                shape.max_minibatches * static_cast<int64_t>(sources.size()) * shape.stride(),
                triples);
}

Status ReadCsr(const CsrView& csr, int64_t samples, int64_t table_rows, Triples* triples,
               ExecutionContext& exec) {
  const int64_t shards = csr.shards();
  const int64_t stride = RowPointerStride(shards);
  const int64_t most = csr.row_pointers_size / stride / csr.sparse_cores;
  if (csr.minibatches < 1 || csr.minibatches > most) {
    return InvalidArgumentError(
        "num_minibatches_per_physical_sparse_core",
        StrCat("must be at least 1 and at most ", most, ", which fit into row_pointers with ",
               shards, " shards, is ", csr.minibatches));
  }
  CsrReader reader(csr, samples, table_rows, triples);
  for (int64_t core = 0; core < csr.sparse_cores; ++core) {
    for (int64_t batch = 0; batch < csr.minibatches; ++batch) {
      for (int64_t shard = 0; shard < stride; ++shard) {
        OPWRIGHT_RETURN_IF_ERROR(reader.FindRun(core, shard));
      }
    }
  }
  return reader.ReadRuns(exec);
}

}  // namespace opwright::sparsecore
