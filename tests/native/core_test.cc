// Drives core without TensorFlow, for the sanitizers: every cell, type and instruction set,
// forwards and backwards, on a pool of threads that several callers use at once. Arrays are
// exactly as long as they must be, so that a step outside is seen. Checks that instruction
// sets agree, that sizes which overflow are refused, and that a reserve knows its call.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <thread>
#include <vector>

#include "core/isa.h"
#include "core/kernels.h"
#include "core/rnn.h"
#include "core/weights.h"
#include "pool_host.h"

namespace opwright {
namespace {

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
