// Runs the CUDA backend's kernels on the CPU, thread by thread, and compares with rows of
// doubles. This checks their results without a GPU. Threads run in a random order, because on a
// GPU the order is undefined.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "embedding/cuda/batched.h"
#include "embedding/cuda/device_errors.h"
#include "embedding/cuda/kernels.h"
#include "embedding/cuda/plan.h"
#include "embedding/testing/elements.h"

namespace opwright::embedding::cuda {
namespace {

float Draw(Random& random) { return static_cast<float>(2 * random.Uniform()); }

// Memory of the exact size that is needed. It begins at an address that is aligned for vectors
// or, if not `aligned`, 4 bytes later.
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

// Runs every thread at every block of columns, in a random order.
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
  int64_t table = 0;
  std::vector<int64_t> offsets{0}, indices;
  std::vector<int32_t> narrow;  // The same ids as int32, or empty.
  bool an_id_each = false;      // Each sample has one id, so no offsets are needed.
  std::vector<float> per_sample_weights, scales;
  std::vector<Array<float>> gradients;  // It has one element.

  Source View() const {
    Source source;
    source.table = table;
    source.samples = static_cast<int64_t>(offsets.size()) - 1;
    source.count = static_cast<int64_t>(indices.size());
    source.offsets = {offsets.data(), true};
    source.indices = {indices.data(), true};
    if (narrow.size() == indices.size()) source.indices = {narrow.data(), false};
    if (an_id_each) source.offsets = {};
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
  // In half of the cases most ids are one row, so that its run spans many tiles.
  const int64_t hot = random.Below(2) ? random.Below(table.rows) : -1;
  const int64_t most = random.Below(3) == 0 ? 40 : 5;
  bags.an_id_each = random.Below(4) == 0;
  for (int64_t s = 0; s < samples; ++s) {
    for (int64_t i = bags.an_id_each ? 1 : random.Below(most); i > 0; --i) {
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
  table.optimizer = OneOf(random, WithElementRules());
  table.hyper = SomeHyper(table.optimizer);
  table.accumulate = random.Below(3) != 0;
  table.every_row = random.Below(4) == 0;
  if (random.Below(4) == 0) table.quantization = {true, -1, 1, 17};
  if (random.Below(3) == 0) table.hyper.decay = 0.01f;
  return table;
}

// A table in the form of the device, and a reference copy in doubles, [rows][stride].
struct Device {
  TableConfig config;
  Chunks plan;
  TableView view;
  std::vector<Array<float>> chunks;
  std::vector<float*> addresses;
  std::vector<float> model;
};

Device MakeTable(Random& random, const TableConfig& table, int64_t first_key) {
  Device made;
  made.config = table;
  made.plan = Value(PlanChunks(table, 1 + random.Below(4000)));
  EXPECT(made.plan.count <= kMaxChunks);
  for (int i = 0; i < made.plan.count; ++i) {
    EXPECT(made.plan.rows_of(i) > 0);
    made.chunks.emplace_back(made.plan.rows_of(i) * made.plan.stride);
    made.addresses.push_back(made.chunks.back().get());
  }
  // Moving the vector does not move its elements, so the addresses stay valid.
  made.view = ViewOf(table, made.plan, made.addresses.data(), first_key);
  made.model.assign(static_cast<size_t>(table.rows * made.plan.stride), 0);
  return made;
}

// Writes the weights and all slots by shards, and reads them back.
template <bool kWide>
void WriteAndRead(Random& random, Device* held) {
  const TableConfig& table = held->config;
  const Rows& rows = held->view.rows;
  const Shape& shape = held->view.shape;
  const int64_t d = table.dimension;
  for (int64_t slot = -1; slot < table.slots(); ++slot) {
    const int64_t shards = 1 + random.Below(std::min<int64_t>(3, table.rows));
    for (int64_t n = 0; n < shards; ++n) {
      const Shard shard = ShardOf(table.rows, shards, n, random.Below(2) && shards == 1);
      Array<float> values(shard.count * d, kWide), back(shard.count * d, kWide);
      for (int64_t i = 0; i < shard.count * d; ++i) {
        values[i] = slot < 0 ? Draw(random) : std::abs(Draw(random)) + 0.5f;
        held->model[(shard.first + i / d * shard.step) * rows.stride + (slot + 1) * d + i % d] =
            values[i];
      }
      Launch(random,
             CopyRows<kWide, true>{rows, shape, shard.count, shard.first, shard.step,
                                   (slot + 1) * d, values.get()},
             shape.blocks);
      Launch(random,
             CopyRows<kWide, false>{rows, shape, shard.count, shard.first, shard.step,
                                    (slot + 1) * d, back.get()},
             shape.blocks);
      for (int64_t i = 0; i < shard.count * d; ++i) EXPECT_EQ(back[i], values[i]);
    }
  }
}

constexpr int64_t kManyRows = int64_t{1} << 33;

std::vector<TableView> ViewsOf(const std::vector<Device>& tables) {
  std::vector<TableView> views;
  for (const Device& table : tables) views.push_back(table.view);
  return views;
}

// Runs one kernel for all features.
void LookupsAreRight(Random& random, const std::vector<Device>& tables,
                     const std::vector<Bags>& all, bool aligned) {
  const std::vector<TableView> views = ViewsOf(tables);
  std::vector<Source> sources;
  std::vector<Array<float>> outputs;
  for (const Bags& bags : all) {
    sources.push_back(bags.View());
    sources.back().number = static_cast<int64_t>(sources.size()) - 1;
    const int64_t dimension = tables[static_cast<size_t>(bags.table)].config.dimension;
    outputs.emplace_back(sources.back().samples * dimension, aligned);
  }
  const LookupCall call = MakeLookup(views, sources);
  const std::vector<char>& image = call.image.bytes();
  EXPECT_EQ(static_cast<int64_t>(image.size()), LookupImageBytes(sources.size()));
  DeviceErrors errors;
  std::memset(&errors, 0xFF, sizeof errors);
  bool plain = aligned;
  for (const Source& source : sources) {
    const TableConfig& config = tables[static_cast<size_t>(source.table)].config;
    plain = plain && config.dimension % kFloats == 0 && !config.quantization.enabled;
  }
  const auto look_up = [&](auto lookup) {
    lookup.spread = {reinterpret_cast<const int64_t*>(image.data() + call.firsts_at),
                     static_cast<int64_t>(sources.size()), 0, call.firsts.back()};
    lookup.tables = views.data();
    lookup.sources = reinterpret_cast<const Source*>(image.data() + call.sources_at);
    lookup.errors = &errors;
    for (size_t n = 0; n < all.size(); ++n) lookup.outputs.of[n] = outputs[n].get();
    Launch(random, lookup, 1);
  };
  plain ? look_up(cuda::Lookup<true>()) : look_up(cuda::Lookup<false>());
  EXPECT(!errors.any());
  for (size_t n = 0; n < all.size(); ++n) {
    const Bags& bags = all[n];
    const Device& held = tables[static_cast<size_t>(bags.table)];
    const int64_t dimension = held.config.dimension;
    const Quantization& q = held.config.quantization;
    for (int64_t s = 0; s < sources[n].samples; ++s) {
      for (int64_t k = 0; k < dimension; ++k) {
        double sum = 0;
        // How much the sum may differ because rounding puts values that are almost halfway
        // between two buckets into either of them.
        double either = 0;
        for (int64_t i = bags.offsets[s]; i < bags.offsets[s + 1]; ++i) {
          const double weight =
              bags.per_sample_weights.empty() ? 1 : bags.per_sample_weights[i];
          double x = held.model[bags.indices[i] * held.plan.stride + k];
          if (q.enabled) {
            x = std::min<double>(std::max<double>(x, q.lower), q.upper);
            const double bucket = (x - q.lower) / q.step() + 0.5;
            if (std::abs(bucket - std::round(bucket)) < 1e-5) either += weight * q.step();
            x = std::floor(bucket) * q.step() + q.lower;
          }
          sum += weight * x;
        }
        const double scale = bags.scales.empty() ? 1 : bags.scales[s];
        const double found = outputs[n][s * dimension + k];
        EXPECT(std::abs(found - sum * scale) <= either * scale + 2e-3 * (1 + std::abs(found)));
      }
    }
  }
}

// Updates all tables with the kernels that tables.cu launches. A sort on the CPU replaces
// CUB's.
void Update(Random& random, const std::vector<Device>& tables, const std::vector<Bags>& all,
            DeviceErrors* errors) {
  const std::vector<TableView> views = ViewsOf(tables);
  std::vector<TableConfig> configs;
  std::vector<Hyper> hypers;
  for (const Device& table : tables) {
    configs.push_back(table.config);
    hypers.push_back(table.config.hyper);
  }
  std::vector<Source> sources;
  for (const Bags& bags : all) {
    sources.push_back(bags.View());
    sources.back().number = static_cast<int64_t>(sources.size()) - 1;
  }
  std::vector<TableConfig> planned = configs;
  planned[0].rows += views[0].first_key;
  // Few resident threads give long tiles, and many give short ones.
  const int64_t image_bytes =
      UpdateImageBytes(tables.size(), static_cast<int64_t>(sources.size()));
  const Workspace plan = Value(PlanUpdate(planned, IdsOf(tables.size(), sources),
                                          random.Below(2) ? 1 : 1 << 20, image_bytes, 0));
  Array<char> memory(plan.bytes + 1);
  char* const base = memory.get();
  // All memory is filled with bytes that are NaN and are no valid row or position, so that
  // reads of uninitialized memory give wrong results.
  std::memset(base, 0xFF, static_cast<size_t>(plan.bytes));
  std::memset(base + plan.touched, 0, static_cast<size_t>(plan.touched_bytes));
  const UpdateCall call =
      MakeUpdate(configs, views, views.data(), sources, hypers, plan, base, errors);
  const std::vector<char>& image = call.image.bytes();
  EXPECT(static_cast<int64_t>(image.size()) <= image_bytes);
  std::memcpy(base + plan.image, image.data(), image.size());
  Launch(random, call.check, 1);
  Launch(random, call.expand, 1);

  const Keys from = call.expand.keys, to{base + plan.keys[1], plan.wide_keys};
  const uint32_t* const positions = reinterpret_cast<uint32_t*>(base + plan.positions[0]);
  uint32_t* const sorted = reinterpret_cast<uint32_t*>(base + plan.positions[1]);
  std::vector<uint32_t> order(static_cast<size_t>(plan.ids));
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return from[a] < from[b]; });
  for (int64_t i = 0; i < plan.ids; ++i) {
    to.Set(i, from[order[i]]);
    sorted[i] = positions[order[i]];
  }

  for (const UpdateCall::GroupPlan& of_group : call.groups) {
    VisitElementRule(of_group.optimizer, [&](auto tag) {
      using Rule = typename decltype(tag)::type;
      const auto group = GroupOf<Rule>(of_group, plan, base, errors);
      const auto update = [&](auto wide) {
        constexpr bool kWide = decltype(wide)::value;
        if (group.tiles.size() > 0 && !of_group.accumulate) {
          Launch(random, UpdateEach<Rule, kWide>{group}, 1);
        } else if (group.tiles.size() > 0) {
          Launch(random, UpdateTiles<Rule, kWide>{group}, 1);
          Launch(random, CombineShort<Rule, kWide>{group}, of_group.blocks);
          LaunchTogether(CombineLong<Rule, kWide>{group}, of_group.blocks);
        }
        Launch(random, UpdateRest<Rule, kWide>{group}, 1);
      };
      of_group.wide ? update(std::true_type()) : update(std::false_type());
    });
  }
}

// Updates the reference copy in doubles, id by id.
void UpdateModel(size_t number, const std::vector<Bags>& all, Device* held) {
  const TableConfig& table = held->config;
  const int64_t d = table.dimension;
  std::map<int64_t, std::vector<std::vector<double>>> by_row;
  if (table.every_row) {
    for (int64_t row = 0; row < table.rows; ++row) by_row[row];
  }
  for (const Bags& bags : all) {
    if (bags.table != static_cast<int64_t>(number)) continue;
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
    float* const at = held->model.data() + row * held->plan.stride;
    for (const std::vector<double>& one : each) {
      for (int64_t k = 0; k < d; ++k) {
        float* element[1 + kMaxSlots];
        for (int64_t i = 0; i <= table.slots(); ++i) element[i] = at + i * d + k;
        UpdateElement(table.optimizer, table.hyper, one[k], element);
      }
    }
  }
}

std::vector<float> Contents(const std::vector<Device>& tables) {
  std::vector<float> all;
  for (const Device& held : tables) {
    for (int64_t row = 0; row < held.plan.rows; ++row) {
      const float* const at = held.view.rows[row];
      all.insert(all.end(), at, at + held.plan.stride);
    }
  }
  return all;
}

// Returns the tables of an engine. Some have the same rule.
std::vector<Device> MakeTables(Random& random, bool aligned) {
  std::vector<Device> tables;
  int64_t first_key = 0;
  for (int64_t n = 1 + random.Below(4); n > 0; --n) {
    TableConfig config = DrawTable(random);
    if (!tables.empty() && random.Below(2)) {
      config.optimizer = tables.back().config.optimizer;
      config.accumulate = tables.back().config.accumulate;
      config.hyper = SomeHyper(config.optimizer);
    }
    // Tests 64-bit keys, as if many rows came before this table.
    if (tables.empty() && !config.every_row && random.Below(6) == 0) first_key = kManyRows;
    tables.push_back(MakeTable(random, config, first_key));
    first_key += config.rows;
    if (config.dimension % kFloats == 0 && aligned) {
      WriteAndRead<true>(random, &tables.back());
    } else {
      WriteAndRead<false>(random, &tables.back());
    }
  }
  return tables;
}

void StepsAreRight(Random& random) {
  const bool aligned = random.Below(4);
  std::vector<Device> tables = MakeTables(random, aligned);
  std::vector<Bags> all;
  for (int64_t n = random.Below(6); n > 0; --n) {
    const int64_t t = random.Below(static_cast<int64_t>(tables.size()));
    all.push_back(DrawBags(random, tables[static_cast<size_t>(t)].config, aligned));
    all.back().table = t;
    if (random.Below(2)) {
      all.back().narrow.assign(all.back().indices.begin(), all.back().indices.end());
    }
  }
  LookupsAreRight(random, tables, all, aligned);
  DeviceErrors errors;
  std::memset(&errors, 0xFF, sizeof errors);
  // First come bad batches of each kind. The error must be found at its position, and nothing
  // may change.
  const std::vector<float> before = Contents(tables);
  for (size_t n = 0; n < all.size(); ++n) {
    Bags& bags = all[n];
    const TableConfig& table = tables[static_cast<size_t>(bags.table)].config;
    if (bags.indices.empty()) continue;
    const int64_t i = random.Below(static_cast<int64_t>(bags.indices.size()));
    const int64_t g = random.Below(bags.View().samples * table.dimension);
    const int64_t id = bags.indices[i];
    const float value = bags.gradients[0][g];
    const int64_t which = random.Below(2);
    if (which) {
      bags.indices[i] = random.Below(2) ? table.rows : -1;
      if (!bags.narrow.empty()) bags.narrow[i] = static_cast<int32_t>(bags.indices[i]);
    } else {
      bags.gradients[0][g] = random.Below(2) ? NAN : INFINITY;
    }
    Update(random, tables, all, &errors);
    const ErrorKind kind = which ? kBadId : kBadGradient;
    EXPECT(errors.first[kind] == (static_cast<uint64_t>(n) << 48 | (which ? i : g)));
    const std::string words = Describe(table, errors);
    EXPECT(words.find(std::to_string(which ? i : g) + " of source " + std::to_string(n)) !=
           std::string::npos);
    EXPECT(Contents(tables) == before);
    bags.indices[i] = id;
    if (!bags.narrow.empty()) bags.narrow[i] = static_cast<int32_t>(id);
    bags.gradients[0][g] = value;
    std::memset(&errors, 0xFF, sizeof errors);
  }
  Update(random, tables, all, &errors);
  EXPECT(!errors.any());
  std::vector<float> expected;
  for (size_t t = 0; t < tables.size(); ++t) {
    UpdateModel(t, all, &tables[t]);
    const std::vector<float>& model = tables[t].model;
    expected.insert(expected.end(), model.begin(), model.end());
  }
  const std::vector<float> after = Contents(tables);
  for (size_t i = 0; i < after.size(); ++i) EXPECT(Near(after[i], expected[i]));
}

// Tests offsets that descend or that begin or end at wrong values, and weights that are not
// finite.
TEST(Kernels, InvalidBagsAreRecorded) {
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
    std::vector<Device> tables;
    tables.push_back(MakeTable(random, table, 0));
    std::vector<Bags> all;
    all.push_back(std::move(bags));
    Update(random, tables, all, &errors);
    const unsigned long long expected[] = {1, 0, 2, 1, 2};
    EXPECT_EQ(errors.first[which == 4 ? kBadWeight : kBadOffset], expected[which]);
  }
}

// Tests steps of random tables, with every optimizer, rows of any width, and aligned or
// misaligned gradients.
TEST(Kernels, RandomSteps) {
  for (int64_t round = 0; round < testing::Rounds(150); ++round) {
    Random random{testing::Seed()};
    StepsAreRight(random);
  }
}

}  // namespace
}  // namespace opwright::embedding::cuda
