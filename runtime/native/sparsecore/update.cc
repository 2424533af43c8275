#include "sparsecore/update.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/uninitialized_vector.h"
#include "embedding/batch.h"
#include "embedding/cpu/rows.h"
#include "sparsecore/parallel.h"
#include "sparsecore/stable_sort.h"

namespace opwright::sparsecore {

using embedding::Contribution;
using embedding::Hyper;
using embedding::Optimizer;
using embedding::Range;
using embedding::RowKernels;
using embedding::UpdateCall;

namespace {

constexpr int64_t kAhead = 8;  // How many rows ahead are prefetched.
// How many rows are updated at a time in place. Each time, the kernels first wait for memory.
constexpr int64_t kRowsInPlace = 2048;

void PrefetchRow(const float* row, int64_t width) {
  constexpr int64_t kLine = 64 / sizeof(float);
  for (int64_t i = 0; i < width; i += kLine) __builtin_prefetch(row + i);
}

Groups GroupByRow(const Triples& triples, ExecutionContext& exec) {
  const bool spread = embedding::SelectRowKernels().spread_updates;
  return GroupByKey(triples.rows, exec, spread ? GroupOrder::kSpread : GroupOrder::kAscending);
}

}  // namespace

// Updates a few rows at a time. The kernels read the slots of a row next to each other, but
// here each slot has its own table. Rows with several slots, and rows in several arrays, are
// therefore copied to a buffer, updated there and copied back.
class RowUpdater {
 public:
  explicit RowUpdater(const TableStep& step)
      : step_(step),
        width_(step.width()),
        parts_(step.parts()),
        in_place_(parts_ <= 2 && step.tables_[0].one()),
        kernels_(embedding::SelectRowKernels()),
        max_rows_(std::max<int64_t>(1, in_place_ ? kRowsInPlace : (64 << 10) / (4 * stride()))),
        buffer_(in_place_ ? 0 : max_rows_ * stride()),
        sum_(width_),
        rows_(in_place_ ? 0 : max_rows_),
        offsets_(max_rows_ + 1) {
    std::iota(rows_.begin(), rows_.end(), 0);
  }

  // Updates the rows of the groups `first` to `last` - 1, some rows at a time. Before an
  // update, sets `refused` if a value in these rows is outside its range. Once `refused` is
  // set, updates no further rows. Without `refused`, the rows are known to be in range.
  void Run(int64_t first, int64_t last, std::atomic<bool>* refused) {
    for (int64_t group = first; group < last; group += max_rows_) {
      const int64_t count = std::min(max_rows_, last - group);
      if (!in_place_) {
        ForEachPart(group, count,
                    [this](const float* row, float* copy) { std::copy_n(row, width_, copy); });
      }
      if (refused) {
        // The rows are checked here because they are in the cache now.
        if (!AreInRange(group, count)) *refused = true;
        if (*refused) return;
      }
      Update(group, count);
      if (in_place_) continue;
      ForEachPart(group, count,
                  [this](float* row, const float* copy) { std::copy_n(copy, width_, row); });
    }
  }

 private:
  int64_t stride() const { return parts_ * width_; }

  // Calls visit(row of a table, copy of the row in the buffer).
  template <class Visit>
  void ForEachPart(int64_t group, int64_t count, const Visit& visit) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = step_.rows()[group + i];
      const int64_t next = step_.rows()[group + std::min(i + kAhead, count - 1)];
      for (int64_t part = 0; part < parts_; ++part) {
        PrefetchRow(step_.tables_[part].row(next), width_);
        visit(step_.tables_[part].row(row), buffer_.data() + i * stride() + part * width_);
      }
    }
  }

  bool AreInRange(int64_t group, int64_t count) const {
    if (in_place_) return step_.AreInRange(group, group + count);
    bool good = true;
    for (int64_t part = 0; part < parts_; ++part) {
      good &= kernels_.within(step_.range(part), count, stride(), width_,
                              buffer_.data() + part * width_);
    }
    return good;
  }

  void Update(int64_t group, int64_t count) {
    const Triples& triples = step_.triples_;
    const Groups& groups = step_.groups_;
    const int64_t begin = groups.begins[group], end = groups.begins[group + count];
    contributions_.resize(static_cast<size_t>(end - begin));
    for (int64_t k = begin; k < end; ++k) {
      const int32_t triple = groups.order[k];
      contributions_[k - begin] = {step_.gradients_.row(triples.samples[triple]),
                                   triples.gains[triple]};
    }
    for (int64_t i = 1; i <= count; ++i) {
      offsets_[i] = static_cast<int32_t>(groups.begins[group + i] - begin);
    }
    UpdateCall call{};
    call.rows = rows_.data();
    if (in_place_) {
      call.rows = step_.rows().data() + group;
      float* const slot = parts_ == 2 ? step_.tables_[1].first() : nullptr;
      call.table = {step_.tables_[0].first(), width_, slot, width_, width_};
    } else {
      call.table = {buffer_.data(), stride(), buffer_.data() + width_, stride(), width_};
    }
    call.count = count;
    call.offsets = offsets_.data();
    call.contributions = contributions_.data();
    call.accumulate = true;
    call.hyper = &step_.hyper_;
    call.sum = sum_.data();
    kernels_.update[static_cast<int>(step_.optimizer_)](call);
  }

  const TableStep& step_;
  const int64_t width_;
  const int64_t parts_;  // The number of arrays of a row: the weights and the slots.
  const bool in_place_;
  const RowKernels& kernels_;
  const int64_t max_rows_;
  std::vector<float> buffer_;  // [max_rows, parts, width]
  std::vector<double> sum_;
  std::vector<int64_t> rows_;  // Row numbers in the buffer, 0, 1, ...
  std::vector<int32_t> offsets_;
  UninitializedVector<Contribution> contributions_;
};

TableStep::TableStep(const Triples& triples, RowArrays<const float> gradients,
                     Optimizer optimizer, const Hyper& hyper,
                     std::vector<RowArrays<float>> tables, ExecutionContext& exec)
    : triples_(triples),
      groups_(GroupByRow(triples, exec)),
      gradients_(std::move(gradients)),
      optimizer_(optimizer),
      hyper_(hyper),
      tables_(std::move(tables)) {}

Range TableStep::range(int64_t part) const {
  return embedding::TraitsOf(optimizer_).range(part - 1);
}

bool TableStep::AreInRange(int64_t first, int64_t last) const {
  const RowKernels& kernels = embedding::SelectRowKernels();
  bool good = true;
  for (int64_t group = first; group < last; ++group) {
    const int64_t next = rows()[std::min(group + kAhead, last - 1)];
    for (int64_t part = 0; part < parts(); ++part) {
      PrefetchRow(tables_[part].row(next), width());
      good &=
          kernels.within(range(part), 1, width(), width(), tables_[part].row(rows()[group]));
    }
  }
  return good;
}

std::optional<RowError> TableStep::FindError(ExecutionContext& exec) const {
  if (width() == 0) return std::nullopt;
  std::atomic<bool> good{true};
  ParallelForGroups(groups_.begins, width(), exec, [&](int64_t first, int64_t last) {
    if (!AreInRange(first, last)) good = false;
  });
  if (good) return std::nullopt;
  return FirstError();
}

std::optional<RowError> TableStep::Apply(ExecutionContext& exec) const {
  if (width() == 0) return std::nullopt;
  std::atomic<bool> refused{false};
  ParallelForGroups(groups_.begins, width(), exec, [&](int64_t first, int64_t last) {
    RowUpdater(*this).Run(first, last, &refused);
  });
  if (!refused) return std::nullopt;
  return FirstError();
}

void TableStep::ApplyChecked(ExecutionContext& exec) const {
  if (width() == 0) return;
  ParallelForGroups(groups_.begins, width(), exec, [&](int64_t first, int64_t last) {
    RowUpdater(*this).Run(first, last, nullptr);
  });
}

// The tables still contain the value, because rows with such a value are not updated.
RowError TableStep::FirstError() const {
  UninitializedVector<int64_t> ascending = rows();
  std::sort(ascending.begin(), ascending.end());
  for (const int64_t number : ascending) {
    for (int64_t part = 0; part < parts(); ++part) {
      const float* const values = tables_[part].row(number);
      for (int64_t k = 0; k < width(); ++k) {
        if (!Within(range(part), values[k])) return {part, number, k, values[k], range(part)};
      }
    }
  }
  // No value is found if another thread has written to the tables in the meantime.
  return {};
}

std::optional<RowError> UpdateRows(const Triples& triples, const float* gradients,
                                   int64_t width, Optimizer optimizer, const Hyper& hyper,
                                   float* const* tables, ExecutionContext& exec) {
  std::vector<RowArrays<float>> arrays;
  for (int part = 0; part <= embedding::TraitsOf(optimizer).slot_count(); ++part) {
    arrays.push_back({{tables[part]}, 0, width});
  }
  return TableStep(triples, {{gradients}, 0, width}, optimizer, hyper, std::move(arrays), exec)
      .Apply(exec);
}

Status RowsToTriples(const int32_t* indices, int64_t count, int64_t table_rows,
                     Triples* triples, ExecutionContext& exec) {
  if (count > kMaxInt32) {
    return InvalidArgumentError("indices",
                                StrCat("there are ", count, ", too many for int32 positions"));
  }
  const UninitializedVector<int32_t> rows(indices, indices + count);
  for (int64_t i = 0; i < count; ++i) {
    if (rows[i] < 0 || rows[i] >= table_rows) {
      return InvalidArgumentError(
          "indices", StrCat("must be at least 0 and below the table's ", table_rows,
                            " rows; the one at position ", i, " is ", rows[i]));
    }
  }
  const Groups groups = GroupByKey(rows, exec);
  triples->Reserve(groups.size());
  for (int64_t group = 0; group < groups.size(); ++group) {
    const int32_t last = groups.order[groups.begins[group + 1] - 1];
    triples->Add(last, rows[last], 1.0f);
  }
  return OkStatus();
}

}  // namespace opwright::sparsecore
