// Runs the CUDA backend's kernels on the CPU, thread by thread, against rows of doubles: what
// they compute is checked where there is no GPU. Threads run in a drawn order, since on a
// GPU none comes first.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "embedding/cuda/device_errors.h"
#include "embedding/cuda/kernels.h"
#include "embedding/cuda/plan.h"
#include "embedding/testing/elements.h"

namespace opwright::embedding::cuda {
namespace {

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
  std::vector<int64_t> offsets{0}, indices;
  std::vector<float> per_sample_weights, scales;
  std::vector<Array<float>> gradients;  // One.

  Source View() const {
    Source source;
    source.samples = static_cast<int64_t>(offsets.size()) - 1;
    source.count = static_cast<int64_t>(indices.size());
    source.offsets = offsets.data();
    source.indices = indices.data();
    source.per_sample_weights =
        per_sample_weights.empty() ? nullptr : per_sample_weights.data();
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
      bags.indices.push_back(hot >= 0 && random.Below(8) ? hot : random.Below(table.rows));
      if (weighted) bags.per_sample_weights.push_back(Draw(random) + 1.5f);
    }
    bags.offsets.push_back(static_cast<int64_t>(bags.indices.size()));
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
  table.hyper = SomeHyper(table.optimizer);
  table.accumulate = random.Below(3) != 0;
  table.every_row = random.Below(4) == 0;
  if (random.Below(4) == 0) table.quantization = {true, -1, 1, 17};
  if (random.Below(3) == 0) table.hyper.decay = 0.01f;
  return table;
}

// A table as the device holds it, and the plain model of it: [rows][stride].
struct Device {
  Rows rows = {};
  std::vector<Array<float>> chunks;
  std::vector<float> model;
};

Device MakeTable(Random& random, const TableConfig& table) {
  Device made;
  Device* const held = &made;
  const Chunks chunks = Value(PlanChunks(table, 1 + random.Below(4000)));
  EXPECT(chunks.count <= kMaxChunks);
  held->rows.rows = chunks.rows;
  held->rows.stride = chunks.stride;
  held->rows.shift = chunks.shift;
  for (int i = 0; i < chunks.count; ++i) {
    EXPECT(chunks.rows_of(i) > 0);
    held->chunks.emplace_back(chunks.rows_of(i) * chunks.stride);
    held->rows.chunks[i] = held->chunks.back().get();
  }
  held->model.assign(table.rows * chunks.stride, 0);
  return made;
}

// Fills the weights and all slots by shards, and reads them back.
template <bool kWide>
void WriteAndRead(Random& random, const TableConfig& table, Device* held) {
  const Shape shape = PlanShape(table.dimension);
  const int64_t d = table.dimension;
  for (int64_t slot = -1; slot < table.slots(); ++slot) {
    const int64_t shards = 1 + random.Below(std::min<int64_t>(3, table.rows));
    for (int64_t n = 0; n < shards; ++n) {
      const Shard shard = ShardOf(table.rows, shards, n, random.Below(2) && shards == 1);
      Array<float> values(shard.count * d, kWide), back(shard.count * d, kWide);
      for (int64_t i = 0; i < shard.count * d; ++i) {
        values[i] = slot < 0 ? Draw(random) : std::abs(Draw(random)) + 0.5f;
        held->model[(shard.first + i / d * shard.step) * held->rows.stride + (slot + 1) * d +
                    i % d] = values[i];
      }
      Launch(random,
             CopyRows<kWide, true>{held->rows, shape, shard.count, shard.first, shard.step,
                                   (slot + 1) * d, values.get()},
             shape.blocks);
      Launch(random,
             CopyRows<kWide, false>{held->rows, shape, shard.count, shard.first, shard.step,
                                    (slot + 1) * d, back.get()},
             shape.blocks);
      for (int64_t i = 0; i < shard.count * d; ++i) EXPECT_EQ(back[i], values[i]);
    }
  }
}

template <bool kWide, bool kQuantized>
void LookupIsRight(Random& random, const TableConfig& table, const Device& held,
                   const Bags& bags) {
  const Shape shape = PlanShape(table.dimension);
  const Source source = bags.View();
  const Quantization& q = table.quantization;
  const float size = kQuantized ? (q.upper - q.lower) / static_cast<float>(q.buckets - 1) : 0;
  Array<float> out(source.samples * table.dimension, kWide);
  DeviceErrors errors;
  std::memset(&errors, 0xFF, sizeof errors);
  Launch(random,
         Lookup<kWide, kQuantized>{held.rows, shape, source, q.lower, q.upper, size, out.get(),
                                   &errors},
         shape.blocks);
  EXPECT(!errors.any());
  for (int64_t s = 0; s < source.samples; ++s) {
    for (int64_t k = 0; k < table.dimension; ++k) {
      double sum = 0;
      double either = 0;  // What values halfway between buckets, but for rounding, may add.
      for (int64_t i = bags.offsets[s]; i < bags.offsets[s + 1]; ++i) {
        const double weight = bags.per_sample_weights.empty() ? 1 : bags.per_sample_weights[i];
        double x = held.model[bags.indices[i] * held.rows.stride + k];
        if (kQuantized) {
          x = std::min<double>(std::max<double>(x, q.lower), q.upper);
          const double bucket = (x - q.lower) / size + 0.5;
          if (std::abs(bucket - std::round(bucket)) < 1e-5) either += weight * size;
          x = std::floor(bucket) * size + q.lower;
        }
        sum += weight * x;
      }
      const double scale = bags.scales.empty() ? 1 : bags.scales[s];
      const double found = out[s * table.dimension + k];
      EXPECT(std::abs(found - sum * scale) <= either * scale + 2e-3 * (1 + std::abs(found)));
    }
  }
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

void Prepare(Random& random, const TableConfig& table, const Device& held,
             const std::vector<Bags>& all, DeviceErrors* errors, Work* work) {
  int64_t ids = 0;
  for (const Bags& bags : all) ids += bags.View().count;
  // Few threads: long tiles; many: short ones.
  const Workspace plan = Value(PlanUpdate(table, ids, random.Below(2) ? 1 : 1 << 20, 0));
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
    Launch(random,
           Expand{source, position, table.rows, table.dimension,
                  SampleLaneBits(source.samples, source.count), keys, work->positions.data(),
                  work->contributions.data(), table.every_row ? work->touched.data() : nullptr,
                  errors},
           1);
    Launch(random,
           CheckValues<false>{source.gradients, source.samples * table.dimension,
                              static_cast<int64_t>(n), errors},
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
  work->sorted = {held.rows,
                  PlanShape(table.dimension),
                  keys,
                  work->positions.data(),
                  work->contributions.data(),
                  ids,
                  plan.tile,
                  plan.tiles,
                  work->partials.get(),
                  work->crossing.data(),
                  work->counters.data(),
                  errors};
}

template <bool kWide>
void Update(Random& random, const TableConfig& table, const Work& work, DeviceErrors* errors) {
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
      Launch(
          random,
          UpdateRest<Rule, kWide>{work.sorted.rows, shape, work.touched.data(), errors, step},
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
    for (size_t s = 0; s + 1 < bags.offsets.size(); ++s) {
      for (int64_t i = bags.offsets[s]; i < bags.offsets[s + 1]; ++i) {
        float coefficient = bags.scales.empty() ? 1 : bags.scales[s];
        if (!bags.per_sample_weights.empty()) coefficient *= bags.per_sample_weights[i];
        std::vector<double> one(d);
        for (int64_t k = 0; k < d; ++k) {
          one[k] = static_cast<double>(coefficient) * bags.gradients[0][s * d + k];
        }
        by_row[bags.indices[i]].push_back(one);
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
    for (const std::vector<double>& one : each) {
      for (int64_t k = 0; k < d; ++k) {
        float* element[1 + kMaxSlots];
        for (int64_t i = 0; i <= table.slots(); ++i) element[i] = at + i * d + k;
        UpdateElement(table.optimizer, table.hyper, one[k], element);
      }
    }
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
void StepsAreRight(Random& random, const TableConfig& table) {
  Device held = MakeTable(random, table);
  WriteAndRead<kWide>(random, table, &held);
  std::vector<Bags> all;
  for (int64_t n = random.Below(4); n > 0; --n) {
    all.push_back(DrawBags(random, table, kWide));
    if (table.quantization.enabled) {
      LookupIsRight<kWide, true>(random, table, held, all.back());
    } else {
      LookupIsRight<kWide, false>(random, table, held, all.back());
    }
  }
  DeviceErrors errors;
  std::memset(&errors, 0xFF, sizeof errors);
  // A bad batch first, of each kind: it is found where it is, and nothing changes.
  const std::vector<float> before = Contents(held);
  for (size_t n = 0; n < all.size(); ++n) {
    Bags& bags = all[n];
    if (bags.indices.empty()) continue;
    const int64_t i = random.Below(static_cast<int64_t>(bags.indices.size()));
    const int64_t g = random.Below(bags.View().samples * table.dimension);
    const int64_t id = bags.indices[i];
    const float value = bags.gradients[0][g];
    const int64_t which = random.Below(2);
    if (which) {
      bags.indices[i] = random.Below(2) ? table.rows : -1;
    } else {
      bags.gradients[0][g] = random.Below(2) ? NAN : INFINITY;
    }
    Work work;
    Prepare(random, table, held, all, &errors, &work);
    Update<kWide>(random, table, work, &errors);
    const ErrorKind kind = which ? kBadId : kBadGradient;
    EXPECT(errors.first[kind] == (static_cast<uint64_t>(n) << 48 | (which ? i : g)));
    const std::string words = Describe(table, errors);
    EXPECT(words.find(std::to_string(which ? i : g) + " of source " + std::to_string(n)) !=
           std::string::npos);
    EXPECT(Contents(held) == before);
    bags.indices[i] = id;
    bags.gradients[0][g] = value;
    std::memset(&errors, 0xFF, sizeof errors);
  }
  Work work;
  Prepare(random, table, held, all, &errors, &work);
  EXPECT(!errors.any());
  Update<kWide>(random, table, work, &errors);
  UpdateModel(table, all, &held);
  const std::vector<float> after = Contents(held);
  for (size_t i = 0; i < after.size(); ++i) EXPECT(Near(after[i], held.model[i]));
}

// Starts that fall, that begin or end elsewhere, and weights that are not finite.
TEST(Kernels, BrokenBagsAreFound) {
  TableConfig table;
  table.name = "t";
  table.rows = 5;
  table.dimension = 1;
  Random random{1};
  for (int which = 0; which < 5; ++which) {
    Bags bags;
    bags.offsets = {0, 2, 3, 4};
    bags.indices = {1, 2, 3, 4};
    bags.per_sample_weights = {1, 1, 1, 1};
    bags.gradients.emplace_back(3);
    if (which == 0) bags.offsets[1] = 4;
    if (which == 1) bags.offsets[0] = 1;
    if (which == 2) bags.offsets[3] = 3;
    if (which == 3) bags.offsets[2] = int64_t{1} << 60;
    if (which == 4) bags.per_sample_weights[2] = NAN;
    DeviceErrors errors;
    std::memset(&errors, 0xFF, sizeof errors);
    const Device held = MakeTable(random, table);
    std::vector<Bags> all;
    all.push_back(std::move(bags));
    Work work;
    Prepare(random, table, held, all, &errors, &work);
    const unsigned long long expected[] = {1, 0, 2, 1, 2};
    EXPECT_EQ(errors.first[which == 4 ? kBadWeight : kBadOffset], expected[which]);
  }
}

// Steps of drawn tables: with every optimizer, rows of any width, wherever gradients lie.
TEST(Kernels, RandomSteps) {
  for (int64_t round = 0; round < testing::Rounds(300); ++round) {
    Random random{testing::Seed()};
    const TableConfig table = DrawTable(random);
    const bool wide = table.dimension % kFloats == 0 && random.Below(4);
    if (wide) {
      StepsAreRight<true>(random, table);
    } else {
      StepsAreRight<false>(random, table);
    }
  }
}

// The first values that are wrong, among any number of threads.
TEST(Kernels, ValuesOutsideOfARange) {
  Random random{testing::Seed()};
  for (int64_t round = 0; round < testing::Rounds(100); ++round) {
    const int64_t count = 1 + random.Below(500);
    std::vector<uint32_t> values(static_cast<size_t>(count));
    Launch(random, Fill{kClearBits, count, values.data()}, 1);
    unsigned long long first = DeviceErrors::kNone;
    const FindOutsideRange find{Range::kClear, count, values.data(), &first};
    Launch(random, find, 1);
    EXPECT_EQ(first, DeviceErrors::kNone);
    const int64_t at = random.Below(count);
    for (const int64_t wrong : {at, at + random.Below(count - at)}) {
      values[static_cast<size_t>(wrong)] = kClearBits + 1;
    }
    Launch(random, find, 1);
    EXPECT_EQ(first, static_cast<unsigned long long>(at));
  }
}

}  // namespace
}  // namespace opwright::embedding::cuda
