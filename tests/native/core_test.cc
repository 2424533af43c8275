// Drives core without TensorFlow, for the sanitizers: every cell, type and instruction set,
// forwards and backwards, on a pool of threads that several callers use at once. Arrays are
// exactly as long as they must be, so that a step outside is seen. Checks that instruction
// sets agree, that sizes which overflow are refused, and that a reserve knows its call.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/isa.h"
#include "core/kernels.h"
#include "core/rnn.h"
#include "core/weights.h"

namespace opwright {
namespace {

// Threads that live as long as the program, as TensorFlow's do.
class Pool {
 public:
  explicit Pool(int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { Work(); });
    }
  }

  ~Pool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  int size() const { return static_cast<int>(threads_.size()); }

  void Schedule(std::function<void()> task) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

 private:
  void Work() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return closed_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
  bool closed_ = false;
};

// The caller does what the pool has not begun, and then waits for the rest.
class PoolHost : public Host {
 public:
  explicit PoolHost(Pool& pool) : pool_(pool) {}

  int Threads() const override { return pool_.size(); }

  void For(int64_t count, const std::function<void(int64_t)>& task) override {
    struct Shared {
      std::atomic<int64_t> next{0};
      std::mutex mutex;
      std::condition_variable changed;
      int64_t left;
    };
    auto shared = std::make_shared<Shared>();
    shared->left = count;
    const auto* const run = &task;
    const auto work = [shared, run, count] {
      for (int64_t i; (i = shared->next.fetch_add(1)) < count;) {
        (*run)(i);
        std::lock_guard<std::mutex> lock(shared->mutex);
        if (--shared->left == 0) shared->changed.notify_all();
      }
    };
    for (int i = 1; i < Threads() && i < count; ++i) pool_.Schedule(work);
    work();
    std::unique_lock<std::mutex> lock(shared->mutex);
    shared->changed.wait(lock, [&] { return shared->left == 0; });
  }

  void* Allocate(size_t bytes) override {
    void* memory = std::aligned_alloc(64, std::max<size_t>(64, (bytes + 63) / 64 * 64));
    if (!memory) throw std::bad_alloc();
    memory_.emplace_back(memory, &std::free);
    return memory;
  }

 private:
  Pool& pool_;
  std::vector<std::unique_ptr<void, decltype(&std::free)>> memory_;
};

struct Random {
  uint64_t state = 1;
  uint64_t Next() { return state = state * 6364136223846793005u + 1442695040888963407u; }
  int64_t Below(int64_t limit) { return static_cast<int64_t>((Next() >> 33) % limit); }
  double Uniform() { return static_cast<double>(Next() >> 11) / (1ull << 53) - 0.5; }
};

template <class T>
std::vector<T> Draw(Random& random, int64_t size, double scale = 1) {
  std::vector<T> values(size);
  for (T& value : values) Store(static_cast<Compute<T>>(scale * random.Uniform()), &value);
  return values;
}

// All outputs and gradients, in a row.
template <class T>
std::vector<double> Run(const Config& config, uint64_t seed, Pool& pool) {
  Random random{seed};
  const int64_t states = config.layers * config.dirs() * config.batch;
  const bool lstm = config.cell == Cell::kLstm;
  const int64_t cells = lstm ? states * config.units : 0;
  const int64_t steps = config.time * config.batch;
  const auto x = Draw<T>(random, steps * config.input_size);
  const auto h = Draw<T>(random, states * config.hidden());
  const auto c = Draw<T>(random, cells);
  // Small enough that no activation grows from step to step.
  const double scale = 2 / std::sqrt(static_cast<double>(config.units + config.input_size));
  const auto params = Draw<T>(random, ParamsSize(config), scale);
  std::vector<int32_t> lengths(config.batch);
  for (int32_t& length : lengths) length = random.Below(config.time + 1);
  std::vector<T> y(steps * config.width()), hn(h.size()), cn(c.size());
  std::vector<T> reserve(config.training ? Reserve(config, sizeof(T)).size : 0);
  const bool ragged = seed % 2 == 0;

  ForwardCall<T> forward{};
  forward.input = x.data();
  forward.input_h = h.data();
  forward.input_c = c.data();
  forward.params = params.data();
  forward.lengths = ragged ? lengths.data() : nullptr;
  forward.output = y.data();
  forward.output_h = hn.data();
  forward.output_c = cn.data();
  forward.reserve = reserve.data();
  forward.nonce = seed;
  // All callers share what inference keeps.
  static WeightCache<T> cache;
  forward.cache = &cache;
  {
    PoolHost host(pool);
    Forward(config, forward, host);
  }
  std::vector<double> all;
  const auto keep = [&](const std::vector<T>& values) {
    for (const T& value : values) all.push_back(Load(value));
  };
  keep(y);
  keep(hn);
  keep(cn);
  if (!config.training) return all;

  const auto dy = Draw<T>(random, y.size());
  const auto dhn = Draw<T>(random, h.size());
  const auto dcn = Draw<T>(random, c.size());
  std::vector<T> dx(x.size()), dh(h.size()), dc(c.size()), dparams(params.size());
  BackwardCall<T> backward{};
  backward.input = x.data();
  backward.input_h = h.data();
  backward.input_c = c.data();
  backward.params = params.data();
  backward.lengths = forward.lengths;
  backward.output = y.data();
  backward.output_backprop = dy.data();
  backward.output_h_backprop = dhn.data();
  backward.output_c_backprop = dcn.data();
  backward.reserve = reserve.data();
  backward.nonce = ReadHeader(config, sizeof(T), reserve.data()).value();
  backward.input_backprop = dx.data();
  backward.input_h_backprop = dh.data();
  backward.input_c_backprop = dc.data();
  backward.params_backprop = dparams.data();
  PoolHost host(pool);
  Backward(config, backward, host);
  keep(dx);
  keep(dh);
  keep(dc);
  keep(dparams);
  return all;
}

// Not a number is never close.
bool Close(const std::vector<double>& found, const std::vector<double>& first,
           double tolerance) {
  double scale = 0;
  for (const double value : first) scale = std::max(scale, std::abs(value));
  for (size_t i = 0; i < found.size(); ++i) {
    if (!(std::abs(first[i] - found[i]) <= tolerance * scale)) {
      std::printf("element %zu of %zu is %g, not %g; the largest is %g\n", i, found.size(),
                  found[i], first[i], scale);
      return false;
    }
  }
  return true;
}

template <class T>
bool Agree(const Config& config, uint64_t seed, double tolerance, Pool& pool) {
  std::vector<double> first;
  for (const char* isa : {"portable", "avx2", "avx512"}) {
    if (!UseIsa(isa)) continue;
    const std::vector<double> found = Run<T>(config, seed, pool);
    if (first.empty()) first = found;
    if (!Close(found, first, tolerance)) {
      std::printf("%s differs from the first, draw %llu\n", isa,
                  static_cast<unsigned long long>(seed));
      return false;
    }
  }
  if (seed % 8 != 0) return true;
  // As many callers as threads, so that each finds the pool busy.
  std::vector<std::vector<double>> found(pool.size());
  std::vector<std::thread> callers;
  for (std::vector<double>& mine : found) {
    callers.emplace_back([&] { mine = Run<T>(config, seed, pool); });
  }
  for (std::thread& caller : callers) caller.join();
  for (const std::vector<double>& one : found) {
    if (!Close(one, first, tolerance)) {
      std::printf("one of several callers differs, draw %llu\n",
                  static_cast<unsigned long long>(seed));
      return false;
    }
  }
  return true;
}

// Any sizes at all: they are refused, or what is computed from them does not overflow.
bool SizesAreChecked(Random& random) {
  constexpr int64_t kSizes[] = {INT64_MIN, -1,        0,         1,         2,
                                1000,      int64_t{1} << 16,     int64_t{1} << 31,
                                INT32_MAX, int64_t{1} << 40,     int64_t{1} << 62,
                                INT64_MAX};
  const auto draw = [&] { return kSizes[random.Below(std::size(kSizes))]; };
  bool good = true;
  for (int i = 0; i < 20000; ++i) {
    Config config;
    config.cell = static_cast<Cell>(random.Below(4));
    config.skip_input = random.Below(4) == 0;
    config.bidirectional = random.Below(2);
    config.layers = draw();
    config.units = draw();
    config.input_size = config.skip_input ? config.units : draw();
    config.projection = random.Below(2) ? draw() : 0;
    config.time = draw();
    config.batch = draw();
    if (!Check(static_cast<const Stack&>(config))) good &= ParamsSize(config) > 0;
    if (Check(config)) continue;
    for (const int64_t bytes : {2, 4, 8}) {
      config.training = true;
      good &= Reserve(config, bytes).size >= Reserve::kHeaderBytes / bytes;
    }
  }
  if (!good) std::printf("a size is not positive\n");
  return good;
}

bool ReserveKnowsItsCall() {
  Config config;
  config.units = config.input_size = config.layers = config.time = config.batch = 2;
  config.training = true;
  ReserveHeader header = MakeHeader(config, 4, 7);
  bool good = ReadHeader(config, 4, &header) == 7u;
  good &= !ReadHeader(config, 8, &header);
  Config other = config;
  other.seed = 1;
  good &= !ReadHeader(other, 4, &header);
  header.magic ^= 1;
  good &= !ReadHeader(config, 4, &header);
  if (!good) std::printf("a reserve is taken for another call's\n");
  return good;
}

int Main(int draws) {
  Random random;
  Pool pool(3);
  bool good = SizesAreChecked(random) & ReserveKnowsItsCall();
  for (int i = 0; i < draws; ++i) {
    Config config;
    config.cell = static_cast<Cell>(i % 4);
    config.bidirectional = random.Below(2);
    config.layers = 1 + random.Below(3);
    config.units = 1 + random.Below(i % 5 == 0 ? 150 : 40);
    config.skip_input = random.Below(4) == 0;
    config.input_size = config.skip_input ? config.units : 1 + random.Below(80);
    if (config.cell == Cell::kLstm && random.Below(2)) {
      config.projection = 1 + random.Below(config.units);
    }
    config.time = 1 + random.Below(i % 5 == 0 ? 40 : 6);
    config.batch = 1 + random.Below(i % 5 == 0 ? 40 : 8);
    config.time_major = random.Below(2);
    config.training = random.Below(4) != 0;
    config.dropout = random.Below(2) ? 0.5f : 0.0f;
    if (auto error = Check(config)) {
      std::printf("%s: %s\n", error->argument.c_str(), error->problem.c_str());
      return 1;
    }
    good &= Agree<float>(config, i, 1e-3, pool);
    good &= Agree<double>(config, i, 1e-9, pool);
    // A ReLU beside zero may go either way in few bits; nothing to compare there.
    const bool smooth = config.cell != Cell::kRelu;
    good &= Agree<Half>(config, i, smooth ? 0.1 : 1e6, pool);
    good &= Agree<BFloat16>(config, i, smooth ? 0.3 : 1e6, pool);
  }
  std::printf("%d draws: %s\n", draws, good ? "instruction sets agree" : "FAILED");
  return good ? 0 : 1;
}

}  // namespace
}  // namespace opwright

int main(int count, char** arguments) {
  return opwright::Main(count > 1 ? std::atoi(arguments[1]) : 100);
}
