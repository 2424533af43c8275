// embedding_kernels [WORKLOADS [SECONDS]] times lookups and updates without TensorFlow and
// Python, with one thread and with all threads. The workloads are those of embedding.py, and H,
// whose features share the cache lines of outputs. Before that, it times how fast this
// machine's memory gives single lines, which bounds them. It prints medians of rounds in which
// all take turns.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/spinning_pool.h"
#include "base/tasks.h"
#include "embedding/store.h"

namespace opwright::embedding {
namespace {

constexpr int kRounds = 9;
constexpr float kRate = 0.01f;

void Need(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  std::exit(1);
}
template <class T>
T Value(StatusOr<T> result) {
  Need(result.status());
  return *std::move(result);
}

double Seconds(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// As many threads as there are, or the caller alone.
class Context : public ExecutionContext {
 public:
  explicit Context(SpinningPool& pool) : pool_(pool) {}
  int Threads() const override { return pool_.size() + 1; }
  void For(int64_t count, const std::function<void(int64_t)>& task) override {
    Tasks::For(count, task, Threads(), pool_);
  }
  void* Allocate(size_t bytes) override {
    void* const memory = std::aligned_alloc(64, bytes / 64 * 64 + 64);
    if (!memory) throw std::bad_alloc();
    memory_.emplace_back(memory, &std::free);
    return memory;
  }

 private:
  SpinningPool& pool_;
  std::vector<std::unique_ptr<void, decltype(&std::free)>> memory_;
};

// Memory in large pages, if the system gives some.
class Lines {
 public:
  static constexpr size_t kLine = 64, kPage = 2 << 20;

  explicit Lines(size_t bytes) : bytes_(bytes + kPage) {
    mapped_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped_ == MAP_FAILED) std::perror("mmap"), std::exit(1);
    char* const data = static_cast<char*>(mapped_);
    lines_ = data + (kPage - reinterpret_cast<uintptr_t>(data) % kPage) % kPage;
    madvise(lines_, bytes, MADV_HUGEPAGE);
    std::memset(lines_, 0, bytes);
  }
  ~Lines() { munmap(mapped_, bytes_); }

  // Has each line say which one is next, in a ring.
  void Chain(const std::vector<uint32_t>& order) {
    for (size_t i = 0; i < order.size(); ++i) {
      const uint32_t next = order[(i + 1) % order.size()];
      std::memcpy(lines_ + order[i] * kLine, &next, sizeof next);
    }
  }

  // ns a line, if each says which one is next.
  double OneByOne(size_t steps) const {
    uint32_t at = 0;
    const double seconds = Seconds([&] {
      for (size_t i = 0; i < steps; ++i) std::memcpy(&at, lines_ + at * kLine, sizeof at);
    });
    sink_ = at;
    return 1e9 * seconds / static_cast<double>(steps);
  }

  // ns a line, if it is known which ones, and they are prefetched 32 lines ahead.
  double Prefetched(const std::vector<uint32_t>& order, size_t steps) const {
    constexpr size_t kAhead = 32;
    uint32_t sum = 0;
    steps = std::min(steps, order.size());
    const double seconds = Seconds([&] {
      for (size_t i = 0; i < steps; ++i) {
        __builtin_prefetch(lines_ + order[std::min(i + kAhead, steps - 1)] * kLine);
        uint32_t one;
        std::memcpy(&one, lines_ + order[i] * kLine, sizeof one);
        sum += one;
      }
    });
    sink_ = sum;
    return 1e9 * seconds / static_cast<double>(steps);
  }

 private:
  static inline volatile uint32_t sink_;
  void* mapped_ = nullptr;
  size_t bytes_ = 0;
  char* lines_ = nullptr;
};

void TimeMemory() {
  std::puts("memory, one thread    ns a line: one by one  prefetched");
  constexpr size_t kMost = size_t{1} << 30, kSteps = 500'000;
  Lines lines(kMost);
  std::mt19937 random(1);
  for (size_t bytes = 256 << 10; bytes <= kMost; bytes *= 4) {
    std::vector<uint32_t> order(bytes / Lines::kLine);
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin(), order.end(), random);
    lines.Chain(order);
    std::vector<double> one_by_one, ahead;
    for (int round = 0; round < kRounds; ++round) {
      one_by_one.push_back(lines.OneByOne(kSteps));
      ahead.push_back(lines.Prefetched(order, kSteps));
    }
    std::printf("%7zu KiB %31.1f %16.1f\n", bytes >> 10, Median(one_by_one), Median(ahead));
  }
}

// As in embedding.py.
struct Workload {
  char name;
  int64_t tables, rows, dimension, bag;
  bool zipf = false;
  static constexpr int64_t kSamples = 2048;

  int64_t ids() const { return kSamples * bag; }
};
constexpr Workload kWorkloads[] = {
    {'A', 4, 1'000'000, 128, 20}, {'B', 4, 1'000'000, 128, 20, true},
    {'C', 1, 10'000'000, 32, 20}, {'D', 26, 100'000, 16, 1},
    {'E', 4, 1'000'000, 8, 20},   {'F', 4, 200'000, 512, 20},
    {'G', 4, 1'000'000, 128, 1},  {'H', 26, 100'000, 8, 1},
};

// Rows of a table, uniformly or by Zipf's law, and then anywhere in it.
std::vector<int32_t> DrawIds(const Workload& workload, int64_t count, std::mt19937& random) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  if (!workload.zipf) {
    std::uniform_int_distribution<int32_t> any(0, static_cast<int32_t>(workload.rows - 1));
    for (int32_t& id : ids) id = any(random);
    return ids;
  }
  std::vector<double> shares(static_cast<size_t>(workload.rows));
  for (size_t i = 0; i < shares.size(); ++i) {
    shares[i] = (i ? shares[i - 1] : 0) + std::pow(static_cast<double>(i + 1), -1.05);
  }
  std::vector<int32_t> places(shares.size());
  std::iota(places.begin(), places.end(), 0);
  std::shuffle(places.begin(), places.end(), std::mt19937(0));
  std::uniform_real_distribution<double> share(0, shares.back());
  for (int32_t& id : ids) {
    const auto rank = std::lower_bound(shares.begin(), shares.end(), share(random));
    id = places[static_cast<size_t>(std::min(rank, shares.end() - 1) - shares.begin())];
  }
  return ids;
}

// A workload's tables, batches of ids enough to come from memory, and gradients.
class Work {
 public:
  explicit Work(const Workload& workload) : workload_(workload) {
    for (int64_t t = 0; t < workload.tables; ++t) {
      TableConfig table;
      table.name = "table" + std::to_string(t);
      table.rows = workload.rows;
      table.dimension = workload.dimension;
      table.optimizer = Optimizer::kAdagrad;
      table.hyper.learning_rate = kRate;
      configuration_.tables.push_back(table);
      configuration_.features.push_back(
          {"feature" + std::to_string(t), t, {Workload::kSamples}});
    }
    configuration_.mode = Mode::kTraining;
    Need(Complete(&configuration_));
    Need(store_->Allocate(configuration_));
    std::mt19937 random(1);
    const int64_t bytes = 4 * workload.dimension * workload.tables * workload.ids();
    const int64_t batches = std::clamp<int64_t>((int64_t{1} << 29) / bytes, 8, 64);
    const std::vector<int32_t> pool =
        DrawIds(workload, workload.tables * workload.ids() * batches, random);
    for (int64_t i = 0; i <= workload.tables * Workload::kSamples; ++i) {
      splits_.push_back(static_cast<int32_t>(i * workload.bag));
    }
    for (int64_t b = 0; b < batches; ++b) {
      const auto first = pool.begin() + b * workload.tables * workload.ids();
      ids_.emplace_back(first, first + workload.tables * workload.ids());
      prepared_.push_back(Prepare(ids_.back()));
    }
    gradients_.assign(
        static_cast<size_t>(workload.tables * Workload::kSamples * workload.dimension), 0.01f);
    activations_ = static_cast<float*>(memory_.Allocate(gradients_.size() * sizeof(float)));
    for (int64_t t = 0; t < workload.tables; ++t) Fill(t);
  }

  int64_t batches() const { return static_cast<int64_t>(ids_.size()); }

  void LookUp(SpinningPool& pool, int64_t batch) {
    Context exec(pool);
    PackedBags bags;
    bags.samples = Workload::kSamples;
    if (workload_.bag > 1) bags.row_splits = View(splits_);
    bags.ids = View(ids_[static_cast<size_t>(batch)]);
    Need(store_->LookUpPacked(&exec, bags, activations_));
  }

  void Update(SpinningPool& pool, int64_t batch) {
    Context exec(pool);
    CoreGradients core{prepared_[static_cast<size_t>(batch)].get(), {}};
    for (int64_t t = 0; t < workload_.tables; ++t) {
      core.gradients.push_back(gradients_.data() +
                               t * Workload::kSamples * workload_.dimension);
    }
    const std::vector<float> rates(static_cast<size_t>(workload_.tables), kRate);
    Need(store_->Update(&exec, {core}, rates));
  }

 private:
  static Ints View(const std::vector<int32_t>& of) {
    return {of.data(), false, static_cast<int64_t>(of.size())};
  }

  PreparedRef Prepare(const std::vector<int32_t>& ids) {
    Context exec(empty_pool_);
    auto batch = std::make_shared<Batch>();
    for (int64_t t = 0; t < workload_.tables; ++t) {
      Lookups lookups;
      lookups.form = Lookups::Form::kSplits;
      lookups.where = {splits_.data(), false, Workload::kSamples + 1};
      lookups.ids = {ids.data() + t * workload_.ids(), false, workload_.ids()};
      batch->features.push_back(Value(MakeBags(configuration_, t, lookups, Combiner::kSum)));
    }
    return Value(store_->Prepare(&exec, std::move(batch)));
  }

  // Weights, and accumulators that are not zero.
  void Fill(int64_t table) {
    Context exec(empty_pool_);
    const Shard all{workload_.rows, 0, 1};
    const std::vector<float> values(static_cast<size_t>(workload_.rows * workload_.dimension),
                                    0.1f);
    for (int64_t slot = -1; slot < 1; ++slot) {
      Need(store_->Write(&exec, table, slot, all, values.data()));
    }
  }

  const Workload workload_;
  Configuration configuration_;
  const std::unique_ptr<TableStore> store_ = MakeCpuTableStore();
  SpinningPool empty_pool_{0};
  std::vector<int32_t> splits_;
  std::vector<std::vector<int32_t>> ids_;
  std::vector<PreparedRef> prepared_;
  std::vector<float> gradients_;
  Context memory_{empty_pool_};
  float* activations_;  // They begin with a line, as TensorFlow's do.
};

void TimeWorkload(const Workload& workload, double seconds, SpinningPool& alone,
                  SpinningPool& all) {
  Work work(workload);
  int64_t batch = 0;
  const auto timed = [&](const std::function<void(int64_t)>& call) {
    int64_t calls = 0;
    double spent = 0;
    for (; spent < seconds; ++calls) {
      spent += Seconds([&] { call(batch++ % work.batches()); });
    }
    return 1e3 * spent / static_cast<double>(calls);
  };
  std::vector<double> times[4];
  for (int round = 0; round < kRounds; ++round) {
    for (int threads = 0; threads < 2; ++threads) {
      SpinningPool& pool = threads ? all : alone;
      times[threads].push_back(timed([&](int64_t b) { work.LookUp(pool, b); }));
      times[2 + threads].push_back(timed([&](int64_t b) { work.Update(pool, b); }));
    }
  }
  std::printf("%c: %3ld x %8ld x %3ld, L=%-2ld%-5s", workload.name, workload.tables,
              workload.rows, workload.dimension, workload.bag, workload.zipf ? " Zipf" : "");
  for (const auto& one : times) std::printf(" %10.3f", Median(one));
  std::puts("");
  std::fflush(stdout);
}

}  // namespace
}  // namespace opwright::embedding

int main(int argc, char** argv) {
  using namespace opwright;
  const char* const which = argc > 1 ? argv[1] : "ABCDEFG";
  const double seconds = argc > 2 ? std::atof(argv[2]) : 0.1;
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  embedding::TimeMemory();
  SpinningPool alone(0), all(threads - 1);
  std::printf("\nms, with 1 thread and %-2d            lookup 1 %10d   update 1 %10d\n",
              threads, threads, threads);
  for (const auto& workload : embedding::kWorkloads) {
    if (std::strchr(which, workload.name))
      embedding::TimeWorkload(workload, seconds, alone, all);
  }
}
