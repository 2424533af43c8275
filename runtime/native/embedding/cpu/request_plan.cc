#include "embedding/cpu/request_plan.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "base/checked.h"
#include "base/hash_index.h"

namespace opwright::embedding {
namespace {

// Numbers unique ids in the order of their first occurrence.
class UniqueIds {
 public:
  explicit UniqueIds(int64_t ids) : size_(SlotsFor(ids)) {
    slots_ = Array<int64_t>(size_);
    std::fill_n(slots_.get(), size_, int64_t{-1});
    ids_ = Array<int64_t>(ids);
  }

  int64_t IndexOf(int64_t id) {
    int64_t& slot = SlotOf(slots_.get(), size_, ids_.get(), id);
    if (slot < 0) {
      slot = count_++;
      ids_.get()[slot] = id;
    }
    return slot;
  }
  // Appends an id even if there is an equal one already.
  int64_t Append(int64_t id) {
    ids_.get()[count_] = id;
    return count_++;
  }

  int64_t count() const { return count_; }
  int64_t id(int64_t number) const { return ids_.get()[number]; }

 private:
  const int64_t size_;
  int64_t count_ = 0;
  std::unique_ptr<int64_t[]> slots_, ids_;
};

// The features of one table, and the number of ids that a batch has for them.
struct TableIds {
  std::vector<size_t> features;
  int64_t count = 0;
  bool weighted = false;
};

TableIds IdsOf(const Configuration& configuration, const Batch& batch, int64_t table) {
  TableIds found;
  for (size_t f = 0; f < batch.features.size(); ++f) {
    if (configuration.features[f].table != table) continue;
    found.features.push_back(f);
    found.count += batch.features[f].count();
    found.weighted = found.weighted || batch.features[f].per_sample_weights;
  }
  return found;
}

// The first unit of each host, and then the number of all units.
std::vector<int64_t> BeginsOf(const std::vector<int64_t>& counts) {
  std::vector<int64_t> begins(counts.size() + 1);
  for (size_t h = 0; h < counts.size(); ++h) begins[h + 1] = begins[h] + counts[h];
  return begins;
}

class TablePlanner {
 public:
  TablePlanner(const Configuration& configuration, const RowSharding& sharding, int64_t host,
               int64_t table, const Batch& batch, RequestPlan* plan)
      : config_(At(configuration.tables, table)),
        sharding_(sharding),
        host_(host),
        table_(table),
        batch_(batch),
        plan_(plan),
        ids_(IdsOf(configuration, batch, table)),
        rows_(ids_.count),
        row_of_(Array<int64_t>(ids_.count)) {}

  void Plan() {
    DedupRows();
    AssignOwners();
    CountPooledUnits();
    ChooseMode();
    AllocateRequests();
    if (!pooled()) FillRows();
    std::fill(last_sample_.begin(), last_sample_.end(), -1);
    int64_t sample = 0, id = 0;
    for (const size_t f : ids_.features) FillFeature(f, &sample, &id);
  }

 private:
  using Counts = std::vector<int64_t>;  // One number for each host.

  bool pooled() const { return mode_ != ExchangeMode::kUnpooled; }
  Bags& RequestTo(int64_t host) { return At(At(plan_->requests, host).batch.features, table_); }

  // Numbers the unique rows. Without gradient accumulation, each occurrence of an id is a
  // separate update, so equal ids count as different rows.
  void DedupRows() {
    int64_t next = 0;
    for (const size_t f : ids_.features) {
      const Bags& bags = batch_.features[f];
      for (int64_t i = 0; i < bags.count(); ++i) {
        const int64_t id = bags.indices.get()[i];
        row_of_.get()[next++] = config_.accumulate ? rows_.IndexOf(id) : rows_.Append(id);
      }
    }
  }

  void AssignOwners() {
    rows_per_host_.resize(static_cast<size_t>(sharding_.hosts()));
    owner_of_ = Array<int64_t>(rows_.count());
    local_of_ = Array<int64_t>(rows_.count());
    for (int64_t i = 0; i < rows_.count(); ++i) {
      const int64_t owner = sharding_.HostOf(rows_.id(i));
      owner_of_.get()[i] = owner;
      local_of_.get()[i] = sharding_.LocalOf(rows_.id(i), owner);
      ++At(rows_per_host_, owner);
    }
  }

  // Whether this is the first row of `sample` on host `owner`.
  bool IsNewUnit(int64_t owner, int64_t sample) {
    return std::exchange(At(last_sample_, owner), sample) != sample;
  }

  void CountPooledUnits() {
    vectors_per_host_.resize(rows_per_host_.size());
    vector_ids_per_host_.resize(rows_per_host_.size());
    last_sample_.assign(rows_per_host_.size(), -1);
    vectors_of_feature_.resize(batch_.features.size());
    int64_t sample = 0, id = 0;
    for (const size_t f : ids_.features) {
      const Bags& bags = batch_.features[f];
      for (int64_t s = 0; s < bags.samples; ++s, ++sample) {
        for (int64_t i = bags.offsets.get()[s]; i < bags.offsets.get()[s + 1]; ++i) {
          const int64_t owner = owner_of_.get()[row_of_.get()[id++]];
          ++At(vector_ids_per_host_, owner);
          if (!IsNewUnit(owner, sample)) continue;
          ++At(vectors_per_host_, owner);
          ++vectors_of_feature_[f];
        }
      }
    }
  }

  // The sum of the counts of all other hosts.
  int64_t Remote(const Counts& counts) const {
    int64_t sum = 0;
    for (int64_t h = 0; h < sharding_.hosts(); ++h) sum += h == host_ ? 0 : At(counts, h);
    return sum;
  }
  // The bytes of requests, of their replies, and of the gradients.
  int64_t TrafficOf(ExchangeMode mode, const Counts& units, const Counts& ids) const {
    const int64_t values = (batch_.mode == Mode::kTraining ? 8 : 4) * config_.dimension;
    return RequestBytes(mode, Remote(units), Remote(ids), IdBytes(config_)) +
           Remote(units) * values;
  }

  // Chooses the mode with less traffic. Quantized tables are not pooled: rows are quantized by
  // the host that requests them, before they are summed.
  void ChooseMode() {
    const ExchangeMode pooling =
        ids_.weighted ? ExchangeMode::kWeightedPartialPooling : ExchangeMode::kPartialPooling;
    const bool can_pool =
        !config_.quantization.enabled && ids_.count <= std::numeric_limits<int32_t>::max();
    if (can_pool && TrafficOf(pooling, vectors_per_host_, vector_ids_per_host_) <
                        TrafficOf(ExchangeMode::kUnpooled, rows_per_host_, rows_per_host_)) {
      mode_ = pooling;
    }
  }

  void AllocateRequests() {
    const Counts& units = pooled() ? vectors_per_host_ : rows_per_host_;
    const Counts& ids = pooled() ? vector_ids_per_host_ : rows_per_host_;
    At(plan_->begins, table_) = BeginsOf(units);
    for (int64_t h = 0; h < sharding_.hosts(); ++h) {
      At(At(plan_->requests, h).modes, table_) = mode_;
      Bags& request = RequestTo(h);
      request.samples = At(units, h);
      request.offsets = Array<int64_t>(request.samples + 1);
      request.indices = Array<int64_t>(At(ids, h));
      if (mode_ == ExchangeMode::kWeightedPartialPooling) {
        request.per_sample_weights = Array<float>(At(ids, h));
      }
    }
    next_unit_.resize(units.size());
    next_id_.resize(units.size());
  }

  // Appends a row to the request to its owner. The row begins a new unit if `is_new` is true,
  // else it belongs to the last unit. Returns the number of the unit among the units of all
  // hosts.
  int64_t Append(int64_t row, bool is_new) {
    const int64_t owner = owner_of_.get()[row];
    Bags& request = RequestTo(owner);
    int64_t& unit = At(next_unit_, owner);
    if (is_new) ++unit;
    request.indices.get()[At(next_id_, owner)++] = local_of_.get()[row];
    request.offsets.get()[unit] = At(next_id_, owner);
    return At(At(plan_->begins, table_), owner) + unit - 1;
  }

  void FillRows() {
    unit_of_ = Array<int64_t>(rows_.count());
    for (int64_t i = 0; i < rows_.count(); ++i) unit_of_.get()[i] = Append(i, true);
  }

  // Finds the units of a feature's samples. `sample` and `id` count the samples and the ids of
  // all features of the table.
  void FillFeature(size_t f, int64_t* sample, int64_t* id) {
    const Bags& bags = batch_.features[f];
    Bags& units = plan_->units_of[f];
    AllocateUnits(bags, pooled() ? vectors_of_feature_[f] : bags.count(), &units);
    int64_t count = 0;
    for (int64_t s = 0; s < bags.samples; ++s, ++*sample) {
      for (int64_t i = bags.offsets.get()[s]; i < bags.offsets.get()[s + 1]; ++i) {
        const int64_t row = row_of_.get()[(*id)++];
        if (pooled()) {
          const float weight = bags.per_sample_weights ? bags.per_sample_weights.get()[i] : 1.f;
          AppendPooled(row, *sample, weight, &units, &count);
        } else {
          units.indices.get()[count++] = unit_of_.get()[row];
        }
      }
      units.offsets.get()[s + 1] = count;
    }
  }

  // Allocates the units of a feature, and copies scales and weights. Pooled vectors need no
  // weights here, because their owners have multiplied the rows by them.
  void AllocateUnits(const Bags& bags, int64_t count, Bags* units) const {
    units->samples = bags.samples;
    units->offsets = Array<int64_t>(bags.samples + 1);
    units->indices = Array<int64_t>(count);
    if (bags.scales) {
      units->scales = Array<float>(bags.samples);
      std::copy_n(bags.scales.get(), bags.samples, units->scales.get());
    }
    if (bags.per_sample_weights && !pooled()) {
      units->per_sample_weights = Array<float>(bags.count());
      std::copy_n(bags.per_sample_weights.get(), bags.count(), units->per_sample_weights.get());
    }
  }

  void AppendPooled(int64_t row, int64_t sample, float weight, Bags* units, int64_t* count) {
    const int64_t owner = owner_of_.get()[row];
    const bool is_new = IsNewUnit(owner, sample);
    const int64_t unit = Append(row, is_new);
    if (is_new) units->indices.get()[(*count)++] = unit;
    if (mode_ != ExchangeMode::kWeightedPartialPooling) return;
    RequestTo(owner).per_sample_weights.get()[At(next_id_, owner) - 1] = weight;
  }

  const TableConfig& config_;
  const RowSharding& sharding_;
  const int64_t host_, table_;
  const Batch& batch_;
  RequestPlan* const plan_;
  const TableIds ids_;
  UniqueIds rows_;
  const std::unique_ptr<int64_t[]> row_of_;         // The unique row of each id.
  std::unique_ptr<int64_t[]> owner_of_, local_of_;  // Host and local row of each unique row.
  std::unique_ptr<int64_t[]> unit_of_;              // The unit of each row, without pooling.
  Counts rows_per_host_, vectors_per_host_, vector_ids_per_host_;
  std::vector<int64_t> vectors_of_feature_;
  Counts last_sample_;  // The last sample that had a row on each host.
  Counts next_unit_, next_id_;
  ExchangeMode mode_ = ExchangeMode::kUnpooled;
};

}  // namespace

int64_t IdBytes(const TableConfig& table) {
  return table.rows <= std::numeric_limits<int32_t>::max() ? 4 : 8;
}

int64_t RequestBytes(ExchangeMode mode, int64_t units, int64_t ids, int64_t id_bytes) {
  return (mode == ExchangeMode::kUnpooled ? 0 : units * 4) + ids * id_bytes +
         (mode == ExchangeMode::kWeightedPartialPooling ? ids * 4 : 0);
}

RequestPlan::RequestPlan(const Configuration& configuration, int64_t hosts, Mode mode)
    : begins(configuration.tables.size()), units_of(configuration.features.size()) {
  for (int64_t h = 0; h < hosts; ++h) {
    ShardRequest& request = requests.emplace_back();
    request.modes.resize(configuration.tables.size());
    request.batch.mode = mode;
    request.batch.features.resize(configuration.tables.size());
  }
}

void PlanRequests(const Configuration& configuration, const RowSharding& sharding, int64_t host,
                  int64_t table, const Batch& batch, RequestPlan* plan) {
  TablePlanner(configuration, sharding, host, table, batch, plan).Plan();
}

}  // namespace opwright::embedding
