// Drives the SparseCores' formats and lookups without TensorFlow, for the sanitizers: random
// batches all the way to activations and updates, against the same done id by id; then the
// same with what lies in between damaged, which must be refused or do no harm. Arrays are
// exactly as long as they must be, so that a step outside is seen.
#include "core/embedding/sparse_core.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <limits>
#include <vector>

#include "core/isa.h"
#include "expect.h"
#include "pool_host.h"

namespace opwright {
namespace embedding {
namespace {

struct Case {
  int64_t cores, samples, rows, width;
  std::vector<int32_t> splits, ids;
  std::vector<float> weights, table, gradients;
  Combiner combiner;
};

Case Draw(Random& random) {
  Case c;
  c.cores = int64_t{1} << random.Below(4);
  c.samples = c.cores * (1 + random.Below(9));
  c.rows = c.cores * (1 + random.Below(random.Below(2) ? 3 : 400));
  c.width = random.Below(random.Below(2) ? 9 : 150);
  c.combiner = static_cast<Combiner>(random.Below(3));
  c.splits = {0};
  for (int64_t i = 0; i < c.samples; ++i) {
    for (int64_t n = random.Below(6); n > 0; --n) {
      c.ids.push_back(static_cast<int32_t>(random.Below(c.rows)));
      c.weights.push_back(static_cast<float>(random.Uniform() + 1));
    }
    c.splits.push_back(static_cast<int32_t>(c.ids.size()));
  }
  const auto fill = [&random](std::vector<float>* values, int64_t count) {
    values->resize(count);
    for (float& value : *values) value = static_cast<float>(random.Uniform());
  };
  fill(&c.table, c.rows * c.width);
  fill(&c.gradients, c.samples * c.width);
  return c;
}

CooFeature FeatureOf(const Case& c) {
  return {CooFeature::kRagged,
          c.splits.data(),
          c.ids.data(),
          static_cast<int64_t>(c.ids.size()),
          c.weights.data(),
          false,
          c.samples};
}

// Buffers that own what they hold.
struct Csr {
  std::vector<int32_t> pointers, samples, rows;
  std::vector<float> gains;
  int64_t minibatches;

  CsrView View(int64_t cores) const {
    return {pointers.data(),
            static_cast<int64_t>(pointers.size()),
            {samples.data(), rows.data(), gains.data(), static_cast<int64_t>(rows.size())},
            minibatches,
            cores,
            CsrLimits{}};
  }
};

// What one SparseCore's triples become. `counts` may be damaged on the way.
struct Sorted {
  std::vector<int32_t> samples, rows, counts;
  std::vector<float> gains;
};

bool Sort(const Case& c, const Triples& triples, int64_t begin, int64_t end, Sorted* sorted) {
  const TriplesView all = triples.view();
  ShardedTriples merged;
  EXPECT(!MergeFeatures({{all.samples + begin, all.rows + begin, all.gains + begin,
                          end - begin}},
                        {0}, c.cores, c.rows, &merged));
  const int64_t count = merged.triples.size();
  sorted->samples.resize(count);
  sorted->rows.resize(count);
  sorted->gains.resize(count);
  sorted->counts.resize(c.cores + 1);
  DealToShards(merged, c.samples / c.cores, sorted->counts.data(), sorted->samples.data(),
               sorted->rows.data(), sorted->gains.data());
  return true;
}

std::vector<CsrSource> SourcesOf(const std::vector<Sorted>& all) {
  std::vector<CsrSource> sources;
  for (const Sorted& one : all) {
    sources.push_back({{one.samples.data(), one.rows.data(), one.gains.data(),
                        static_cast<int64_t>(one.rows.size())},
                       one.counts.data(),
                       static_cast<int64_t>(one.counts.size())});
  }
  return sources;
}

Csr Room(const CsrShape& shape, int64_t cores, CsrBuffers* buffers) {
  Csr csr;
  csr.pointers.resize(shape.max_minibatches * cores * shape.stride());
  csr.samples.resize(shape.capacity);
  csr.rows.resize(shape.capacity);
  csr.gains.resize(shape.capacity);
  *buffers = {csr.pointers.data(), csr.samples.data(), csr.rows.data(), csr.gains.data(),
              0,                   0,                  0,               0};
  return csr;
}

bool Close(float got, double expected) {
  return std::abs(got - expected) <= 1e-4 * (1 + std::abs(expected));
}

// Activations and the table after a step of SGD, id by id.
bool Compare(const Case& c, const Triples& triples, Host& host) {
  std::vector<float> activations(c.samples * c.width, 7.f);
  // Row r lies in shard r % cores at r / cores.
  const auto dealt = [&c](int64_t row) {
    return row % c.cores * (c.rows / c.cores) + row / c.cores;
  };
  std::vector<double> expected(activations.size()), updated(c.table.begin(), c.table.end());
  for (int64_t s = 0; s < c.samples; ++s) {
    double scale = 0;
    for (int32_t i = c.splits[s]; i < c.splits[s + 1]; ++i) {
      scale += c.combiner == Combiner::kMean ? c.weights[i] : double{c.weights[i]} * c.weights[i];
    }
    if (c.combiner == Combiner::kSum) scale = 1;
    if (c.combiner == Combiner::kSqrtN) scale = std::sqrt(scale);
    for (int32_t i = c.splits[s]; i < c.splits[s + 1]; ++i) {
      const double gain = c.weights[i] / scale;
      const int64_t row = dealt(c.ids[i]);
      for (int64_t k = 0; k < c.width; ++k) {
        expected[s * c.width + k] += gain * c.table[row * c.width + k];
        updated[row * c.width + k] -= 0.5 * gain * c.gradients[s * c.width + k];
      }
    }
  }
  SumRows(triples, c.table.data(), c.width, Quantization{}, c.samples, activations.data(), host);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT(Close(activations[i], expected[i]));
  std::vector<float> table = c.table;
  float* const tables[] = {table.data()};
  Hyper hyper;
  hyper.learning_rate = 0.5f;
  UpdateRows(triples, c.gradients.data(), c.width, Optimizer::kSgd, hyper, tables, host);
  for (size_t i = 0; i < updated.size(); ++i) EXPECT(Close(table[i], updated[i]));
  // The others only have to stay inside.
  std::vector<float> first = c.table, second = c.table;
  float* const slots[] = {table.data(), first.data(), second.data()};
  for (const Optimizer optimizer : {Optimizer::kAdagrad, Optimizer::kAdam}) {
    UpdateRows(triples, c.gradients.data(), c.width, optimizer, hyper, slots, host);
  }
  return true;
}

int32_t Wild(Random& random) {
  const int32_t values[] = {-1, 0, 1, 7, 8, 9, 100, 1 << 20, kSparseCorePad,
                            std::numeric_limits<int32_t>::min()};
  return values[random.Below(std::size(values))];
}

void Damage(std::vector<int32_t>* values, Random& random) {
  if (values->empty()) return;
  if (random.Below(4) == 0) {
    values->resize(random.Below(static_cast<int64_t>(values->size()) + 1));
    values->shrink_to_fit();
  } else {
    (*values)[random.Below(static_cast<int64_t>(values->size()))] = Wild(random);
  }
}

// Whatever is damaged, what is not refused is inside.
bool Break(Case c, const CsrShape& shape, std::vector<Sorted> sorted, Csr csr, Random& random,
           Host& host) {
  switch (random.Below(3)) {
    case 0: {
      std::vector<int32_t>& which = random.Below(2) ? c.splits : c.ids;
      if (!which.empty()) {
        which[random.Below(static_cast<int64_t>(which.size()))] = Wild(random);
      }
      Triples triples;
      const auto refused = FeatureToTriples(FeatureOf(c), c.combiner, &triples);
      for (int64_t i = 0; !refused && i < triples.size(); ++i) {
        EXPECT(triples.samples[i] >= 0 && triples.samples[i] < c.samples);
      }
      return true;
    }
    case 1: {
      Damage(&sorted[random.Below(c.cores)].counts, random);
      const int64_t splits = random.Below(3) ? 0 : static_cast<int64_t>(random.Next());
      const std::vector<CsrSource> sources = SourcesOf(sorted);
      if (CheckCsrSources(shape, splits, sources)) return true;
      CsrBuffers buffers;
      const Csr room = Room(shape, c.cores, &buffers);
      PackCsr(shape, splits, random.Below(2), sources, &buffers);
      return true;
    }
    default: {
      Damage(random.Below(2) ? &csr.pointers : random.Below(2) ? &csr.samples : &csr.rows, random);
      // Views of one length, as their kernel checks.
      const size_t size = std::min(csr.samples.size(), csr.rows.size());
      csr.samples.resize(size);
      csr.rows.resize(size);
      csr.gains.resize(size);
      if (random.Below(4) == 0) csr.minibatches = Wild(random);
      Triples triples;
      if (ReadCsr(csr.View(c.cores), c.samples, c.rows, &triples)) return true;
      std::vector<float> activations(c.samples * c.width);
      SumRows(triples, c.table.data(), c.width, Quantization{true, -1, 1, 5}, c.samples,
              activations.data(), host);
      return true;
    }
  }
}

bool Run(Random& random, Pool& pool) {
  const Case c = Draw(random);
  PoolHost host(pool);
  Triples triples;
  EXPECT(!FeatureToTriples(FeatureOf(c), c.combiner, &triples));
  const CooStacking stacking{c.samples, c.cores, 0, 0, 0, c.cores, c.samples};
  EXPECT(!CheckStacking(stacking));
  std::vector<int64_t> begins;
  EXPECT(!StackTriples(stacking, &triples, &begins));
  std::vector<Sorted> sorted(c.cores);
  for (int64_t core = 0; core < c.cores; ++core) {
    EXPECT(Sort(c, triples, begins[core], begins[core + 1], &sorted[core]));
  }
  // Each of the runs may need padding.
  const int64_t most = triples.size() + 8 * c.cores * c.cores;
  const CsrShape shape{c.cores, 1 + random.Below(3), (most + 7) / 8 * 8};
  const std::vector<CsrSource> sources = SourcesOf(sorted);
  EXPECT(!CheckCsrSources(shape, 0, sources));
  CsrBuffers buffers;
  Csr csr = Room(shape, c.cores, &buffers);
  EXPECT(!PackCsr(shape, 0, false, sources, &buffers));
  EXPECT(buffers.dropped == 0);
  csr.minibatches = buffers.minibatches;
  Triples read;
  EXPECT(!ReadCsr(csr.View(c.cores), c.samples, c.rows, &read));
  EXPECT(Compare(c, read, host));
  for (int i = 0; i < 20; ++i) EXPECT(Break(c, shape, sorted, csr, random, host));
  return true;
}

int Main(int64_t seconds) {
  Pool pool(4);
  Random random;
  int64_t runs = 0;
  const char* const sets[] = {"avx512", "avx2", "portable"};
  for (const auto end = std::time(nullptr) + seconds; std::time(nullptr) < end; ++runs) {
    // One that this processor lacks leaves the last one in use.
    UseIsa(sets[runs % 3]);
    if (!Run(random, pool)) {
      std::printf("run %lld failed\n", static_cast<long long>(runs));
      return 1;
    }
  }
  std::printf("%lld batches\n", static_cast<long long>(runs));
  return 0;
}

}  // namespace
}  // namespace embedding
}  // namespace opwright

int main(int argc, char** argv) {
  return opwright::embedding::Main(argc > 1 ? std::atoll(argv[1]) : 5);
}
