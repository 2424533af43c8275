#include "sparsecore/limits.h"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>

#include "base/text.h"
#include "embedding/system_number.h"

namespace opwright::sparsecore {
namespace {

struct Counters {
  std::mutex mutex;
  std::map<std::string, DroppedIds> of_tables;
};
Counters& AllCounters() {
  // It is never destroyed, because ops may run until the process ends.
  static auto* const counters = new Counters;
  return *counters;
}

struct Statistics {
  std::mutex mutex;
  int64_t system = 0;  // The number of the TPU system that the numbers belong to.
  size_t bytes = 0;
  std::map<std::string, CsrLimits> of_tables;
};
// Returns the statistics of the present system. Requires a lock.
std::map<std::string, CsrLimits>& Present(Statistics* statistics) {
  if (const int64_t system = embedding::SystemNumber(); statistics->system != system) {
    statistics->system = system;
    statistics->bytes = 0;
    statistics->of_tables.clear();
  }
  return statistics->of_tables;
}
Statistics& AllStatistics() {
  // It is never destroyed, because ops may run until the process ends.
  static auto* const statistics = new Statistics;
  return *statistics;
}

int64_t CountDistinct(const int32_t* begin, const int32_t* end) {
  int64_t distinct = 0;
  for (const int32_t* row = begin; row != end; ++row) {
    if (row == begin || *row != row[-1]) ++distinct;
  }
  return distinct;
}

void Raise(int64_t count, int64_t core, int64_t shard, Demand::Most* most) {
  if (count > most->count) *most = {count, core, shard};
}

}  // namespace

Status CheckSortedRows(const std::vector<SortedRows>& of_cores) {
  for (size_t i = 0; i < of_cores.size(); ++i) {
    const std::vector<int32_t>& counts = of_cores[i].id_counts;
    if (counts.size() < 2 || counts.size() != of_cores[0].id_counts.size() ||
        counts.front() != 0 || !std::is_sorted(counts.begin(), counts.end()) ||
        counts.back() > of_cores[i].size) {
      return InvalidArgumentError(
          StrCat("id_counts_list[", i, "]"),
          StrCat("must have an element more than there are shards, and ascend from 0 to at "
                 "most the number of ids, which is ",
                 of_cores[i].size));
    }
  }
  return OkStatus();
}

Demand MeasureDemand(const std::vector<SortedRows>& of_cores) {
  Demand demand;
  for (size_t core = 0; core < of_cores.size(); ++core) {
    const SortedRows& sorted = of_cores[core];
    for (size_t shard = 0; shard + 1 < sorted.id_counts.size(); ++shard) {
      const int32_t begin = sorted.id_counts[shard], end = sorted.id_counts[shard + 1];
      const auto c = static_cast<int64_t>(core), s = static_cast<int64_t>(shard);
      Raise(end - begin, c, s, &demand.ids);
      Raise(CountDistinct(sorted.rows + begin, sorted.rows + end), c, s, &demand.distinct_rows);
      demand.capacity = AlignUp(demand.capacity + end - begin);
    }
  }
  return demand;
}

int64_t LeastPerSample(int64_t capacity, int64_t samples, int64_t present) {
  const int64_t step = std::gcd(present, kSparseCoreAlignment);
  const int64_t unit = samples * step;
  return std::max<int64_t>(1, (capacity + unit - 1) / unit) * step;
}

Status StoreStatistics(const std::string& table, int64_t ids, int64_t distinct_rows) {
  constexpr size_t kMostBytes = 4 << 20, kBytesOfTable = 64;  // Besides its name.
  Statistics& all = AllStatistics();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::map<std::string, CsrLimits>& of_tables = Present(&all);
  if (of_tables.count(table) == 0) {
    const size_t bytes = table.size() + kBytesOfTable;
    if (bytes > kMostBytes - all.bytes) {
      return ResourceExhaustedError(StrCat("table_name: the statistics of ", of_tables.size(),
                                           " tables, and a name of ", table.size(),
                                           " bytes, take more than ", kMostBytes,
                                           " bytes; ShutdownDistributedTPU forgets them"));
    }
    all.bytes += bytes;
  }
  CsrLimits& most = of_tables[table];
  const auto raise = [](int64_t number, int64_t* to) {
    constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
    if (number > 0) *to = *to == kNone ? number : std::max(*to, number);
  };
  raise(ids, &most.ids);
  raise(distinct_rows, &most.distinct_rows);
  return OkStatus();
}

CsrLimits StatisticsOf(const std::string& table) {
  Statistics& all = AllStatistics();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const std::map<std::string, CsrLimits>& of_tables = Present(&all);
  const auto found = of_tables.find(table);
  return found == of_tables.end() ? CsrLimits{} : found->second;
}

bool AddDroppedIds(const std::string& table, int64_t ids, int64_t per_sample) {
  Counters& counters = AllCounters();
  const std::lock_guard<std::mutex> lock(counters.mutex);
  DroppedIds& dropped = counters.of_tables[table];
  dropped.ids += ids;
  dropped.per_sample = std::max(dropped.per_sample, per_sample);
  return ++dropped.batches == 1;
}

DroppedIds DroppedIdsOf(const std::string& table) {
  Counters& counters = AllCounters();
  const std::lock_guard<std::mutex> lock(counters.mutex);
  const auto found = counters.of_tables.find(table);
  return found == counters.of_tables.end() ? DroppedIds{} : found->second;
}

void ForgetDroppedIds() {
  Counters& counters = AllCounters();
  const std::lock_guard<std::mutex> lock(counters.mutex);
  counters.of_tables.clear();
}

}  // namespace opwright::sparsecore
