// Runs random batches from ids to activations and updates, and compares them with results
// computed id by id. A second part damages intermediate results: the next function must refuse
// them or stay within its arrays. Arrays end where their memory ends, so that a sanitizer
// reports an access outside.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <vector>

#include "base/testing/pool.h"
#include "base/testing/testing.h"
#include "embedding/testing/elements.h"
#include "sparsecore/coo.h"
#include "sparsecore/csr.h"
#include "sparsecore/lookup.h"
#include "sparsecore/sort.h"
#include "sparsecore/update.h"

namespace opwright::sparsecore {

using embedding::Combiner;
using embedding::Hyper;
using embedding::Optimizer;
using embedding::Quantization;

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
  return {
      CooFeature::kRagged, c.splits.data(), c.ids.data(), static_cast<int64_t>(c.ids.size()),
      c.weights.data(),    false,           c.samples};
}

// Buffers in CSR format that own their memory.
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

// The sorted triples (sample, row, gain) of one SparseCore. `counts` has the index of the first
// triple of each shard. A test may make it wrong.
struct Sorted {
  std::vector<int32_t> samples, rows, counts;
  std::vector<float> gains;
};

Sorted Sort(const Case& c, const Triples& triples, int64_t begin, int64_t end,
            ExecutionContext& exec) {
  const TriplesView all = triples.view();
  ShardedTriples merged;
  EXPECT_OK(
      MergeFeatures({{all.samples + begin, all.rows + begin, all.gains + begin, end - begin}},
                    {0}, c.cores, c.rows, &merged, exec));
  Sorted sorted;
  const int64_t count = merged.triples.size();
  sorted.samples.resize(count);
  sorted.rows.resize(count);
  sorted.gains.resize(count);
  sorted.counts.resize(c.cores + 1);
  PartitionByShard(merged, c.samples / c.cores, sorted.counts.data(), sorted.samples.data(),
                   sorted.rows.data(), sorted.gains.data());
  return sorted;
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

Csr AllocateCsr(const CsrShape& shape, int64_t cores, CsrBuffers* buffers) {
  Csr csr;
  csr.pointers.resize(shape.max_minibatches * cores * shape.stride());
  csr.samples.resize(shape.capacity);
  csr.rows.resize(shape.capacity);
  csr.gains.resize(shape.capacity);
  *buffers = {csr.pointers.data(), csr.samples.data(), csr.rows.data(), csr.gains.data()};
  return csr;
}

void IsClose(float got, double expected) {
  EXPECT_NEAR(got, expected, 1e-4 * (1 + std::abs(expected)));
}

// Compares activations, and the table after a step of SGD, with results computed id by id.
void Compare(const Case& c, const Triples& triples, ExecutionContext& exec) {
  std::vector<float> activations(c.samples * c.width, 7.f);
  // Row r is in shard r % cores at position r / cores.
  const auto dealt = [&c](int64_t row) {
    return row % c.cores * (c.rows / c.cores) + row / c.cores;
  };
  std::vector<double> expected(activations.size()), updated(c.table.begin(), c.table.end());
  for (int64_t s = 0; s < c.samples; ++s) {
    double scale = 0;
    for (int32_t i = c.splits[s]; i < c.splits[s + 1]; ++i) {
      scale +=
          c.combiner == Combiner::kMean ? c.weights[i] : double{c.weights[i]} * c.weights[i];
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
  SumRows(triples, c.table.data(), c.width, Quantization{}, c.samples, activations.data(),
          exec);
  for (size_t i = 0; i < expected.size(); ++i) IsClose(activations[i], expected[i]);
  std::vector<float> table = c.table;
  float* const tables[] = {table.data()};
  Hyper hyper;
  hyper.learning_rate = 0.5f;
  EXPECT(
      !UpdateRows(triples, c.gradients.data(), c.width, Optimizer::kSgd, hyper, tables, exec));
  for (size_t i = 0; i < updated.size(); ++i) IsClose(table[i], updated[i]);
  // The results of other optimizers are not compared. Sanitizers check that they stay within
  // their arrays.
  std::vector<float> first(c.table.size(), 0.5f), second(c.table.size(), 0.25f);
  float* const slots[] = {table.data(), first.data(), second.data()};
  for (const Optimizer optimizer : {Optimizer::kAdagrad, Optimizer::kAdam}) {
    EXPECT(!UpdateRows(triples, c.gradients.data(), c.width, optimizer, hyper, slots, exec));
  }
}

int32_t Wild(Random& random) {
  const int32_t values[] = {
      -1, 0, 1, 7, 8, 9, 100, 1 << 20, kSparseCorePad, std::numeric_limits<int32_t>::min()};
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

// Damages one input of the pipeline. The next function must refuse it or stay within its
// arrays.
void Break(Case c, const CsrShape& shape, std::vector<Sorted> sorted, Csr csr, Random& random,
           ExecutionContext& exec) {
  switch (random.Below(3)) {
    case 0: {
      std::vector<int32_t>& which = random.Below(2) ? c.splits : c.ids;
      if (!which.empty()) {
        which[random.Below(static_cast<int64_t>(which.size()))] = Wild(random);
      }
      Triples triples;
      const auto refused = FeatureToTriples(FeatureOf(c), c.combiner, &triples);
      for (int64_t i = 0; refused.ok() && i < triples.size(); ++i) {
        EXPECT(triples.samples[i] >= 0 && triples.samples[i] < c.samples);
      }
      return;
    }
    case 1: {
      Damage(&sorted[random.Below(c.cores)].counts, random);
      const int64_t splits = random.Below(3) ? 0 : static_cast<int64_t>(random.Next());
      const std::vector<CsrSource> sources = SourcesOf(sorted);
      if (!CheckCsrSources(shape, splits, sources).ok()) return;
      CsrBuffers buffers;
      const Csr packed = AllocateCsr(shape, c.cores, &buffers);
      PackCsr(shape, splits, sources, &buffers);
      return;
    }
    default: {
      Damage(random.Below(2)   ? &csr.pointers
             : random.Below(2) ? &csr.samples
                               : &csr.rows,
             random);
      // The arrays get equal lengths, because the kernel checks this.
      const size_t size = std::min(csr.samples.size(), csr.rows.size());
      csr.samples.resize(size);
      csr.rows.resize(size);
      csr.gains.resize(size);
      if (random.Below(4) == 0) csr.minibatches = Wild(random);
      Triples triples;
      if (!ReadCsr(csr.View(c.cores), c.samples, c.rows, &triples, exec).ok()) return;
      std::vector<float> activations(c.samples * c.width);
      SumRows(triples, c.table.data(), c.width, Quantization{true, -1, 1, 5}, c.samples,
              activations.data(), exec);
      return;
    }
  }
}

void Run(Random& random, Pool& pool) {
  const Case c = Draw(random);
  PoolContext exec(pool);
  Triples triples;
  EXPECT_OK(FeatureToTriples(FeatureOf(c), c.combiner, &triples));
  const CooStacking stacking{c.samples, c.cores, 0, 0, 0, c.cores, c.samples};
  EXPECT_OK(CheckStacking(stacking));
  std::vector<int64_t> begins;
  EXPECT_OK(StackTriples(stacking, &triples, &begins));
  std::vector<Sorted> sorted(c.cores);
  for (int64_t core = 0; core < c.cores; ++core) {
    sorted[core] = Sort(c, triples, begins[core], begins[core + 1], exec);
  }
  // Each run may need up to 7 elements of padding.
  const int64_t most = triples.size() + 8 * c.cores * c.cores;
  const CsrShape shape{c.cores, 1 + random.Below(3), (most + 7) / 8 * 8};
  const std::vector<CsrSource> sources = SourcesOf(sorted);
  EXPECT_OK(CheckCsrSources(shape, 0, sources));
  CsrBuffers buffers;
  Csr csr = AllocateCsr(shape, c.cores, &buffers);
  PackCsr(shape, 0, sources, &buffers);
  EXPECT_EQ(buffers.dropped, 0);
  csr.minibatches = buffers.minibatches;
  Triples read;
  EXPECT_OK(ReadCsr(csr.View(c.cores), c.samples, c.rows, &read, exec));
  Compare(c, read, exec);
  for (int i = 0; i < 20; ++i) Break(c, shape, sorted, csr, random, exec);
}

TEST(Pipeline, RandomBatchesMatchTheReference) {
  Pool pool(4);
  Random random{testing::Seed()};
  embedding::ForEachIsa([&] {
    for (int64_t round = 0; round < testing::Rounds(40); ++round) Run(random, pool);
  });
}

}  // namespace
}  // namespace opwright::sparsecore
