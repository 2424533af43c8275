// The messages in which hosts send each other their requests: counts first, then ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "embedding/cpu/request_plan.h"

namespace opwright::embedding {

// What a host says of one request. It goes to every other host.
struct RequestHeader {
  static constexpr int64_t kRefused = -1;  // A mode: the host refuses the batch.
  struct TableCounts {
    int64_t exchange_mode = 0, units = 0, ids = 0;
  };

  RequestHeader() = default;
  RequestHeader(int64_t combiners, int64_t mode, const ShardRequest& request);

  static int64_t BytesOf(size_t tables);
  static RequestHeader Decode(const char* from, size_t tables);
  void Encode(char* to) const;

  int64_t combiners = 0;  // A fingerprint of those of all features.
  int64_t mode = 0;       // Mode, or kRefused.
  std::vector<TableCounts> tables;
};

// A request with the sizes of this header, whose ids are still to come if `has_arrays`. Not
// empty: what is wrong with the header.
std::string MakeRequest(const Configuration& whole, const RequestHeader& header, Mode mode,
                        bool has_arrays, ShardRequest* request);

// The ids of a request, table by table: lengths of pooled vectors, rows, weights.
int64_t IdsBytes(const Configuration& whole, const ShardRequest& request);
void EncodeIds(const Configuration& whole, const ShardRequest& request, char* to);
// Fills the arrays of a request. `own` has this host's shards, `host` names it. Not empty: what
// is wrong with the ids.
std::string DecodeIds(const Configuration& whole, const Configuration& own,
                      const std::string& host, const char* from, ShardRequest* request);

}  // namespace opwright::embedding
