#include "embedding/cpu/hosts.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "base/checked.h"
#include "embedding/cpu/lookups.h"
#include "embedding/cpu/row_requests.h"
#include "embedding/cpu/rows.h"

namespace opwright::embedding {
namespace {

using Buffer = Exchange::Buffer;
using Buffers = std::vector<Buffer>;  // One for each host.

class HostsStore : public DistributedStore {
 public:
  HostsStore(std::shared_ptr<Exchange> exchange, std::unique_ptr<TableStore> local)
      : exchange_(std::move(exchange)), local_(std::move(local)) {}

  Status Allocate(const Configuration& configuration) override {
    whole_ = &configuration;
    own_ = configuration;
    own_.features.clear();
    for (size_t t = 0; t < configuration.tables.size(); ++t) {
      const TableConfig& table = configuration.tables[t];
      if (table.rows < hosts()) {
        return InvalidArgumentError(Describe(configuration, static_cast<int64_t>(t)) + ": " +
                                    std::to_string(hosts()) + " hosts share its " +
                                    std::to_string(table.rows) +
                                    " rows, and one would have none");
      }
      shardings_.emplace_back(table.rows, hosts(), configuration.shard_by_remainder);
      TableConfig& own = own_.tables[t];
      const Shard shard = shardings_.back().ShardOf(host());
      own.rows = shard.count;
      own.first_row = shard.first;
      own.row_step = shard.step;
      own.quantization = {};  // Rows are sent unchanged. The host that requests them quantizes.
      own_.features.push_back({table.name, static_cast<int64_t>(t), {1}});
    }
    request_queue_ =
        std::make_shared<ShardRequestQueue>(exchange_, configuration, own_, shardings_);
    return local_->Allocate(own_);
  }

  Status Write(ExecutionContext* exec, int64_t table, int64_t slot, const Shard& rows,
               const float* from) override {
    const int64_t columns = At(whole_->tables, table).columns(slot);
    const Shard own = At(shardings_, table).ShardOf(host());
    const int64_t most = RowsInPart(columns);
    const auto part = Array<float>(most * columns);
    int64_t first = 0, count = 0;
    const auto write = [&] {
      const Shard local{count, first, 1};
      const Status status =
          count == 0 ? Status() : local_->Write(exec, table, slot, local, part.get());
      first += count;
      count = 0;
      return status;
    };
    for (int64_t i = 0; i < own.count; ++i) {
      const int64_t row = own.first + i * own.step;
      const int64_t at = row < rows.first ? -1 : (row - rows.first) / rows.step;
      const bool is_there = at >= 0 && at < rows.count && rows.first + at * rows.step == row;
      if (count == most || (count > 0 && !is_there)) OPWRIGHT_RETURN_IF_ERROR(write());
      if (!is_there) continue;
      if (count == 0) first = i;
      std::memcpy(part.get() + count * columns, from + at * columns,
                  static_cast<size_t>(columns) * sizeof(float));
      ++count;
    }
    return write();
  }

  // If `rows` are exactly this host's shard, they are read without other hosts. All other rows
  // are gathered from all hosts.
  Status Read(ExecutionContext* exec, int64_t table, int64_t slot, const Shard& rows,
              float* to) override {
    const RowSharding& sharding = At(shardings_, table);
    const Shard own = sharding.ShardOf(host());
    if (rows.count == own.count && rows.first == own.first &&
        (rows.step == own.step || rows.count == 1)) {
      return local_->Read(exec, table, slot, {own.count, 0, 1}, to);
    }
    OPWRIGHT_RETURN_IF_ERROR(request_queue_->EnsureHandshake());
    const int64_t columns = At(whole_->tables, table).columns(slot);
    const int64_t bytes = columns * static_cast<int64_t>(sizeof(float));
    const int64_t part = RowsInPart(columns);
    for (int64_t first = 0; first < rows.count; first += part) {
      const int64_t end = std::min(rows.count, first + part);
      std::vector<int64_t> counts(static_cast<size_t>(hosts()));
      for (int64_t i = first; i < end; ++i) {
        ++At(counts, sharding.HostOf(rows.first + i * rows.step));
      }
      const Buffer mine = exchange_->Allocate(At(counts, host()) * bytes);
      char* next = mine.data;
      Shard run{0, 0, 1};
      const auto read = [&] {
        const Status status = run.count == 0 ? Status()
                                             : local_->Read(exec, table, slot, run,
                                                            reinterpret_cast<float*>(next));
        next += run.count * bytes;
        run.count = 0;
        return status;
      };
      for (int64_t i = first; i < end; ++i) {
        const int64_t row = rows.first + i * rows.step;
        if (sharding.HostOf(row) != host()) continue;
        const int64_t at = sharding.LocalOf(row, host());
        if (run.count > 0 && at != run.first + run.count) OPWRIGHT_RETURN_IF_ERROR(read());
        if (run.count++ == 0) run.first = at;
      }
      OPWRIGHT_RETURN_IF_ERROR(read());
      const Buffers out(static_cast<size_t>(hosts()), mine);
      Buffers in;
      for (int64_t h = 0; h < hosts(); ++h) {
        in.push_back(h == host() ? mine : exchange_->Allocate(At(counts, h) * bytes));
      }
      OPWRIGHT_RETURN_IF_ERROR(exchange_->AllToAll(Channel::kTables, reads_++, out, in));
      std::vector<const char*> from;
      for (const Buffer& buffer : in) from.push_back(buffer.data);
      for (int64_t i = first; i < end; ++i) {
        const char*& at = At(from, sharding.HostOf(rows.first + i * rows.step));
        std::memcpy(to + i * columns, at, static_cast<size_t>(bytes));
        at += bytes;
      }
    }
    return {};
  }

  // Starts the requests to other hosts in the background. Lookups and updates wait for them.
  PreparedRef PrepareAhead(ExecutionContext* exec,
                           std::shared_ptr<const Batch> batch) override {
    return request_queue_->Submit(exec, std::move(batch));
  }
  StatusOr<PreparedRef> Prepare(ExecutionContext* exec,
                                std::shared_ptr<const Batch> batch) override {
    return PrepareAhead(exec, std::move(batch));
  }

  Status Lookup(ExecutionContext* exec, PreparedBatch* prepared,
                float* const* outputs) override {
    SharedBatch& batch = AsShared(prepared);
    const std::vector<PreparedRef>* incoming;
    OPWRIGHT_RETURN_IF_ERROR(
        request_queue_->AwaitIncoming(exec, &batch, local_.get(), &incoming));
    Buffers out, in;
    request_queue_->AllocateBuffers(batch, 0, &out, &in);
    for (int64_t h = 0; h < hosts(); ++h) {
      PreparedBatch* const request = At(*incoming, h).get();
      OPWRIGHT_RETURN_IF_ERROR(
          local_->Lookup(exec, request, Tables(At(out, h), UnitsOf(*request)).data()));
    }
    OPWRIGHT_RETURN_IF_ERROR(request_queue_->AllToAll(&batch, Channel::kRows, {}, out, in));
    // For each table, the request units from all hosts (request_plan.h), one after the other.
    // The bags of units_of are looked up in this array as in a small table.
    std::vector<float*> units;
    for (size_t t = 0; t < whole_->tables.size(); ++t) {
      units.push_back(exec->Allocate<float>(batch.Units(t) * whole_->tables[t].dimension));
    }
    exec->For(hosts(), [&](int64_t h) {
      const std::vector<float*> from = Tables(At(in, h), UnitsOf(batch, h));
      for (size_t t = 0; t < whole_->tables.size(); ++t) {
        const int64_t dimension = whole_->tables[t].dimension;
        const int64_t count = batch.Units(t, h);
        if (count == 0) continue;
        std::memcpy(units[t] + At(batch.plan().begins[t], h) * dimension, from[t],
                    static_cast<size_t>(count * dimension) * sizeof(float));
      }
    });
    std::vector<FeatureLookup> lookups;
    for (size_t f = 0; f < whole_->features.size(); ++f) {
      const size_t t = static_cast<size_t>(whole_->features[f].table);
      const TableConfig& table = whole_->tables[t];
      const Bags& bags = batch.plan().units_of[f];
      lookups.push_back({{units[t], table.dimension, table.dimension, false,
                          table.quantization.enabled ? &table.quantization : nullptr},
                         &bags,
                         bags.indices.get(),
                         outputs[f]});
    }
    LookUpFeatures(exec, std::move(lookups));
    return {};
  }

  void Refuse(const Status& why) override { request_queue_->Refuse(why); }
  void Drop(const PreparedRef& batch) override {
    request_queue_->Drop(std::static_pointer_cast<SharedBatch>(batch));
  }

  Status Share(ExecutionContext* exec, PreparedBatch* prepared, const Status& own,
               const std::vector<const float*>& gradients,
               const std::vector<float>& rates) override {
    SharedBatch& batch = AsShared(prepared);
    const std::vector<PreparedRef>* incoming;
    OPWRIGHT_RETURN_IF_ERROR(
        request_queue_->AwaitIncoming(exec, &batch, local_.get(), &incoming));
    const size_t rate_bytes = static_cast<size_t>(request_queue_->RateBytes());
    Buffers out, in;
    request_queue_->AllocateBuffers(batch, request_queue_->RateBytes(), &in, &out);
    if (own.ok()) {
      std::vector<std::vector<float*>> sums;  // Indexed by host and table.
      for (int64_t h = 0; h < hosts(); ++h) {
        const std::vector<int64_t> units = UnitsOf(batch, h);
        sums.push_back(Tables(At(out, h), units));
        std::memcpy(At(out, h).data + BytesOf(units), rates.data(), rate_bytes);
      }
      for (size_t t = 0; t < whole_->tables.size(); ++t) {
        SumGradients(exec, static_cast<int64_t>(t), batch, gradients, sums);
      }
    }
    OPWRIGHT_RETURN_IF_ERROR(
        request_queue_->AllToAll(&batch, Channel::kGradients, own, out, in));
    // Each host compares the rates of all hosts with its own, so all hosts find a difference.
    for (int64_t h = 0; h < hosts(); ++h) {
      const int64_t bytes = BytesOf(UnitsOf(*At(*incoming, h)));
      if (std::memcmp(At(in, h).data + bytes, rates.data(), rate_bytes) == 0) continue;
      return InvalidArgumentError(exchange_->Describe(h) + " sends other learning rates than " +
                                  exchange_->Describe(host()) + " for the same step");
    }
    batch.gradients = std::move(in);
    return {};
  }

  Status Update(ExecutionContext* exec, const std::vector<CoreGradients>& cores,
                const std::vector<float>& rates) override {
    std::vector<CoreGradients> all;
    for (const CoreGradients& core : cores) {
      SharedBatch& batch = AsShared(core.batch);
      const std::vector<PreparedRef>* incoming;
      OPWRIGHT_RETURN_IF_ERROR(
          request_queue_->AwaitIncoming(exec, &batch, local_.get(), &incoming));
      for (int64_t h = 0; h < hosts(); ++h) {
        PreparedBatch* const request = At(*incoming, h).get();
        const std::vector<float*> gradients = Tables(At(batch.gradients, h), UnitsOf(*request));
        all.push_back({request, {gradients.begin(), gradients.end()}});
      }
    }
    return local_->Update(exec, all, rates);
  }

  Status CheckGradients(ExecutionContext* exec,
                        const std::vector<const float*>& gradients) override {
    return CheckFinite(exec, *whole_, gradients);
  }
  Status CheckUpdates(bool wait) override { return local_->CheckUpdates(wait); }

 private:
  int64_t hosts() const { return exchange_->hosts(); }
  int64_t host() const { return exchange_->host(); }

  // All prepared batches of this store are SharedBatches.
  static SharedBatch& AsShared(PreparedBatch* batch) {
    return *static_cast<SharedBatch*>(batch);
  }

  static int64_t RowsInPart(int64_t columns) {
    return std::max<int64_t>(1, (int64_t{4} << 20) / columns);
  }

  // For each table, the number of units that another host requests from this one.
  std::vector<int64_t> UnitsOf(const PreparedBatch& request) const {
    std::vector<int64_t> units;
    for (const Bags& bags : request.batch().features) units.push_back(bags.samples);
    return units;
  }
  // For each table, the number of units that this host requests from host `other`.
  std::vector<int64_t> UnitsOf(const SharedBatch& batch, int64_t other) const {
    std::vector<int64_t> units;
    for (size_t t = 0; t < whole_->tables.size(); ++t) units.push_back(batch.Units(t, other));
    return units;
  }
  // The bytes of the units of all tables. A message has them table by table.
  int64_t BytesOf(const std::vector<int64_t>& units) const {
    int64_t floats = 0;
    for (size_t t = 0; t < units.size(); ++t) floats += units[t] * whole_->tables[t].dimension;
    return floats * static_cast<int64_t>(sizeof(float));
  }
  std::vector<float*> Tables(const Buffer& buffer, const std::vector<int64_t>& units) const {
    std::vector<float*> tables;
    float* next = reinterpret_cast<float*>(buffer.data);
    for (size_t t = 0; t < units.size(); ++t) {
      tables.push_back(next);
      next += units[t] * whole_->tables[t].dimension;
    }
    return tables;
  }

  // Sums the gradients of each request unit in this batch. Writes each sum to the unit's place
  // in the message to its owner (`sums`).
  void SumGradients(ExecutionContext* exec, int64_t t, const SharedBatch& batch,
                    const std::vector<const float*>& gradients,
                    const std::vector<std::vector<float*>>& sums) const {
    const std::vector<int64_t>& begins = At(batch.plan().begins, t);
    const int64_t dimension = At(whole_->tables, t).dimension;
    int64_t* const offsets = exec->Allocate<int64_t>(begins.back() + 2);
    std::fill_n(offsets, begins.back() + 2, 0);
    int64_t ids = 0;
    for (size_t f = 0; f < batch.plan().units_of.size(); ++f) {
      if (whole_->features[f].table != t) continue;
      const Bags& bags = batch.plan().units_of[f];
      for (int64_t i = 0; i < bags.count(); ++i) ++offsets[bags.indices.get()[i] + 2];
      ids += bags.count();
    }
    for (int64_t i = 2; i < begins.back() + 2; ++i) offsets[i] += offsets[i - 1];
    // offsets[u + 1] is now where the contributions of unit u begin. The loop below moves
    // offsets[u + 1] to their end. Afterwards offsets[u] is where those of unit u begin.
    Contribution* const contributions = exec->Allocate<Contribution>(ids);
    for (size_t f = 0; f < batch.plan().units_of.size(); ++f) {
      if (whole_->features[f].table != t) continue;
      const Bags& bags = batch.plan().units_of[f];
      for (int64_t s = 0; s < bags.samples; ++s) {
        const float scale = bags.scales ? bags.scales.get()[s] : 1.f;
        for (int64_t i = bags.offsets.get()[s]; i < bags.offsets.get()[s + 1]; ++i) {
          const float coefficient =
              bags.per_sample_weights ? scale * bags.per_sample_weights.get()[i] : scale;
          contributions[offsets[bags.indices.get()[i] + 1]++] = {gradients[f] + s * dimension,
                                                                 coefficient};
        }
      }
    }
    constexpr double kMost = std::numeric_limits<float>::max();
    for (int64_t h = 0; h < hosts(); ++h) {
      float* const to = At(At(sums, h), t);
      const int64_t begin = At(begins, h), count = At(begins, h + 1) - begin;
      const int64_t part = std::max<int64_t>(1, (int64_t{16} << 10) / dimension);
      exec->For((count + part - 1) / part, [&](int64_t p) {
        std::vector<double> sum(static_cast<size_t>(dimension));
        for (int64_t i = p * part; i < std::min(count, (p + 1) * part); ++i) {
          std::fill(sum.begin(), sum.end(), 0.);
          for (int64_t c = offsets[begin + i]; c < offsets[begin + i + 1]; ++c) {
            const double coefficient = contributions[c].coefficient;
            const float* const gradient = contributions[c].gradient;
            for (int64_t k = 0; k < dimension; ++k) sum.data()[k] += coefficient * gradient[k];
          }
          for (int64_t k = 0; k < dimension; ++k) {
            // An infinite sum would become NaN if the owner multiplied it by a weight of 0.
            to[i * dimension + k] =
                static_cast<float>(std::clamp(sum.data()[k], -kMost, kMost));
          }
        }
      });
    }
  }

  const std::shared_ptr<Exchange> exchange_;
  const std::unique_ptr<TableStore> local_;
  const Configuration* whole_ = nullptr;
  Configuration own_;  // The configuration of `local_`: this host's shards.
  std::vector<RowSharding> shardings_;
  std::shared_ptr<ShardRequestQueue> request_queue_;
  // The number of the next exchange on Channel::kTables. All hosts make the same exchanges.
  int64_t reads_ = 0;
};

}  // namespace

std::unique_ptr<DistributedStore> MakeHostsStore(std::shared_ptr<Exchange> exchange,
                                                 std::unique_ptr<TableStore> local) {
  return std::make_unique<HostsStore>(std::move(exchange), std::move(local));
}

}  // namespace opwright::embedding
