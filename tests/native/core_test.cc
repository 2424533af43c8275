// Drives core without TensorFlow, for the sanitizers: every cell, type and instruction set,
// forwards and backwards, on threads that really run at once. Arrays are exactly as long as
// they must be, so that a step outside is seen. Checks that instruction sets agree.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "core/kernels.h"
#include "core/rnn.h"

namespace opwright {
namespace {

class ThreadHost : public Host {
 public:
  int Threads() const override { return 3; }

  void For(int64_t count, const std::function<void(int64_t)>& task) override {
    std::atomic<int64_t> next{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < Threads(); ++i) {
      threads.emplace_back([&] {
        for (int64_t at; (at = next.fetch_add(1)) < count;) task(at);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  void* Allocate(size_t bytes) override {
    void* memory = std::aligned_alloc(64, std::max<size_t>(64, (bytes + 63) / 64 * 64));
    if (!memory) throw std::bad_alloc();
    memory_.emplace_back(memory, &std::free);
    return memory;
  }

 private:
  std::vector<std::unique_ptr<void, decltype(&std::free)>> memory_;
};

struct Random {
  uint64_t state = 1;
  uint64_t Next() { return state = state * 6364136223846793005u + 1442695040888963407u; }
  int64_t Below(int64_t limit) { return static_cast<int64_t>((Next() >> 33) % limit); }
  double Uniform() { return static_cast<double>(Next() >> 11) / (1ull << 53) - 0.5; }
};

template <class T>
std::vector<T> Draw(Random& random, int64_t size) {
  std::vector<T> values(size);
  for (T& value : values) Store(static_cast<Compute<T>>(random.Uniform()), &value);
  return values;
}

// All outputs and gradients, in a row.
template <class T>
std::vector<double> Run(const Config& config, uint64_t seed) {
  Random random{seed};
  const int64_t states = config.layers * config.dirs() * config.batch;
  const bool lstm = config.cell == Cell::kLstm;
  const int64_t cells = lstm ? states * config.units : 0;
  const int64_t steps = config.time * config.batch;
  const auto x = Draw<T>(random, steps * config.input_size);
  const auto h = Draw<T>(random, states * config.hidden());
  const auto c = Draw<T>(random, cells);
  const auto params = Draw<T>(random, ParamsSize(config));
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
  {
    ThreadHost host;
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
  ThreadHost host;
  Backward(config, backward, host);
  keep(dx);
  keep(dh);
  keep(dc);
  keep(dparams);
  return all;
}

template <class T>
bool Agree(const Config& config, uint64_t seed, double tolerance) {
  std::vector<double> first;
  for (const char* isa : {"portable", "avx2", "avx512"}) {
    if (!UseIsa(isa)) continue;
    const std::vector<double> found = Run<T>(config, seed);
    if (first.empty()) first = found;
    double scale = 0, worst = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      scale = std::max(scale, std::abs(first[i]));
      worst = std::max(worst, std::abs(first[i] - found[i]));
      if (!(std::abs(first[i] - found[i]) <= tolerance * 1e3)) worst = INFINITY;
    }
    if (!(worst <= tolerance * scale)) {
      std::printf("%s differs from the first by %g of %g, draw %llu\n", isa, worst, scale,
                  static_cast<unsigned long long>(seed));
      return false;
    }
  }
  return true;
}

int Main(int draws) {
  Random random;
  bool good = true;
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
    good &= Agree<float>(config, i, 1e-3);
    good &= Agree<double>(config, i, 1e-9);
    // A ReLU beside zero may go either way in few bits; nothing to compare there.
    const bool smooth = config.cell != Cell::kRelu;
    good &= Agree<Half>(config, i, smooth ? 0.1 : 1e6);
    good &= Agree<BFloat16>(config, i, smooth ? 0.3 : 1e6);
  }
  std::printf("%d draws: %s\n", draws, good ? "instruction sets agree" : "FAILED");
  return good ? 0 : 1;
}

}  // namespace
}  // namespace opwright

int main(int count, char** arguments) {
  return opwright::Main(count > 1 ? std::atoi(arguments[1]) : 100);
}
