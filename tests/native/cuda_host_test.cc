// Runs the CUDA backend's kernels on the CPU, thread by thread, against rows of doubles: what
// they compute is checked where there is no GPU. Threads run in a drawn order, since on a
// GPU none comes first. Also: the plans, over sizes that no test could allocate.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "cuda/kernels.h"
#include "cuda/plan.h"
#include "cuda/verdict.h"
#include "expect.h"
#include "pool_host.h"

namespace opwright {
namespace cuda {
namespace {

using embedding::Hyper;
using embedding::Optimizer;
using embedding::VisitRule;

float Draw(Random& random) { return static_cast<float>(2 * random.Uniform()); }

// Memory that begins where a vector may, exactly as long as it must be.
template <class X>
class Array {
 public:
  explicit Array(int64_t size, bool aligned = true)
      : memory_(static_cast<char*>(
            std::aligned_alloc(256, (size * sizeof(X) + 4 + 255) / 256 * 256))),
        data_(reinterpret_cast<X*>(memory_ + (aligned ? 0 : 4))) {
    std::memset(memory_, 0, (size * sizeof(X) + 4 + 255) / 256 * 256);
  }
  Array(const Array&) = delete;
  Array(Array&& other) noexcept : memory_(other.memory_), data_(other.data_) {
    other.memory_ = nullptr;
  }
  Array& operator=(Array&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~Array() { std::free(memory_); }
  X* get() const { return data_; }
  X& operator[](int64_t i) const { return data_[i]; }

 private:
  char* memory_;
  X* data_;
};

// Every thread at every block of columns, from a drawn one on with a drawn step.
template <class Kernel>
void Launch(Random& random, const Kernel& kernel, int blocks) {
  const int64_t all = kernel.threads() * blocks;
  if (all == 0) return;
  int64_t step = 1 + random.Below(all);
  while (std::gcd(step, all) != 1) ++step;
  int64_t at = random.Below(all);
  for (int64_t i = 0; i < all; ++i, at = (at + step) % all) {
    kernel(at / blocks, at % blocks);
  }
}

template <class Kernel>
void LaunchTogether(const Kernel& kernel, int blocks) {
  static typename Kernel::Shared shared;
  for (int64_t item = 0; item < kernel.items(); ++item) {
    for (int block = 0; block < blocks; ++block) {
      for (int64_t t = 0; t < Kernel::kTogether; ++t) kernel.Gather(item, t, block, shared);
      for (int64_t t = 0; t < Kernel::kTogether; ++t) kernel.Finish(item, t, block, shared);
    }
  }
}

struct Bags {
  std::vector<int64_t> starts{0}, ids;
  std::vector<float> weights, scales;
  std::vector<Array<float>> gradients;  // One.

  Source View() const {
    Source source;
    source.samples = static_cast<int64_t>(starts.size()) - 1;
    source.count = static_cast<int64_t>(ids.size());
    source.starts = starts.data();
    source.ids = ids.data();
    source.weights = weights.empty() ? nullptr : weights.data();
    source.scales = scales.empty() ? nullptr : scales.data();
    source.gradients = gradients[0].get();
    return source;
  }
};

Bags DrawBags(Random& random, const TableConfig& table, bool aligned) {
  Bags bags;
  const int64_t samples = random.Below(60);
  const bool weighted = random.Below(2), scaled = random.Below(2);
  // Half of the time most ids are one row, whose run then spans many tiles.
  const int64_t hot = random.Below(2) ? random.Below(table.rows) : -1;
  const int64_t most = random.Below(3) == 0 ? 40 : 5;
  for (int64_t s = 0; s < samples; ++s) {
    for (int64_t i = random.Below(most); i > 0; --i) {
      bags.ids.push_back(hot >= 0 && random.Below(8) ? hot : random.Below(table.rows));
      if (weighted) bags.weights.push_back(Draw(random) + 1.5f);
    }
    bags.starts.push_back(static_cast<int64_t>(bags.ids.size()));
    if (scaled) bags.scales.push_back(Draw(random) + 1.5f);
  }
  bags.gradients.emplace_back(samples * table.dimension, aligned);
  for (int64_t i = 0; i < samples * table.dimension; ++i) {
    bags.gradients[0][i] = Draw(random);
  }
  return bags;
}

TableConfig DrawTable(Random& random) {
  TableConfig table;
  table.name = "t";
  table.rows = 1 + random.Below(random.Below(2) ? 4 : 400);
  table.dimension = 1 + random.Below(random.Below(2) ? 9 : 300);
  if (random.Below(2)) table.dimension = (table.dimension + 3) / 4 * 4;
  table.optimizer = static_cast<Optimizer>(random.Below(13));
  table.hyper.learning_rate = 0.1f;
  for (float& value : table.hyper.hyper) value = 0.5f;
  if (table.optimizer == Optimizer::kFtrl) table.hyper.hyper[2] = -0.5f;
  table.accumulate = random.Below(3) != 0;
  table.every_row = random.Below(4) == 0;
  if (random.Below(4) == 0) table.quantization = {true, -1, 1, 17};
  if (random.Below(3) == 0) table.hyper.decay = 0.01f;
  return table;
}

// Float arithmetic in another order, and rules that amplify it.
bool Near(float a, float b) { return std::abs(a - b) <= 2e-3 * (1 + std::abs(a)); }

// A table as the device holds it, and the plain model of it: [rows][stride].
struct Device {
  Rows rows = {};
  std::vector<Array<float>> chunks;
  std::vector<float> model;
};

bool MakeTable(Random& random, const TableConfig& table, Device* held) {
  Chunks chunks;
  EXPECT(!PlanChunks(table, 1 + random.Below(4000), &chunks));
  EXPECT(chunks.count <= kMostChunks);
  held->rows.rows = chunks.rows;
  held->rows.stride = chunks.stride;
  held->rows.shift = chunks.shift;
  for (int i = 0; i < chunks.count; ++i) {
    EXPECT(chunks.rows_of(i) > 0);
    held->chunks.emplace_back(chunks.rows_of(i) * chunks.stride);
    held->rows.chunks[i] = held->chunks.back().get();
  }
  held->model.assign(table.rows * chunks.stride, 0);
  return true;
}

// Fills the weights and all slots by shards, and reads them back.
template <bool kWide>
bool WriteAndRead(Random& random, const TableConfig& table, Device* held) {
  const Shape shape = PlanShape(table.dimension);
  const int64_t d = table.dimension;
  for (int64_t slot = -1; slot < table.slots(); ++slot) {
    const int64_t shards = 1 + random.Below(std::min<int64_t>(3, table.rows));
    for (int64_t n = 0; n < shards; ++n) {
      const embedding::Shard shard =
          embedding::ShardOf(table.rows, shards, n, random.Below(2) && shards == 1);
      Array<float> values(shard.count * d, kWide), back(shard.count * d, kWide);
      for (int64_t i = 0; i < shard.count * d; ++i) {
        values[i] = slot < 0 ? Draw(random) : std::abs(Draw(random)) + 0.5f;
        held->model[(shard.first + i / d * shard.step) * held->rows.stride + (slot + 1) * d +
                    i % d] = values[i];
      }
      Launch(random, CopyRows<kWide, true>{held->rows, shape, shard.count, shard.first,
                                           shard.step, (slot + 1) * d, values.get()},
             shape.blocks);
      Launch(random, CopyRows<kWide, false>{held->rows, shape, shard.count, shard.first,
                                            shard.step, (slot + 1) * d, back.get()},
             shape.blocks);
      for (int64_t i = 0; i < shard.count * d; ++i) EXPECT(back[i] == values[i]);
    }
  }
  return true;
}

template <bool kWide, bool kQuantized>
bool LookupIsRight(Random& random, const TableConfig& table, const Device& held,
                   const Bags& bags) {
  const Shape shape = PlanShape(table.dimension);
  const Source source = bags.View();
  const embedding::Quantization& q = table.quantization;
  const float size = kQuantized ? (q.upper - q.lower) / static_cast<float>(q.buckets - 1) : 0;
  Array<float> out(source.samples * table.dimension, kWide);
  Verdict verdict;
  std::memset(&verdict, 0xFF, sizeof verdict);
  Launch(random, Lookup<kWide, kQuantized>{held.rows, shape, source, q.lower, q.upper, size,
                                           out.get(), &verdict},
         shape.blocks);
  EXPECT(!verdict.bad());
  for (int64_t s = 0; s < source.samples; ++s) {
    for (int64_t k = 0; k < table.dimension; ++k) {
      double sum = 0;
      for (int64_t i = bags.starts[s]; i < bags.starts[s + 1]; ++i) {
        double x = held.model[bags.ids[i] * held.rows.stride + k];
        if (kQuantized) {
          x = std::min<double>(std::max<double>(x, q.lower), q.upper);
          x = std::floor((x - q.lower) / size + 0.5) * size + q.lower;
        }
        sum += (bags.weights.empty() ? 1 : bags.weights[i]) * x;
      }
      if (!bags.scales.empty()) sum *= bags.scales[s];
      EXPECT(Near(out[s * table.dimension + k], static_cast<float>(sum)));
    }
  }
  return true;
}

// Sources of an update and what it works in, sorted as CUB would.
struct Work {
  std::vector<uint64_t> keys;
  std::vector<uint32_t> narrow, positions;
  std::vector<Contribution> contributions;
  std::vector<uint32_t> touched, counters;
  std::vector<int32_t> crossing;
  Array<double> partials{0};
  Sorted sorted = {};
};

bool Prepare(Random& random, const TableConfig& table, const Device& held,
             const std::vector<Bags>& all, Verdict* verdict, Work* work) {
  int64_t ids = 0;
  for (const Bags& bags : all) ids += bags.View().count;
  Workspace plan;
  // Few threads: long tiles; many: short ones.
  EXPECT(!PlanUpdate(table, ids, random.Below(2) ? 1 : 1 << 20, 0, &plan));
  work->keys.resize(ids);
  work->narrow.resize(ids);
  work->positions.resize(ids);
  work->contributions.resize(ids);
  work->touched.assign(plan.touched_bytes / 4, 0);
  work->counters.assign(2, 0);
  work->crossing.assign(plan.tiles, -1);
  work->partials = Array<double>(2 * plan.tiles * table.dimension);
  for (double* x = work->partials.get();
       x != work->partials.get() + 2 * plan.tiles * table.dimension; ++x) {
    *x = NAN;  // Nothing that was not written may be read.
  }
  const bool wide = random.Below(2);
  const Keys keys{wide ? static_cast<void*>(work->keys.data()) : work->narrow.data(), wide};
  int64_t position = 0;
  for (size_t n = 0; n < all.size(); ++n) {
    Source source = all[n].View();
    source.number = static_cast<int64_t>(n);
    Launch(random, Expand{source, position, table.rows, table.dimension,
                          SampleLaneBits(source.samples, source.count), keys,
                          work->positions.data(), work->contributions.data(),
                          table.every_row ? work->touched.data() : nullptr, verdict},
           1);
    Launch(random, CheckGradients<false>{source.gradients, source.samples * table.dimension,
                                         static_cast<int64_t>(n), verdict},
           1);
    position += source.count;
  }
  std::vector<uint32_t> order(ids);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return keys[a] < keys[b]; });
  std::vector<int64_t> rows(ids);
  std::vector<uint32_t> positions(ids);
  for (int64_t i = 0; i < ids; ++i) {
    rows[i] = keys[order[i]];
    positions[i] = work->positions[order[i]];
  }
  for (int64_t i = 0; i < ids; ++i) keys.Set(i, rows[i]);
  work->positions = positions;
  work->sorted = {held.rows, PlanShape(table.dimension), keys, work->positions.data(),
                  work->contributions.data(), ids, plan.tile, plan.tiles,
                  work->partials.get(), work->crossing.data(), work->counters.data(), verdict};
  return true;
}

template <bool kWide>
void Update(Random& random, const TableConfig& table, const Work& work, Verdict* verdict) {
  const Shape& shape = work.sorted.shape;
  VisitRule(table.optimizer, [&](auto tag) {
    using Rule = typename decltype(tag)::type;
    const Step<Rule> step(table.hyper);
    if (work.sorted.tiles > 0 && !table.accumulate) {
      Launch(random, UpdateEach<Rule, kWide>{work.sorted, step}, shape.blocks);
    } else if (work.sorted.tiles > 0) {
      Launch(random, UpdateTiles<Rule, kWide>{work.sorted, step}, shape.blocks);
      const Combine<Rule, kWide> combine{work.sorted, step};
      Launch(random, CombineShort<Rule, kWide>{combine}, shape.blocks);
      LaunchTogether(CombineLong<Rule, kWide>{combine}, shape.blocks);
    }
    if (table.every_row) {
      Launch(random, UpdateRest<Rule, kWide>{work.sorted.rows, shape, work.touched.data(),
                                             verdict, step},
             shape.blocks);
    }
  });
}

// The same on the model, in doubles, id after id.
void UpdateModel(const TableConfig& table, const std::vector<Bags>& all, Device* held) {
  const int64_t d = table.dimension;
  std::map<int64_t, std::vector<std::vector<double>>> by_row;
  if (table.every_row) {
    for (int64_t row = 0; row < table.rows; ++row) by_row[row];
  }
  for (const Bags& bags : all) {
    for (size_t s = 0; s + 1 < bags.starts.size(); ++s) {
      for (int64_t i = bags.starts[s]; i < bags.starts[s + 1]; ++i) {
        float coefficient = bags.scales.empty() ? 1 : bags.scales[s];
        if (!bags.weights.empty()) coefficient *= bags.weights[i];
        std::vector<double> one(d);
        for (int64_t k = 0; k < d; ++k) {
          one[k] = static_cast<double>(coefficient) * bags.gradients[0][s * d + k];
        }
        by_row[bags.ids[i]].push_back(one);
      }
    }
  }
  for (auto& [row, each] : by_row) {
    if (each.empty()) each.emplace_back(d, 0.);
    if (table.accumulate) {
      for (size_t i = 1; i < each.size(); ++i) {
        for (int64_t k = 0; k < d; ++k) each[0][k] += each[i][k];
      }
      each.resize(1);
    }
    float* const at = held->model.data() + row * held->rows.stride;
    VisitRule(table.optimizer, [&](auto tag) {
      using Rule = typename decltype(tag)::type;
      using F = typename Rule::F;
      const Step<Rule> step(table.hyper);
      for (const std::vector<double>& one : each) {
        for (int64_t k = 0; k < d; ++k) {
          F slots[4] = {};
          for (int i = 0; i < Rule::kSlots; ++i) slots[i] = at[(i + 1) * d + k];
          F w = at[k];
          step(static_cast<F>(one[k]), w, slots);
          at[k] = static_cast<float>(w);
          for (int i = 0; i < Rule::kSlots; ++i) at[(i + 1) * d + k] = float(slots[i]);
        }
      }
    });
  }
}

std::vector<float> Contents(const Device& held) {
  std::vector<float> all;
  for (int64_t row = 0; row < held.rows.rows; ++row) {
    const float* const at = held.rows[row];
    all.insert(all.end(), at, at + held.rows.stride);
  }
  return all;
}

template <bool kWide>
bool StepsAreRight(Random& random, const TableConfig& table) {
  Device held;
  if (!MakeTable(random, table, &held)) return false;
  if (!WriteAndRead<kWide>(random, table, &held)) return false;
  std::vector<Bags> all;
  for (int64_t n = random.Below(4); n > 0; --n) {
    all.push_back(DrawBags(random, table, kWide));
    if (!(table.quantization.enabled
              ? LookupIsRight<kWide, true>(random, table, held, all.back())
              : LookupIsRight<kWide, false>(random, table, held, all.back()))) {
      return false;
    }
  }
  Verdict verdict;
  std::memset(&verdict, 0xFF, sizeof verdict);
  // A bad batch first, of each kind: it is found where it is, and nothing changes.
  const std::vector<float> before = Contents(held);
  for (size_t n = 0; n < all.size(); ++n) {
    Bags& bags = all[n];
    if (bags.ids.empty()) continue;
    const int64_t i = random.Below(static_cast<int64_t>(bags.ids.size()));
    const int64_t g = random.Below(bags.View().samples * table.dimension);
    const int64_t id = bags.ids[i];
    const float value = bags.gradients[0][g];
    const int64_t which = random.Below(2);
    if (which) {
      bags.ids[i] = random.Below(2) ? table.rows : -1;
    } else {
      bags.gradients[0][g] = random.Below(2) ? NAN : INFINITY;
    }
    Work work;
    if (!Prepare(random, table, held, all, &verdict, &work)) return false;
    Update<kWide>(random, table, work, &verdict);
    const Offence offence = which ? kBadId : kBadGradient;
    EXPECT(verdict.first[offence] == (static_cast<uint64_t>(n) << 48 | (which ? i : g)));
    const std::string words = Describe(table, verdict);
    EXPECT(words.find(std::to_string(which ? i : g) + " of source " + std::to_string(n)) !=
           std::string::npos);
    EXPECT(Contents(held) == before);
    bags.ids[i] = id;
    bags.gradients[0][g] = value;
    std::memset(&verdict, 0xFF, sizeof verdict);
  }
  Work work;
  if (!Prepare(random, table, held, all, &verdict, &work)) return false;
  EXPECT(!verdict.bad());
  Update<kWide>(random, table, work, &verdict);
  UpdateModel(table, all, &held);
  const std::vector<float> after = Contents(held);
  for (size_t i = 0; i < after.size(); ++i) EXPECT(Near(after[i], held.model[i]));
  return true;
}

// Starts that fall, that begin or end elsewhere, and weights that are not finite.
bool BrokenBagsAreFound() {
  TableConfig table;
  table.name = "t";
  table.rows = 5;
  table.dimension = 1;
  Random random{1};
  for (int which = 0; which < 5; ++which) {
    Bags bags;
    bags.starts = {0, 2, 3, 4};
    bags.ids = {1, 2, 3, 4};
    bags.weights = {1, 1, 1, 1};
    bags.gradients.emplace_back(3);
    if (which == 0) bags.starts[1] = 4;
    if (which == 1) bags.starts[0] = 1;
    if (which == 2) bags.starts[3] = 3;
    if (which == 3) bags.starts[2] = int64_t{1} << 60;
    if (which == 4) bags.weights[2] = NAN;
    Verdict verdict;
    std::memset(&verdict, 0xFF, sizeof verdict);
    Device held;
    if (!MakeTable(random, table, &held)) return false;
    std::vector<Bags> all;
    all.push_back(std::move(bags));
    Work work;
    if (!Prepare(random, table, held, all, &verdict, &work)) return false;
    const unsigned long long expected[] = {1, 0, 2, 1, 2};
    EXPECT(verdict.first[which == 4 ? kBadWeight : kBadStart] == expected[which]);
  }
  return true;
}

bool PlansHold() {
  Random random{3};
  for (int n = 0; n < 20000; ++n) {
    TableConfig table;
    table.name = "t";
    table.optimizer = static_cast<Optimizer>(random.Below(13));
    table.rows = 1 + random.Below(int64_t{1} << 31) * 256 / (int64_t{1} << random.Below(39));
    table.dimension = 1 + random.Below(2000);
    const int64_t most = int64_t{1} << random.Below(40);
    Chunks chunks;
    EXPECT(!PlanChunks(table, most, &chunks));
    EXPECT(chunks.count >= 1 && chunks.count <= kMostChunks);
    int64_t rows = 0;
    for (int i = 0; i < chunks.count; ++i) {
      EXPECT(chunks.rows_of(i) > 0);
      // Larger than asked for only where there would be too many.
      EXPECT(chunks.bytes_of(i) <= most || chunks.rows_of(i) == 1 ||
             chunks.count > kMostChunks / 2);
      rows += chunks.rows_of(i);
    }
    EXPECT(rows == table.rows);
    EXPECT(((table.rows - 1) >> chunks.shift) == chunks.count - 1);
    const int bits = KeyBits(table.rows);
    EXPECT(bits >= 1 && ((table.rows - 1) >> bits) == 0);
    EXPECT(bits == 1 || ((table.rows - 1) >> (bits - 1)) != 0);

    const Shape shape = PlanShape(table.dimension);
    EXPECT(shape.lanes() <= kMostLanes);
    EXPECT(shape.lanes() * kFloats * shape.blocks >= table.dimension);
    EXPECT(shape.lanes() * kFloats * (shape.blocks - 1) < table.dimension);

    table.every_row = random.Below(2);
    const int64_t ids = random.Below(kMostIds);
    Workspace w;
    const auto refused = PlanUpdate(table, ids, 1 << random.Below(20), random.Below(1000), &w);
    EXPECT(!refused);
    EXPECT(w.tiles * w.tile >= ids && (w.tiles - 1) * w.tile < ids);
    const int64_t key = WideKeys(table.rows) ? 8 : 4;
    const int64_t places[] = {w.keys[0], w.keys[1], w.positions[0], w.positions[1],
                              w.contributions, w.partials, w.crossing, w.counters,
                              w.touched, w.sort, w.bytes};
    const int64_t sizes[] = {ids * key, ids * key, ids * 4, ids * 4, ids * 16,
                             w.tiles * table.dimension * 16, w.tiles * 4, 8,
                             w.touched_bytes, w.sort_bytes};
    for (int i = 0; i < 10; ++i) {
      EXPECT(places[i] % 256 == 0 && places[i + 1] - places[i] >= sizes[i]);
    }
    EXPECT(!table.every_row || w.touched_bytes * 8 >= table.rows);
    EXPECT(GridOf(table.rows) >= 1 && GridOf(table.rows) < int64_t{1} << 31);
  }
  TableConfig table;
  table.name = "t";
  table.rows = int64_t{1} << 61;
  table.dimension = 8;
  Chunks chunks;
  EXPECT(PlanChunks(table, 1 << 20, &chunks)->kind == embedding::Refusal::Kind::kOutOfMemory);
  table.rows = 0;
  EXPECT(PlanChunks(table, 1 << 20, &chunks));
  table.rows = 1;
  EXPECT(PlanChunks(table, 0, &chunks));
  Workspace w;
  EXPECT(PlanUpdate(table, kMostIds + 1, 1, 0, &w));
  EXPECT(PlanUpdate(table, -1, 1, 0, &w));
  table.dimension = int64_t{65536} * 128;
  EXPECT(PlanUpdate(table, 1, 1, 0, &w));
  return true;
}

int Main(int rounds) {
  if (!PlansHold() || !BrokenBagsAreFound()) return 1;
  for (int seed = 0; seed < rounds; ++seed) {
    Random random{static_cast<uint64_t>(seed) * 77 + 5};
    const TableConfig table = DrawTable(random);
    const bool wide = table.dimension % kFloats == 0 && random.Below(4);
    if (!(wide ? StepsAreRight<true>(random, table) : StepsAreRight<false>(random, table))) {
      std::printf("seed %d: optimizer %s, %s\n", seed,
                  embedding::FactsOf(table.optimizer).field, Describe(table).c_str());
      return 1;
    }
  }
  std::printf("%d draws\n", rounds);
  return 0;
}

}  // namespace
}  // namespace cuda
}  // namespace opwright

int main(int argc, char** argv) {
  return opwright::cuda::Main(argc > 1 ? std::atoi(argv[1]) : 300);
}
