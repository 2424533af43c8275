// Tables in the memory of the machine.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <new>
#include <string>

#include "core/embedding/rows.h"
#include "core/embedding/table_store.h"

namespace opwright {
namespace embedding {
namespace {

// Zeros that take no memory before they are written, in large pages where there are some:
// random rows then miss the TLB far less often.
class Pages {
 public:
  Pages() = default;
  Pages(const Pages&) = delete;
  Pages(Pages&& other) noexcept
      : data_(other.data_), mapped_(other.mapped_), bytes_(other.bytes_) {
    other.mapped_ = nullptr;
  }
  ~Pages() {
    if (mapped_) munmap(mapped_, bytes_);
  }

  bool Map(size_t bytes) {
    // The kernel makes large pages of whole, aligned ones only.
    constexpr size_t kLarge = 2 << 20;
    const size_t slack = bytes >= kLarge ? kLarge : 0;
    void* const mapped = mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return false;
    mapped_ = mapped;
    bytes_ = bytes + slack;
    char* data = static_cast<char*>(mapped);
    if (slack) {
      data += (kLarge - reinterpret_cast<uintptr_t>(mapped) % kLarge) % kLarge;
#if defined(MADV_HUGEPAGE)
      madvise(data, bytes / kLarge * kLarge, MADV_HUGEPAGE);
#endif
    }
    data_ = reinterpret_cast<float*>(data);
    return true;
  }

  float* get() const { return data_; }

 private:
  float* data_ = nullptr;
  void* mapped_ = nullptr;
  size_t bytes_ = 0;
};

struct Table {
  TableConfig config;
  int64_t stride = 0;  // Of a row: its weights and its slots.
  Pages pages;
};

// One id of a step: the row that it updates, and with what.
struct Entry {
  int64_t row;
  Contribution contribution;
};

// The gradients of a step that go to one table, in buckets of rows: no row is in two of
// them, so that they can be updated at the same time, and in each the ids keep their order.
struct Plan {
  struct Source {
    const Bags* bags;
    const float* gradient;  // [samples, dimension]
  };
  int64_t table;
  std::vector<Source> sources;
  int64_t count = 0;
  int bits = 0;             // There are 2^bits buckets.
  int64_t* ends = nullptr;  // Of each bucket, in entries.
  Entry* entries = nullptr;

  int64_t buckets() const { return int64_t{1} << bits; }
  // Hot rows lie anywhere in a table, and should not all meet in one bucket.
  int64_t BucketOf(int64_t row) const {
    if (bits == 0) return 0;
    return static_cast<int64_t>((static_cast<uint64_t>(row) * 0x9E3779B97F4A7C15u) >>
                                (64 - bits));
  }
};

// Samples of one source, which one task sorts into buckets.
struct Part {
  int64_t plan;
  int64_t source;
  int64_t first, end;
  int64_t* next;  // By bucket: how many ids, and then where the next one goes.
};

constexpr int64_t kIdsInPart = 8192;
constexpr int64_t kIdsInBucket = 1024;
constexpr int kMostBits = 12;

// What one thread needs to put a bucket's entries in order of rows.
struct Bench {
  int32_t* slots;  // An open hash table of groups; -1 is free.
  int64_t* rows;   // By group.
  int32_t* starts;
  int32_t* group_of;  // By entry.
  Contribution* contributions;
  double* sum;
};

int64_t PowerOfTwo(int64_t at_least) {
  int64_t power = 1;
  while (power < at_least) power *= 2;
  return power;
}

// Groups entries by row, in the order in which rows first appear. Returns how many rows.
int64_t Group(const Entry* entries, int64_t count, const Bench& bench) {
  const int64_t size = PowerOfTwo(2 * count);
  std::memset(bench.slots, 0xFF, size * sizeof(int32_t));
  int64_t groups = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = entries[i].row;
    // The bucket came from the upper bits of this product.
    uint64_t at = static_cast<uint64_t>(row) * 0x9E3779B97F4A7C15u >> 20 & (size - 1);
    int32_t group;
    while ((group = bench.slots[at]) >= 0 && bench.rows[group] != row) at = (at + 1) & (size - 1);
    if (group < 0) {
      group = static_cast<int32_t>(groups++);
      bench.slots[at] = group;
      bench.rows[group] = row;
      bench.starts[group + 1] = 0;
    }
    bench.group_of[i] = group;
    ++bench.starts[group + 1];
  }
  bench.starts[0] = 0;
  for (int64_t g = 0; g < groups; ++g) bench.starts[g + 1] += bench.starts[g];
  // The table has done its work: it now says where a group's next entry goes.
  std::memcpy(bench.slots, bench.starts, groups * sizeof(int32_t));
  for (int64_t i = 0; i < count; ++i) {
    bench.contributions[bench.slots[bench.group_of[i]]++] = entries[i].contribution;
  }
  return groups;
}

class CpuTableStore : public TableStore {
 public:
  Maybe Allocate(const Configuration& configuration) override {
    configuration_ = &configuration;
    for (size_t i = 0; i < configuration.tables.size(); ++i) {
      Table table;
      table.config = configuration.tables[i];
      table.stride = table.config.dimension * (1 + table.config.slots());
      const double bytes = static_cast<double>(table.config.rows) * table.stride * sizeof(float);
      if (!table.pages.Map(table.config.rows * table.stride * sizeof(float))) {
        return OutOfMemory(Describe(configuration, static_cast<int64_t>(i)) + ": " +
                           std::to_string(table.config.rows) + " rows of " +
                           std::to_string(table.config.dimension) + " float32 with " +
                           std::to_string(table.config.slots()) + " slots take " +
                           std::to_string(bytes / (1 << 30)) + " GiB, more than there is");
      }
      tables_.push_back(std::move(table));
    }
    return {};
  }

  Maybe Write(Host* host, int64_t t, int64_t slot, const Shard& rows,
              const float* from) override {
    const Table& table = tables_[t];
    const int64_t dimension = table.config.dimension;
    ForRows(host, rows.count, dimension, [&](int64_t first, int64_t end) {
      for (int64_t i = first; i < end; ++i) {
        std::memcpy(RowOf(table, slot, rows, i), from + i * dimension,
                    dimension * sizeof(float));
      }
    });
    return {};
  }

  Maybe Read(Host* host, int64_t t, int64_t slot, const Shard& rows, float* to) override {
    const Table& table = tables_[t];
    const int64_t dimension = table.config.dimension;
    ForRows(host, rows.count, dimension, [&](int64_t first, int64_t end) {
      for (int64_t i = first; i < end; ++i) {
        std::memcpy(to + i * dimension, RowOf(table, slot, rows, i), dimension * sizeof(float));
      }
    });
    return {};
  }

  Maybe Lookup(Host* host, const Batch& batch, float* const* outputs) override {
    struct Task {
      int64_t feature, first, end;
    };
    constexpr int64_t kBytes = 128 << 10;
    std::vector<Task> tasks;
    for (size_t f = 0; f < batch.features.size(); ++f) {
      const Bags& bags = batch.features[f];
      const int64_t dimension = TableOf(f).config.dimension;
      // A sample costs its rows and its output.
      const int64_t bytes = (bags.count() + bags.samples) * dimension * 4;
      const int64_t parts = std::min(bags.samples, bytes / kBytes + 1);
      for (int64_t i = 0; i < parts; ++i) {
        tasks.push_back({static_cast<int64_t>(f), bags.samples * i / parts,
                         bags.samples * (i + 1) / parts});
      }
    }
    const RowKernels& kernels = SelectRowKernels();
    host->For(static_cast<int64_t>(tasks.size()), [&](int64_t i) {
      const Task& task = tasks[i];
      const Bags& bags = batch.features[task.feature];
      const Table& table = TableOf(task.feature);
      kernels.lookup({table.pages.get(), table.stride, table.config.dimension,
                      bags.starts.get(), bags.ids.get(), bags.weights.get(),
                      bags.scales.get(), task.first, task.end,
                      table.config.quantization.enabled ? &table.config.quantization : nullptr,
                      outputs[task.feature]});
    });
    return {};
  }

  Maybe Update(Host* host, const std::vector<CoreGradients>& cores,
               const std::vector<float>& rates) override {
    try {
      UpdateRows(host, cores, rates);
      return {};
    } catch (const std::bad_alloc&) {
      return OutOfMemory("no memory to sort its gradients");
    }
  }

  Maybe CheckGradients(Host* host, const std::vector<const float*>& gradients) override {
    for (size_t f = 0; f < gradients.size(); ++f) {
      const int64_t dimension = TableOf(f).config.dimension;
      const int64_t count = configuration_->features[f].samples() * dimension;
      const float* const values = gradients[f];
      if (Finite(host, count, values)) continue;
      int64_t at = 0;
      while (at + 1 < count && std::isfinite(values[at])) ++at;
      return Invalid(DescribeFeature(*configuration_, static_cast<int64_t>(f)) +
                     ": gradients must be finite, that of sample " +
                     std::to_string(at / dimension) + ", column " +
                     std::to_string(at % dimension) + " is " + std::to_string(values[at]));
    }
    return {};
  }

  Maybe CheckUpdates(bool) override { return {}; }

  Maybe Fill(Host*, uint32_t bits, int64_t count, float* to) override {
    for (int64_t i = 0; i < count; ++i) std::memcpy(&to[i], &bits, sizeof bits);
    return {};
  }

  Maybe FindAbove(Host*, uint32_t bits, int64_t count, const float* values,
                  Found* found) override {
    for (int64_t i = 0; i < count; ++i) {
      uint32_t one;
      std::memcpy(&one, &values[i], sizeof one);
      if (one <= bits) continue;
      *found = {i, values[i]};
      return {};
    }
    return {};
  }

 private:
  // Throws std::bad_alloc before anything has changed.
  void UpdateRows(Host* host, const std::vector<CoreGradients>& cores,
                  const std::vector<float>& rates) {
    std::vector<Plan> plans = MakePlans(host, cores);
    std::vector<Part> parts = MakeParts(host, plans);
    const int64_t part_count = static_cast<int64_t>(parts.size());
    host->For(part_count, [&](int64_t i) { Count(plans, parts[i]); });
    struct Bucket {
      int64_t plan, first, end;
    };
    std::vector<Bucket> buckets;
    int64_t largest = 0;
    Place(plans, parts);
    int64_t widest = 1;
    for (size_t p = 0; p < plans.size(); ++p) {
      widest = std::max(widest, tables_[plans[p].table].config.dimension);
      int64_t first = 0;
      for (int64_t b = 0; b < plans[p].buckets(); ++b) {
        const int64_t end = plans[p].ends[b];
        if (end > first) buckets.push_back({static_cast<int64_t>(p), first, end});
        largest = std::max(largest, end - first);
        first = end;
      }
    }
    const int64_t workers =
        std::min<int64_t>(host->Threads(), static_cast<int64_t>(buckets.size()));
    std::vector<Bench> benches(workers);
    for (Bench& bench : benches) {
      bench.slots = host->Allocate<int32_t>(PowerOfTwo(2 * largest));
      bench.rows = host->Allocate<int64_t>(largest);
      bench.starts = host->Allocate<int32_t>(largest + 1);
      bench.group_of = host->Allocate<int32_t>(largest);
      bench.contributions = host->Allocate<Contribution>(largest);
      bench.sum = host->Allocate<double>(widest);
    }
    std::vector<Hyper> hypers(tables_.size());
    std::vector<uint64_t*> touched(tables_.size(), nullptr);
    for (size_t t = 0; t < tables_.size(); ++t) {
      const TableConfig& config = tables_[t].config;
      hypers[t] = config.hyper;
      hypers[t].learning_rate = rates[t];
      if (config.decay_times_rate) hypers[t].decay *= rates[t];
      if (config.every_row) {
        const int64_t words = (config.rows + 63) / 64;
        touched[t] = host->Allocate<uint64_t>(words);
        std::memset(touched[t], 0, words * sizeof(uint64_t));
      }
    }
    // Nothing is allocated from here on.
    host->For(part_count, [&](int64_t i) { Scatter(plans, parts[i]); });
    const RowKernels& kernels = SelectRowKernels();
    std::atomic<int64_t> next{0};
    host->For(workers, [&](int64_t worker) {
      const Bench& bench = benches[worker];
      for (int64_t i; (i = next.fetch_add(1)) < static_cast<int64_t>(buckets.size());) {
        const Plan& plan = plans[buckets[i].plan];
        const Table& table = tables_[plan.table];
        const int64_t groups = Group(plan.entries + buckets[i].first,
                                     buckets[i].end - buckets[i].first, bench);
        kernels.update[static_cast<int>(table.config.optimizer)](
            {table.pages.get(), table.stride, table.config.dimension, groups, bench.rows,
             bench.starts, bench.contributions, table.config.accumulate,
             &hypers[plan.table], bench.sum});
        if (uint64_t* const bits = touched[plan.table]) {
          for (int64_t g = 0; g < groups; ++g) {
            __atomic_fetch_or(&bits[bench.rows[g] / 64], uint64_t{1} << bench.rows[g] % 64,
                              __ATOMIC_RELAXED);
          }
        }
      }
    });
    for (size_t t = 0; t < tables_.size(); ++t) {
      if (!touched[t]) continue;
      const Table& table = tables_[t];
      ForRows(host, table.config.rows, table.stride, [&](int64_t first, int64_t end) {
        kernels.rest[static_cast<int>(table.config.optimizer)](
            {table.pages.get(), table.stride, table.config.dimension, first, end, touched[t],
             &hypers[t]});
      });
    }
  }

  static bool Finite(Host* host, int64_t count, const float* values) {
    constexpr int64_t kPart = 64 << 10;
    const RowKernels& kernels = SelectRowKernels();
    std::atomic<bool> finite{true};
    host->For((count + kPart - 1) / kPart, [&](int64_t i) {
      const int64_t first = i * kPart;
      if (!kernels.finite(std::min(kPart, count - first), values + first)) finite = false;
    });
    return finite;
  }

  const Table& TableOf(size_t feature) const {
    return tables_[configuration_->features[feature].table];
  }

  static float* RowOf(const Table& table, int64_t slot, const Shard& rows, int64_t i) {
    return table.pages.get() + (rows.first + i * rows.step) * table.stride +
           (slot + 1) * table.config.dimension;
  }

  // Calls task(first, end) for rows in parts of some 256 KiB.
  template <class Task>
  static void ForRows(Host* host, int64_t rows, int64_t row_floats, const Task& task) {
    const int64_t part = std::max<int64_t>(1, (64 << 10) / row_floats);
    host->For((rows + part - 1) / part, [&](int64_t i) {
      task(i * part, std::min(rows, (i + 1) * part));
    });
  }

  std::vector<Plan> MakePlans(Host* host, const std::vector<CoreGradients>& cores) const {
    std::vector<Plan> by_table(tables_.size());
    for (const CoreGradients& core : cores) {
      for (size_t f = 0; f < core.batch->features.size(); ++f) {
        Plan& plan = by_table[configuration_->features[f].table];
        plan.sources.push_back({&core.batch->features[f], core.gradients[f]});
        plan.count += core.batch->features[f].count();
      }
    }
    std::vector<Plan> plans;
    for (size_t t = 0; t < by_table.size(); ++t) {
      Plan& plan = by_table[t];
      if (plan.count == 0) continue;
      plan.table = static_cast<int64_t>(t);
      while (plan.bits < kMostBits && plan.count >> plan.bits > kIdsInBucket) ++plan.bits;
      plan.ends = host->Allocate<int64_t>(plan.buckets());
      plan.entries = host->Allocate<Entry>(plan.count);
      plans.push_back(std::move(plan));
    }
    return plans;
  }

  static std::vector<Part> MakeParts(Host* host, const std::vector<Plan>& plans) {
    std::vector<Part> parts;
    for (size_t p = 0; p < plans.size(); ++p) {
      const Plan& plan = plans[p];
      for (size_t s = 0; s < plan.sources.size(); ++s) {
        const Bags& bags = *plan.sources[s].bags;
        const int64_t count = std::min(bags.samples, bags.count() / kIdsInPart + 1);
        for (int64_t i = 0; i < count; ++i) {
          int64_t* const next = host->Allocate<int64_t>(plan.buckets());
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
    for (int64_t i = bags.starts[part.first]; i < bags.starts[part.end]; ++i) {
      ++part.next[plan.BucketOf(bags.ids[i])];
    }
  }

  // From how many ids of a bucket each part has to where the part's go.
  static void Place(const std::vector<Plan>& plans, const std::vector<Part>& parts) {
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
      for (int64_t i = bags.starts[s]; i < bags.starts[s + 1]; ++i) {
        const float coefficient = bags.weights ? scale * bags.weights[i] : scale;
        plan.entries[part.next[plan.BucketOf(bags.ids[i])]++] = {
            bags.ids[i], {source.gradient + s * dimension, coefficient}};
      }
    }
  }

  const Configuration* configuration_ = nullptr;
  std::vector<Table> tables_;
};

}  // namespace

std::unique_ptr<TableStore> MakeCpuTableStore() { return std::make_unique<CpuTableStore>(); }

}  // namespace embedding
}  // namespace opwright
