#include "embedding/cpu/request_messages.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"

namespace opwright::embedding {
namespace {

// The limit for a request of its ids and the floats of its units, counted together.
constexpr int64_t kMaxValues = int64_t{1} << 40;

template <class T>
char* Put(const T* values, int64_t count, char* to) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(T);
  if (bytes != 0) std::memcpy(to, values, bytes);
  return to + bytes;
}
template <class T>
const char* Take(const char* from, int64_t count, T* values) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(T);
  if (bytes != 0) std::memcpy(values, from, bytes);
  return from + bytes;
}
char* PutNarrow(const int64_t* values, int64_t count, char* to) {
  for (int64_t i = 0; i < count; ++i) {
    const int32_t value = static_cast<int32_t>(values[i]);
    to = Put(&value, 1, to);
  }
  return to;
}
const char* TakeNarrow(const char* from, int64_t count, int64_t* values) {
  for (int64_t i = 0; i < count; ++i) {
    int32_t value;
    from = Take(from, 1, &value);
    values[i] = value;
  }
  return from;
}

std::string TableOf(const Configuration& whole, size_t table) {
  return Describe(whole, static_cast<int64_t>(table));
}

// Reads the lengths of pooled vectors and turns them into offsets. Returns what is wrong with
// them, or an empty text.
std::string TakeLengths(const std::string& table, bool pooled, const char** next, Bags* bags) {
  const int64_t ids = bags->count();
  int64_t* const offsets = bags->offsets.get();
  for (int64_t i = 0; i < bags->samples; ++i) {
    int64_t length = 1;
    if (pooled) *next = TakeNarrow(*next, 1, &length);
    if (length < 1 || length > ids - offsets[i]) {
      return "a sum of " + std::to_string(length) + " rows of " + table;
    }
    offsets[i + 1] = offsets[i] + length;
  }
  if (bags->count() == ids) return "";
  return "sums of " + std::to_string(bags->count()) + " rows of " + table + ", not of " +
         std::to_string(ids);
}

// The index of the first id that is no row of the shard, or -1.
int64_t FindMissingRow(const Bags& bags, int64_t rows) {
  const int64_t* const begin = bags.indices.get();
  const int64_t* const end = begin + bags.count();
  const int64_t* const found =
      std::find_if(begin, end, [rows](int64_t row) { return row < 0 || row >= rows; });
  return found == end ? -1 : found - begin;
}

}  // namespace

RequestHeader::RequestHeader(int64_t combiners, int64_t mode, const ShardRequest& request)
    : combiners(combiners), mode(mode) {
  for (size_t t = 0; t < request.modes.size(); ++t) {
    const Bags& bags = request.batch.features[t];
    tables.push_back({static_cast<int64_t>(request.modes[t]), bags.samples, bags.count()});
  }
}

int64_t RequestHeader::BytesOf(size_t tables) {
  return static_cast<int64_t>((2 + 3 * tables) * sizeof(int64_t));
}

void RequestHeader::Encode(char* to) const {
  to = Put(&combiners, 1, to);
  to = Put(&mode, 1, to);
  for (const TableCounts& one : tables) {
    to = Put(&one.exchange_mode, 1, to);
    to = Put(&one.units, 1, to);
    to = Put(&one.ids, 1, to);
  }
}

RequestHeader RequestHeader::Decode(const char* from, size_t tables) {
  RequestHeader header;
  from = Take(from, 1, &header.combiners);
  from = Take(from, 1, &header.mode);
  header.tables.resize(tables);
  for (TableCounts& one : header.tables) {
    from = Take(from, 1, &one.exchange_mode);
    from = Take(from, 1, &one.units);
    from = Take(from, 1, &one.ids);
  }
  return header;
}

std::string MakeRequest(const Configuration& whole, const RequestHeader& header, Mode mode,
                        bool has_arrays, ShardRequest* request) {
  constexpr int64_t kUnpooled = static_cast<int64_t>(ExchangeMode::kUnpooled);
  constexpr int64_t kLast = static_cast<int64_t>(ExchangeMode::kWeightedPartialPooling);
  request->batch.mode = mode;
  Checked all = 0;
  for (size_t t = 0; t < whole.tables.size(); ++t) {
    const auto [exchange_mode, units, ids] = header.tables[t];
    const bool known = exchange_mode >= 0 && exchange_mode <= kLast;
    all += Checked(std::max<int64_t>(units, -1)) * whole.tables[t].dimension;
    all += std::max<int64_t>(ids, -1);
    // A pooled vector has at least one id, a row exactly one.
    const bool fits = exchange_mode == kUnpooled ? ids == units : ids >= units;
    if (!known || units < 0 || !fits || !all.AtMost(kMaxValues)) {
      return std::to_string(units) + " units of " + std::to_string(ids) + " rows of " +
             TableOf(whole, t);
    }
    request->modes.push_back(static_cast<ExchangeMode>(exchange_mode));
    Bags& bags = request->batch.features.emplace_back();
    if (!has_arrays) continue;
    bags.samples = units;
    bags.offsets = Array<int64_t>(units + 1);
    bags.offsets.get()[units] = ids;
    bags.indices = Array<int64_t>(ids);
    if (exchange_mode == kLast) bags.per_sample_weights = Array<float>(ids);
  }
  return "";
}

int64_t IdsBytes(const Configuration& whole, const ShardRequest& request) {
  int64_t bytes = 0;
  for (size_t t = 0; t < request.modes.size(); ++t) {
    const Bags& bags = request.batch.features[t];
    bytes +=
        RequestBytes(request.modes[t], bags.samples, bags.count(), IdBytes(whole.tables[t]));
  }
  return bytes;
}

void EncodeIds(const Configuration& whole, const ShardRequest& request, char* to) {
  for (size_t t = 0; t < request.modes.size(); ++t) {
    const Bags& bags = request.batch.features[t];
    const int64_t* const offsets = bags.offsets.get();
    const bool pooled = request.modes[t] != ExchangeMode::kUnpooled;
    for (int64_t i = 0; pooled && i < bags.samples; ++i) {
      const int64_t length = offsets[i + 1] - offsets[i];
      to = PutNarrow(&length, 1, to);
    }
    to = IdBytes(whole.tables[t]) == 4 ? PutNarrow(bags.indices.get(), bags.count(), to)
                                       : Put(bags.indices.get(), bags.count(), to);
    if (request.modes[t] == ExchangeMode::kWeightedPartialPooling) {
      to = Put(bags.per_sample_weights.get(), bags.count(), to);
    }
  }
}

std::string DecodeIds(const Configuration& whole, const Configuration& own,
                      const std::string& host, const char* from, ShardRequest* request) {
  for (size_t t = 0; t < request->modes.size(); ++t) {
    Bags& bags = request->batch.features[t];
    const int64_t ids = bags.count(), rows = own.tables[t].rows;
    const bool pooled = request->modes[t] != ExchangeMode::kUnpooled;
    const std::string problem = TakeLengths(TableOf(whole, t), pooled, &from, &bags);
    if (!problem.empty()) return problem;
    from = IdBytes(whole.tables[t]) == 4 ? TakeNarrow(from, ids, bags.indices.get())
                                         : Take(from, ids, bags.indices.get());
    const int64_t missing = FindMissingRow(bags, rows);
    if (missing >= 0) {
      return "row " + std::to_string(bags.indices.get()[missing]) + " of the " +
             std::to_string(rows) + " of " + TableOf(whole, t) + " in " + host;
    }
    if (request->modes[t] == ExchangeMode::kWeightedPartialPooling) {
      from = Take(from, ids, bags.per_sample_weights.get());
    }
  }
  return "";
}

}  // namespace opwright::embedding
