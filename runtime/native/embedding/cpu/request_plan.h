// The plan of which rows or partially pooled vectors a batch requests from each host.
//
// A request unit of a table is a unique row or a partially pooled vector, whichever needs less
// data to be sent. A partially pooled vector is the sum of those rows of a sample that are on
// one host.
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

// The kind of a table's request units. The values are part of the protocol (kHostProtocol).
enum class ExchangeMode : int64_t { kUnpooled, kPartialPooling, kWeightedPartialPooling };

// The request of one host to another. Each table is a feature of `batch`, and each unit is a
// sample of that feature. The ids are rows of the other host's shard.
struct ShardRequest {
  std::vector<ExchangeMode> modes;  // One for each table.
  Batch batch;
};

// The bytes of an id in a message: 4 if all rows of the table fit in int32, else 8.
int64_t IdBytes(const TableConfig& table);
// The bytes of one table in a message. They are the lengths of pooled vectors, the ids, and the
// weights.
int64_t RequestBytes(ExchangeMode mode, int64_t units, int64_t ids, int64_t id_bytes);

// The requests of a batch, and how its samples are computed from the units in the replies.
struct RequestPlan {
  RequestPlan(const Configuration& configuration, int64_t hosts, Mode mode);

  std::vector<ShardRequest> requests;  // One for each host.
  // begins[table][host] is the number of the table's units from the hosts before `host`. The
  // last element for each table is the number of units from all hosts.
  std::vector<std::vector<int64_t>> begins;
  // For each feature, one bag of units for each sample. The sample's activation is the sum of
  // these units, with the weights and the scale of the bag.
  std::vector<Bags> units_of;
};

// Plans the requests of one table. Tables can be planned concurrently. Throws std::bad_alloc.
void PlanRequests(const Configuration& configuration, const RowSharding& sharding, int64_t host,
                  int64_t table, const Batch& batch, RequestPlan* plan);

}  // namespace opwright::embedding
