// The messages with which hosts send each other their requests: first a header with counts,
// then the ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "embedding/cpu/request_plan.h"

namespace opwright::embedding {

// The header of a request. A host sends one header to each host.
struct RequestHeader {
  static constexpr int64_t kRefused = -1;  // The mode of a host that refuses the batch.
  struct TableCounts {
    int64_t exchange_mode = 0, units = 0, ids = 0;
  };

  RequestHeader() = default;
  RequestHeader(int64_t combiners, int64_t mode, const ShardRequest& request);

  static int64_t BytesOf(size_t tables);
  static RequestHeader Decode(const char* from, size_t tables);
  void Encode(char* to) const;

  int64_t combiners = 0;  // A fingerprint of the combiners of all features.
  int64_t mode = 0;       // A value of Mode, or kRefused.
  std::vector<TableCounts> tables;
};

// Makes a request with the sizes of a header. If `has_arrays` is true, it allocates the arrays
// for the ids, which are received later. Returns what is wrong with the header, or an empty
// text.
std::string MakeRequest(const Configuration& whole, const RequestHeader& header, Mode mode,
                        bool has_arrays, ShardRequest* request);

// The message with the ids of a request. For each table, it has the lengths of pooled vectors,
// the rows, and the weights.
int64_t IdsBytes(const Configuration& whole, const ShardRequest& request);
void EncodeIds(const Configuration& whole, const ShardRequest& request, char* to);
// Fills the arrays of a request from such a message. `own` has the shards of this host, and
// errors name this host as `host`. Returns what is wrong with the ids, or an empty text.
std::string DecodeIds(const Configuration& whole, const Configuration& own,
                      const std::string& host, const char* from, ShardRequest* request);

}  // namespace opwright::embedding
