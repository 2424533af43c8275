// The store that keeps tables in host memory and computes with CPU threads.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/hash_index.h"
#include "embedding/cpu/lookups.h"
#include "embedding/cpu/narrow.h"
#include "embedding/cpu/rows.h"
#include "embedding/cpu/table_memory.h"
#include "embedding/store.h"

namespace opwright::embedding {
namespace {

// One id of a step: the row that it updates, and its contribution to the row's gradient.
struct Entry {
  int64_t row;
  Contribution contribution;
};

// The gradients that one step has for one table. Their ids are sorted into buckets by row. Each
// row is in one bucket only, so that threads can update the buckets concurrently. Within a
// bucket, the ids keep their order.
struct Plan {
  struct Source {
    const Bags* bags;
    const float* gradient;  // [samples, dimension]
  };
  int64_t table;
  std::vector<Source> sources;
  int64_t count = 0;
  int bits = 0;             // There are 2^bits buckets.
  int64_t* ends = nullptr;  // The end of each bucket, as an index into `entries`.
  Entry* entries = nullptr;

  int64_t buckets() const { return int64_t{1} << bits; }
  // A hash of the row, so that frequent rows that are close together get different buckets.
  int64_t BucketOf(int64_t row) const {
    if (bits == 0) return 0;
    return static_cast<int64_t>(HashOf(row) >> (64 - bits));
  }
};

// Samples of one source. One task sorts their ids into buckets.
struct Part {
  int64_t plan;
  int64_t source;
  int64_t first, end;
  // For each bucket, first the number of this part's ids. CountsToOffsets turns it into the
  // index of the entry for the part's next id.
  int64_t* next;
};

constexpr int64_t kIdsInPart = 8192;
constexpr int64_t kIdsInBucket = 1024;
constexpr int kMaxBits = 12;

// Entries `first` to `end` of a plan. One thread groups them by row and updates the rows.
struct Bucket {
  int64_t plan, first, end;
};

// The scratch memory of one thread that groups the entries of a bucket by row. A group is the
// entries of one row.
struct Workspace {
  int32_t* slots;     // A hash table of groups with open addressing. -1 is a free slot.
  int64_t* rows;      // The row of each group.
  int32_t* offsets;   // The index in `contributions` where each group begins.
  int32_t* group_of;  // The group of each entry.
  Contribution* contributions;
  double* sum;
  float* wide;  // A narrow row while it is updated.
};

// Groups entries by row, in the order in which rows first appear. Returns the number of rows.
int64_t Group(const Entry* entries, int64_t count, const Workspace& workspace) {
  const int64_t size = SlotsFor(count);
  std::memset(workspace.slots, 0xFF, size * sizeof(int32_t));
  int64_t groups = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = entries[i].row;
    int32_t& slot = SlotOf(workspace.slots, size, workspace.rows, row);
    if (slot < 0) {
      slot = static_cast<int32_t>(groups++);
      workspace.rows[slot] = row;
      workspace.offsets[slot + 1] = 0;
    }
    workspace.group_of[i] = slot;
    ++workspace.offsets[slot + 1];
  }
  workspace.offsets[0] = 0;
  for (int64_t g = 0; g < groups; ++g) workspace.offsets[g + 1] += workspace.offsets[g];
  // The hash table is not needed any more. Its memory is reused for the index of each group's
  // next entry.
  std::memcpy(workspace.slots, workspace.offsets, groups * sizeof(int32_t));
  for (int64_t i = 0; i < count; ++i) {
    workspace.contributions[workspace.slots[workspace.group_of[i]]++] = entries[i].contribution;
  }
  return groups;
}

}  // namespace

void FillWithBits(uint32_t bits, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(&to[i], &bits, sizeof bits);
}

std::optional<Outside> FindOutside(ExecutionContext& exec, Range range, int64_t count,
                                   const float* values) {
  constexpr int64_t kPart = 64 << 10;
  const RowKernels& kernels = SelectRowKernels();
  std::atomic<int64_t> part{INT64_MAX};  // The first part with a value outside of the range.
  exec.For((count + kPart - 1) / kPart, [&](int64_t i) {
    if (kernels.within(range, 1, 0, std::min(kPart, count - i * kPart), values + i * kPart)) {
      return;
    }
    int64_t least = part;
    while (i < least && !part.compare_exchange_weak(least, i)) {
    }
  });
  if (part == INT64_MAX) return std::nullopt;
  int64_t at = part * kPart;
  while (at + 1 < count && Within(range, values[at])) ++at;
  return Outside{at, values[at]};
}

namespace {

// A batch, and its lookup in the background if one has begun.
class CpuBatch : public PreparedBatch {
 public:
  CpuBatch(std::shared_ptr<const Batch> batch, OutputBuffersRef buffers)
      : PreparedBatch(std::move(batch)), buffers_(std::move(buffers)) {}
  ~CpuBatch() override {
    if (background_) background_->Stop();
  }

  // Begins the lookup in the background. Returns null if no thread is free for it.
  std::shared_ptr<Background> Begin(ExecutionContext* exec, LookupParts lookups) {
    lookups.SetOutputs(buffers_->data());
    const auto shared = std::make_shared<const LookupParts>(std::move(lookups));
    background_ = exec->Begin(shared->count(), [shared](int64_t i) { (*shared)(i); });
    return background_;
  }

  OutputBuffersRef outputs() const override { return buffers_; }

  // Ends the background lookup. Returns whether the activations are in `outputs`. Releases the
  // buffers of the lookup, so that only one call returns true.
  bool Finish(float* const* outputs) {
    if (!background_) return false;
    const bool here =
        buffers_ && std::equal(buffers_->data().begin(), buffers_->data().end(), outputs);
    if (!here) background_->Stop();
    const bool done = here && background_->Finish();
    buffers_.reset();
    return done;
  }

 private:
  OutputBuffersRef buffers_;
  std::shared_ptr<Background> background_;
};

}  // namespace

Status CheckFinite(ExecutionContext* exec, const Configuration& configuration,
                   const std::vector<const float*>& gradients) {
  for (size_t f = 0; f < gradients.size(); ++f) {
    const FeatureConfig& feature = configuration.features[f];
    const int64_t dimension = configuration.tables[feature.table].dimension;
    const auto found =
        FindOutside(*exec, Range::kFinite, feature.samples() * dimension, gradients[f]);
    if (!found) continue;
    return InvalidArgumentError(
        DescribeFeature(configuration, static_cast<int64_t>(f)) +
        ": gradients must be finite, that of sample " + std::to_string(found->at / dimension) +
        ", column " + std::to_string(found->at % dimension) + " is " + Number(found->value));
  }
  return {};
}

namespace {

class CpuTableStore : public TableStore {
 public:
  explicit CpuTableStore(int64_t few_bytes) : few_bytes_(few_bytes) {}
  ~CpuTableStore() override { const Writing none_is_left(this); }

  Status Allocate(const Configuration& configuration) override {
    configuration_ = &configuration;
    double weights = 0;
    for (const TableConfig& table : configuration.tables) {
      weights += static_cast<double>(table.rows) * static_cast<double>(table.row_words());
    }
    cache_resident_ = weights * sizeof(float) <= kCacheResidentBytes;
    for (size_t i = 0; i < configuration.tables.size(); ++i) {
      Table table;
      table.config = configuration.tables[i];
      const int64_t row = table.config.row_words() + table.config.slot_floats();
      const double bytes =
          static_cast<double>(table.config.rows) * static_cast<double>(row) * sizeof(float);
      if (!Map(&table, cache_resident_)) {
        return ResourceExhaustedError(
            Describe(configuration, static_cast<int64_t>(i)) + ": " +
            std::to_string(table.config.rows) + " rows of " +
            std::to_string(table.config.dimension) + " " + NameOf(table.config.dtype) +
            " with " + std::to_string(table.config.slots()) + " slots take " +
            std::to_string(bytes / (1 << 30)) + " GiB, more than there is");
      }
      tables_.push_back(std::move(table));
    }
    return {};
  }

  Status Write(ExecutionContext* exec, int64_t t, int64_t slot, const Shard& rows,
               const float* from) override {
    const Writing writing(this);
    const Table& table = tables_[t];
    const int64_t columns = table.config.columns(slot);
    ForRows(exec, rows.count, columns, [&](int64_t first, int64_t end) {
      for (int64_t i = first; i < end; ++i) {
        float* const row = RowOf(table, slot, rows, i);
        if (IsNarrow(table, slot)) {
          NarrowWith(table.config.dtype, columns, from + i * columns, row, ToNearest());
        } else {
          std::memcpy(row, from + i * columns, columns * sizeof(float));
        }
      }
    });
    table.pages.Enlarge();
    return {};
  }

  Status Read(ExecutionContext* exec, int64_t t, int64_t slot, const Shard& rows,
              float* to) override {
    const Table& table = tables_[t];
    const int64_t columns = table.config.columns(slot);
    const RowKernels& kernels = SelectRowKernels();
    ForRows(exec, rows.count, columns, [&](int64_t first, int64_t end) {
      for (int64_t i = first; i < end; ++i) {
        const float* const row = RowOf(table, slot, rows, i);
        if (IsNarrow(table, slot)) {
          kernels.widen(table.config.dtype, row, 0, columns, to + i * columns);
        } else {
          std::memcpy(to + i * columns, row, columns * sizeof(float));
        }
      }
    });
    return {};
  }

  StatusOr<PreparedRef> Prepare(ExecutionContext*,
                                std::shared_ptr<const Batch> batch) override {
    return PreparedRef(std::make_shared<CpuBatch>(std::move(batch), nullptr));
  }

  PreparedRef LookUpAhead(ExecutionContext* exec, std::shared_ptr<const Batch> batch,
                          const AllocateOutputs& allocate_outputs) override {
    Checked bytes = 0;
    for (size_t f = 0; f < batch->features.size(); ++f) {
      const Bags& bags = batch->features[f];
      bytes += LookupBytes(bags.count(), bags.samples, TableOf(f).config.dimension);
    }
    if (bytes.AtMost(few_bytes_) || exec->Threads() < 2) return nullptr;
    LookupParts lookups(LookupsOf(*batch), exec->Threads());
    OutputBuffersRef buffers = allocate_outputs();
    if (!buffers) return nullptr;
    const auto begun = std::make_shared<CpuBatch>(std::move(batch), std::move(buffers));
    std::lock_guard<std::mutex> lock(mutex_);
    if (writing_) return nullptr;
    ahead_.erase(std::remove_if(ahead_.begin(), ahead_.end(),
                                [](const auto& one) { return one.expired(); }),
                 ahead_.end());
    std::weak_ptr<Background>& one = ahead_.emplace_back();
    one = begun->Begin(exec, std::move(lookups));
    return one.expired() ? nullptr : begun;
  }

  Status Lookup(ExecutionContext* exec, PreparedBatch* prepared,
                float* const* outputs) override {
    if (static_cast<CpuBatch*>(prepared)->Finish(outputs)) return {};
    const Batch& batch = prepared->batch();
    LookupParts lookups(LookupsOf(batch), exec->Threads());
    lookups.SetOutputs({outputs, outputs + batch.features.size()});
    LookUp(exec, lookups, few_bytes_);
    return {};
  }

  Status LookUpPacked(ExecutionContext* exec, const PackedBags& bags,
                      float* activations) override {
    std::vector<TableLookup> tables;
    for (size_t f = 0; f < configuration_->features.size(); ++f) tables.push_back(ReadsOf(f));
    return LookUpPackedBags(exec, *configuration_, bags, tables, few_bytes_, activations);
  }

  Status Update(ExecutionContext* exec, const std::vector<CoreGradients>& cores,
                const std::vector<float>& rates) override {
    const Writing writing(this);
    try {
      UpdateRows(exec, cores, rates);
      ++updates_;
      return {};
    } catch (const std::bad_alloc&) {
      return ResourceExhaustedError("no memory to sort its gradients");
    }
  }

  Status CheckGradients(ExecutionContext* exec,
                        const std::vector<const float*>& gradients) override {
    return CheckFinite(exec, *configuration_, gradients);
  }

  Status CheckUpdates(bool) override { return {}; }

 private:
  // Marks a write to the tables. While a Writing exists, no background lookup begins. Its
  // constructor stops the background lookups that have begun, because they would read old rows.
  class Writing {
   public:
    explicit Writing(CpuTableStore* store) : store_(store) {
      std::vector<std::weak_ptr<Background>> stale;
      {
        std::lock_guard<std::mutex> lock(store_->mutex_);
        store_->writing_ = true;
        stale.swap(store_->ahead_);
      }
      for (const auto& one : stale) {
        if (const auto background = one.lock()) background->Stop();
      }
    }
    Writing(const Writing&) = delete;
    ~Writing() {
      std::lock_guard<std::mutex> lock(store_->mutex_);
      store_->writing_ = false;
    }

   private:
    CpuTableStore* const store_;
  };

  // The lookup of each feature. The caller has to set the outputs.
  std::vector<FeatureLookup> LookupsOf(const Batch& batch) const {
    std::vector<FeatureLookup> lookups;
    for (size_t f = 0; f < batch.features.size(); ++f) {
      const Bags& bags = batch.features[f];
      lookups.push_back({ReadsOf(f), &bags, bags.indices.get(), nullptr});
    }
    return lookups;
  }

  TableLookup ReadsOf(size_t feature) const {
    const Table& table = TableOf(feature);
    const Quantization& quantization = table.config.quantization;
    return {table.rows.weights,
            table.rows.stride,
            table.config.dimension,
            cache_resident_,
            quantization.enabled ? &quantization : nullptr,
            table.config.dtype};
  }

  // Updates the rows of all tables. It may throw std::bad_alloc before it has changed any row.
  void UpdateRows(ExecutionContext* exec, const std::vector<CoreGradients>& cores,
                  const std::vector<float>& rates) {
    std::vector<Plan> plans = MakePlans(exec, cores);
    std::vector<Part> parts = MakeParts(exec, plans);
    const int64_t part_count = static_cast<int64_t>(parts.size());
    exec->For(part_count, [&](int64_t i) { Count(plans, parts[i]); });
    CountsToOffsets(plans, parts);
    const std::vector<Bucket> buckets = BucketsOf(plans);
    const int64_t count = static_cast<int64_t>(buckets.size());
    const std::vector<Workspace> workspaces =
        AllocateWorkspaces(exec, std::min<int64_t>(exec->Threads(), count), plans, buckets);
    std::vector<Hyper> hypers(tables_.size());
    std::vector<uint64_t*> touched(tables_.size(), nullptr);
    for (size_t t = 0; t < tables_.size(); ++t) {
      const TableConfig& config = tables_[t].config;
      hypers[t] = HyperAt(config, rates[t]);
      if (config.every_row) {
        const int64_t words = (config.rows + 63) / 64;
        touched[t] = exec->Allocate<uint64_t>(words);
        std::memset(touched[t], 0, words * sizeof(uint64_t));
      }
    }
    const std::vector<float*> wide = AllocateRows(exec, touched);
    // All scratch memory is allocated before this line, because rows change after it.
    exec->For(part_count, [&](int64_t i) { Scatter(plans, parts[i]); });
    const RowKernels& kernels = SelectRowKernels();
    std::atomic<int64_t> next{0};
    exec->For(static_cast<int64_t>(workspaces.size()), [&](int64_t worker) {
      for (int64_t i; (i = next.fetch_add(1)) < count;) {
        const Plan& plan = plans[buckets[i].plan];
        UpdateBucket(kernels, plan, buckets[i], hypers[plan.table], workspaces[worker],
                     touched[plan.table]);
      }
    });
    UpdateRest(exec, kernels, hypers, touched, wide);
  }

  static std::vector<Bucket> BucketsOf(const std::vector<Plan>& plans) {
    std::vector<Bucket> buckets;
    for (size_t p = 0; p < plans.size(); ++p) {
      int64_t first = 0;
      for (int64_t b = 0; b < plans[p].buckets(); ++b) {
        const int64_t end = plans[p].ends[b];
        if (end > first) buckets.push_back({static_cast<int64_t>(p), first, end});
        first = end;
      }
    }
    return buckets;
  }

  // Allocates workspaces that are large enough for each bucket.
  std::vector<Workspace> AllocateWorkspaces(ExecutionContext* exec, int64_t workers,
                                            const std::vector<Plan>& plans,
                                            const std::vector<Bucket>& buckets) const {
    int64_t largest = 0, widest = 1;
    for (const Bucket& one : buckets) largest = std::max(largest, one.end - one.first);
    for (const Plan& plan : plans) {
      widest = std::max(widest, tables_[plan.table].config.dimension);
    }
    std::vector<Workspace> workspaces(workers);
    for (Workspace& workspace : workspaces) {
      workspace.slots = exec->Allocate<int32_t>(SlotsFor(largest));
      workspace.rows = exec->Allocate<int64_t>(largest);
      workspace.offsets = exec->Allocate<int32_t>(largest + 1);
      workspace.group_of = exec->Allocate<int32_t>(largest);
      workspace.contributions = exec->Allocate<Contribution>(largest);
      workspace.sum = exec->Allocate<double>(widest);
      workspace.wide = exec->Allocate<float>(widest);
    }
    return workspaces;
  }

  // Updates the rows of a bucket. If `touched` is not null, it sets their bits there.
  void UpdateBucket(const RowKernels& kernels, const Plan& plan, const Bucket& bucket,
                    const Hyper& hyper, const Workspace& workspace, uint64_t* touched) const {
    const Table& table = tables_[plan.table];
    UpdateCall call;
    call.table = table.rows;
    call.count = Group(plan.entries + bucket.first, bucket.end - bucket.first, workspace);
    call.rows = workspace.rows;
    call.offsets = workspace.offsets;
    call.contributions = workspace.contributions;
    call.accumulate = table.config.accumulate;
    call.hyper = &hyper;
    call.sum = workspace.sum;
    call.rounding = RoundingOf(plan.table);
    call.wide = workspace.wide;
    kernels.update[static_cast<int>(table.config.optimizer)](call);
    for (int64_t g = 0; touched && g < call.count; ++g) {
      __atomic_fetch_or(&touched[workspace.rows[g] / 64], uint64_t{1} << workspace.rows[g] % 64,
                        __ATOMIC_RELAXED);
    }
  }

  // Updates the rows without gradients in tables that update every row. As many threads work as
  // there are rows of scratch memory in `wide`.
  void UpdateRest(ExecutionContext* exec, const RowKernels& kernels,
                  const std::vector<Hyper>& hypers, const std::vector<uint64_t*>& touched,
                  const std::vector<float*>& wide) const {
    for (size_t t = 0; t < tables_.size(); ++t) {
      if (!touched[t]) continue;
      const Table& table = tables_[t];
      const int64_t rows = table.config.rows;
      const int64_t part = RowsInPart(table.config.dimension + table.config.slot_floats());
      std::atomic<int64_t> next{0};
      exec->For(static_cast<int64_t>(wide.size()), [&](int64_t worker) {
        for (int64_t first; (first = next.fetch_add(part)) < rows;) {
          RestCall call;
          call.table = table.rows;
          call.first = first;
          call.end = std::min(rows, first + part);
          call.touched = touched[t];
          call.hyper = &hypers[t];
          call.rounding = RoundingOf(static_cast<int64_t>(t));
          call.wide = wide[worker];
          kernels.rest[static_cast<int>(table.config.optimizer)](call);
        }
      });
    }
  }

  // How narrow rows of a table are rounded in the next update.
  Rounding RoundingOf(int64_t table) const {
    const TableConfig& config = tables_[table].config;
    return {KeyOf(table, updates_), config.first_row, config.row_step};
  }

  // Allocates a row for each thread, if a table updates every row.
  std::vector<float*> AllocateRows(ExecutionContext* exec,
                                   const std::vector<uint64_t*>& touched) const {
    int64_t widest = 0;
    for (size_t t = 0; t < tables_.size(); ++t) {
      if (touched[t]) widest = std::max(widest, tables_[t].config.dimension);
    }
    std::vector<float*> rows;
    for (int i = 0; widest > 0 && i < exec->Threads(); ++i) {
      rows.push_back(exec->Allocate<float>(widest));
    }
    return rows;
  }

  const Table& TableOf(size_t feature) const {
    return tables_[configuration_->features[feature].table];
  }

  static bool IsNarrow(const Table& table, int64_t slot) {
    return slot < 0 && table.config.dtype != RowDtype::kFloat32;
  }

  static float* RowOf(const Table& table, int64_t slot, const Shard& rows, int64_t i) {
    const int64_t row = rows.first + i * rows.step;
    return slot < 0 ? table.rows.weights + row * table.rows.stride
                    : table.rows.slots + row * table.rows.slots_stride +
                          slot * table.config.columns(slot);
  }

  // A part of a table has about 256 KiB.
  static int64_t RowsInPart(int64_t row_floats) {
    return std::max<int64_t>(1, (64 << 10) / row_floats);
  }
  // Calls task(first, end) for parts of the rows.
  template <class Task>
  static void ForRows(ExecutionContext* exec, int64_t rows, int64_t row_floats,
                      const Task& task) {
    const int64_t part = RowsInPart(row_floats);
    exec->For((rows + part - 1) / part,
              [&](int64_t i) { task(i * part, std::min(rows, (i + 1) * part)); });
  }

  std::vector<Plan> MakePlans(ExecutionContext* exec,
                              const std::vector<CoreGradients>& cores) const {
    std::vector<Plan> by_table(tables_.size());
    for (const CoreGradients& core : cores) {
      const std::vector<Bags>& features = core.batch->batch().features;
      for (size_t f = 0; f < features.size(); ++f) {
        Plan& plan = by_table[configuration_->features[f].table];
        plan.sources.push_back({&features[f], core.gradients[f]});
        plan.count += features[f].count();
      }
    }
    std::vector<Plan> plans;
    for (size_t t = 0; t < by_table.size(); ++t) {
      Plan& plan = by_table[t];
      if (plan.count == 0) continue;
      plan.table = static_cast<int64_t>(t);
      while (plan.bits < kMaxBits && plan.count >> plan.bits > kIdsInBucket) ++plan.bits;
      plan.ends = exec->Allocate<int64_t>(plan.buckets());
      plan.entries = exec->Allocate<Entry>(plan.count);
      plans.push_back(std::move(plan));
    }
    return plans;
  }

  static std::vector<Part> MakeParts(ExecutionContext* exec, const std::vector<Plan>& plans) {
    std::vector<Part> parts;
    for (size_t p = 0; p < plans.size(); ++p) {
      const Plan& plan = plans[p];
      for (size_t s = 0; s < plan.sources.size(); ++s) {
        const Bags& bags = *plan.sources[s].bags;
        const int64_t count = std::min(bags.samples, bags.count() / kIdsInPart + 1);
        for (int64_t i = 0; i < count; ++i) {
          int64_t* const next = exec->Allocate<int64_t>(plan.buckets());
          std::memset(next, 0, plan.buckets() * sizeof(int64_t));
          parts.push_back({static_cast<int64_t>(p), static_cast<int64_t>(s),
                           bags.samples * i / count, bags.samples * (i + 1) / count, next});
        }
      }
    }
    return parts;
  }

  static void Count(const std::vector<Plan>& plans, const Part& part) {
    const Plan& plan = plans[part.plan];
    const Bags& bags = *plan.sources[part.source].bags;
    for (int64_t i = bags.offsets[part.first]; i < bags.offsets[part.end]; ++i) {
      ++part.next[plan.BucketOf(bags.indices[i])];
    }
  }

  // Replaces the number of ids that each part has in a bucket by the index, among the entries
  // of the plan, of the part's first entry for this bucket. Buckets follow one another.
  static void CountsToOffsets(const std::vector<Plan>& plans, const std::vector<Part>& parts) {
    size_t begin = 0;
    for (size_t p = 0; p < plans.size(); ++p) {
      size_t end = begin;
      while (end < parts.size() && parts[end].plan == static_cast<int64_t>(p)) ++end;
      int64_t at = 0;
      for (int64_t b = 0; b < plans[p].buckets(); ++b) {
        for (size_t i = begin; i < end; ++i) {
          const int64_t count = parts[i].next[b];
          parts[i].next[b] = at;
          at += count;
        }
        plans[p].ends[b] = at;
      }
      begin = end;
    }
  }

  void Scatter(const std::vector<Plan>& plans, const Part& part) const {
    const Plan& plan = plans[part.plan];
    const Plan::Source& source = plan.sources[part.source];
    const Bags& bags = *source.bags;
    const int64_t dimension = tables_[plan.table].config.dimension;
    for (int64_t s = part.first; s < part.end; ++s) {
      const float scale = bags.scales ? bags.scales[s] : 1.f;
      for (int64_t i = bags.offsets[s]; i < bags.offsets[s + 1]; ++i) {
        const float coefficient =
            bags.per_sample_weights ? scale * bags.per_sample_weights[i] : scale;
        plan.entries[part.next[plan.BucketOf(bags.indices[i])]++] = {
            bags.indices[i], {source.gradient + s * dimension, coefficient}};
      }
    }
  }

  const int64_t few_bytes_;
  const Configuration* configuration_ = nullptr;
  std::vector<Table> tables_;
  bool cache_resident_ = false;  // Whether the weights of all tables stay in CPU caches.
  std::mutex mutex_;
  int64_t updates_ = 0;  // How many updates were made.
  bool writing_ = false;
  std::vector<std::weak_ptr<Background>> ahead_;  // Background lookups that have begun.
};

}  // namespace

std::unique_ptr<TableStore> MakeCpuTableStore(int64_t few_bytes) {
  return std::make_unique<CpuTableStore>(few_bytes);
}

}  // namespace opwright::embedding
