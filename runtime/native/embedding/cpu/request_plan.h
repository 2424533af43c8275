// Which rows or partially pooled vectors a batch requests of each host.
//
// A request unit of a table is a unique row; or, where that is less to send, a partially pooled
// vector: the sum of a sample's rows on one host.
#pragma once

#include <cstdint>
#include <vector>

#include "embedding/batch.h"
#include "embedding/spec.h"

namespace opwright::embedding {

// Which host owns each row of a table, and the row's index in that host's shard.
class RowSharding {
 public:
  RowSharding(int64_t rows, int64_t hosts, bool by_remainder)
      : rows_(rows),
        hosts_(hosts),
        each_(rows / hosts),
        more_(rows % hosts),
        by_remainder_(by_remainder) {}

  int64_t hosts() const { return hosts_; }
  int64_t HostOf(int64_t row) const {
    if (by_remainder_) return row % hosts_;
    const int64_t longer = more_ * (each_ + 1);
    return row < longer ? row / (each_ + 1) : more_ + (row - longer) / each_;
  }
  Shard ShardOf(int64_t host) const {
    return embedding::ShardOf(rows_, hosts_, host, by_remainder_);
  }
  int64_t LocalOf(int64_t row, int64_t host) const {
    const Shard shard = ShardOf(host);
    return (row - shard.first) / shard.step;
  }

 private:
  int64_t rows_, hosts_, each_, more_;
  bool by_remainder_;
};

// What the request units of a table are. The values are part of the protocol.
enum class ExchangeMode : int64_t { kUnpooled, kPartialPooling, kWeightedPartialPooling };

// What one host requests of another. Each table is a feature of `batch`, each unit a sample of
// it. The ids are rows of the other host's shard.
struct ShardRequest {
  std::vector<ExchangeMode> modes;  // By table.
  Batch batch;
};

// The bytes of an id in a message: as few as the table's size allows.
int64_t IdBytes(const TableConfig& table);
// The bytes of one table in a message: lengths of pooled vectors, ids, weights.
int64_t RequestBytes(ExchangeMode mode, int64_t units, int64_t ids, int64_t id_bytes);

// What a batch requests, and where its samples find the replies.
struct RequestPlan {
  RequestPlan(const Configuration& configuration, int64_t hosts, Mode mode);

  std::vector<ShardRequest> requests;  // By host.
  // By table and host: the number of units of the hosts before it; last, of all hosts.
  std::vector<std::vector<int64_t>> begins;
  // By feature: the units that make each sample.
  std::vector<Bags> units_of;
};

// Plans the requests of one table. Tables can be planned concurrently. Throws std::bad_alloc.
void PlanRequests(const Configuration& configuration, const RowSharding& sharding, int64_t host,
                  int64_t table, const Batch& batch, RequestPlan* plan);

}  // namespace opwright::embedding
