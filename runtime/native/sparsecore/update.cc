#include "sparsecore/update.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/text.h"
#include "embedding/batch.h"
#include "embedding/cpu/rows.h"
#include "sparsecore/parallel.h"
#include "sparsecore/stable_sort.h"

namespace opwright::sparsecore {

using embedding::Contribution;
using embedding::Hyper;
using embedding::Optimizer;
using embedding::OptimizerTraits;
using embedding::Range;
using embedding::RowKernels;
using embedding::TraitsOf;
using embedding::UpdateCall;

namespace {

// The data that all threads read. A group is the triples of one row.
struct Update {
  const Triples& triples;
  const Groups groups;
  const float* gradients;
  const int64_t width;
  const Hyper& hyper;
  float* const* tables;
  const OptimizerTraits& traits;
  const int64_t parts;  // The number of arrays of a row: the weights and the slots.
  const RowKernels& kernels;
  void (*const apply)(const UpdateCall&);

  int64_t row(int64_t group) const { return triples.rows[groups.order[groups.begins[group]]]; }
  Range range(int64_t part) const { return traits.range(part - 1); }
};

// Updates a few rows at a time. The kernels read a row's slots next to its weights, but here
// each slot has its own table. Rows are therefore copied to a buffer, updated there and copied
// back.
class RowUpdater {
 public:
  explicit RowUpdater(const Update& update)
      : update_(update),
        max_rows_(std::max<int64_t>(1, (64 << 10) / (4 * update.parts * update.width))),
        buffer_(max_rows_ * update.parts * update.width),
        sum_(update.width),
        rows_(max_rows_),
        offsets_(max_rows_ + 1) {
    for (int64_t i = 0; i < max_rows_; ++i) rows_[i] = i;
  }

  // Updates the rows of the groups `first` to `last` - 1, some rows at a time. Before an
  // update, sets `refused` if a value in these rows is outside its range. Once `refused` is
  // set, updates no further rows.
  void Run(int64_t first, int64_t last, std::atomic<bool>* refused) {
    for (int64_t group = first; group < last; group += max_rows_) {
      const int64_t count = std::min(max_rows_, last - group);
      ForEachPart(group, count, [this](const float* row, float* copy) {
        std::copy_n(row, update_.width, copy);
      });
      // The rows are checked here because the buffer is in the cache now.
      if (!AreInRange(count)) *refused = true;
      if (*refused) return;
      Apply(group, count);
      ForEachPart(group, count, [this](float* row, const float* copy) {
        std::copy_n(copy, update_.width, row);
      });
    }
  }

 private:
  int64_t stride() const { return update_.parts * update_.width; }

  // Calls visit(row of a table, copy of the row in the buffer).
  template <class Visit>
  void ForEachPart(int64_t group, int64_t count, const Visit& visit) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = update_.row(group + i);
      for (int64_t part = 0; part < update_.parts; ++part) {
        visit(update_.tables[part] + row * update_.width,
              buffer_.data() + i * stride() + part * update_.width);
      }
    }
  }

  bool AreInRange(int64_t count) const {
    bool good = true;
    for (int64_t part = 0; part < update_.parts; ++part) {
      good &= update_.kernels.within(update_.range(part), count, stride(), update_.width,
                                     buffer_.data() + part * update_.width);
    }
    return good;
  }

  void Apply(int64_t group, int64_t count) {
    const Triples& triples = update_.triples;
    const Groups& groups = update_.groups;
    contributions_.clear();
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t k = groups.begins[group + i]; k < groups.begins[group + i + 1]; ++k) {
        const int32_t triple = groups.order[k];
        contributions_.push_back({update_.gradients + triples.samples[triple] * update_.width,
                                  triples.gains[triple]});
      }
      offsets_[i + 1] = static_cast<int32_t>(contributions_.size());
    }
    UpdateCall call{};
    call.table = {buffer_.data(), stride(), buffer_.data() + update_.width, stride(),
                  update_.width};
    call.count = count;
    call.rows = rows_.data();
    call.offsets = offsets_.data();
    call.contributions = contributions_.data();
    call.accumulate = true;
    call.hyper = &update_.hyper;
    call.sum = sum_.data();
    update_.apply(call);
  }

  const Update& update_;
  const int64_t max_rows_;
  std::vector<float> buffer_;  // [max_rows, parts, width]
  std::vector<double> sum_;
  std::vector<int64_t> rows_;  // Row numbers in the buffer: 0, 1, ...
  std::vector<int32_t> offsets_;
  std::vector<Contribution> contributions_;
};

// Returns the first value that is outside its range. The tables still contain that value,
// because rows with such a value are not updated.
RowError FindError(const Update& update) {
  for (int64_t group = 0; group < update.groups.size(); ++group) {
    const int64_t row = update.row(group);
    for (int64_t part = 0; part < update.parts; ++part) {
      for (int64_t k = 0; k < update.width; ++k) {
        const float value = update.tables[part][row * update.width + k];
        if (!Within(update.range(part), value)) {
          return {part, row, k, value, update.range(part)};
        }
      }
    }
  }
  // No value is found if another thread has written to the tables in the meantime.
  return {};
}

}  // namespace

std::optional<RowError> UpdateRows(const Triples& triples, const float* gradients,
                                   int64_t width, Optimizer optimizer, const Hyper& hyper,
                                   float* const* tables, ExecutionContext& exec) {
  if (width == 0) return std::nullopt;
  const OptimizerTraits& traits = TraitsOf(optimizer);
  const RowKernels& kernels = embedding::SelectRowKernels();
  const Update update{triples,   GroupByKey(triples.rows),
                      gradients, width,
                      hyper,     tables,
                      traits,    1 + traits.slot_count(),
                      kernels,   kernels.update[static_cast<int>(optimizer)]};
  std::atomic<bool> refused{false};
  ParallelForGroups(update.groups.begins, width, exec, [&](int64_t first, int64_t last) {
    RowUpdater(update).Run(first, last, &refused);
  });
  if (!refused) return std::nullopt;
  return FindError(update);
}

Status RowsToTriples(const int32_t* indices, int64_t count, int64_t table_rows,
                     Triples* triples) {
  if (count > kMaxInt32) {
    return InvalidArgumentError("indices",
                                StrCat("there are ", count, ", too many for int32 positions"));
  }
  const std::vector<int32_t> rows(indices, indices + count);
  for (int64_t i = 0; i < count; ++i) {
    if (rows[i] < 0 || rows[i] >= table_rows) {
      return InvalidArgumentError(
          "indices", StrCat("must be at least 0 and below the table's ", table_rows,
                            " rows; the one at position ", i, " is ", rows[i]));
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
