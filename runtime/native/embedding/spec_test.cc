// Tests which configurations are accepted, and the fields that Complete sets.
#include "embedding/spec.h"

#include <cmath>
#include <functional>

#include "embedding/testing/elements.h"

namespace opwright::embedding {
namespace {

constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;

// A configuration of two tables. The first table has two features.
Configuration Described() {
  Configuration made;
  made.tables.resize(2);
  made.tables[0].name = "users";
  made.tables[0].rows = 10;
  made.tables[0].dimension = 4;
  made.tables[1].name = "items";
  made.tables[1].rows = 20;
  made.tables[1].dimension = 8;
  made.features = {{"seen", 0, {3}}, {"clicked", 1, {2, 5}}, {"bought", 0, {1}}};
  made.mode = Mode::kTraining;
  return made;
}

Configuration Legacy() {
  Configuration made = Described();
  made.features.clear();
  made.tables[0].features = 3;
  made.tables[1].features = 1;
  made.batch = 7;
  return made;
}

using Change = std::function<void(Configuration*)>;
struct Refused {
  Change change;
  const char* words;
};

void AllAreRefused(const std::function<Configuration()>& make,
                   const std::vector<Refused>& cases) {
  for (const Refused& one : cases) {
    Configuration configuration = make();
    one.change(&configuration);
    EXPECT_ERROR(Complete(&configuration), kInvalid, one.words);
  }
}

TEST(Spec, DescribedFeaturesAreKept) {
  Configuration made = Described();
  EXPECT_OK(Complete(&made));
  EXPECT_EQ(made.features.size(), 3u);
  EXPECT_EQ(made.features[1].samples(), 10);
  EXPECT(!made.by_num_features);
  EXPECT_EQ(made.tags, 0);
  EXPECT_EQ(Describe(made, 1), "table 1 ('items')");
  EXPECT_EQ(DescribeFeature(made, 2), "feature 2 ('bought') of table 0 ('users')");
}

TEST(Spec, NumFeaturesConfigurationGetsOneFeaturePerTable) {
  Configuration made = Legacy();
  EXPECT_OK(Complete(&made));
  EXPECT(made.by_num_features);
  EXPECT_EQ(made.features.size(), 2u);
  EXPECT_EQ(made.features[0].name, "users");
  EXPECT_EQ(made.features[0].samples(), 21);
  EXPECT_EQ(made.features[1].table, 1);
  EXPECT_EQ(made.features[1].samples(), 7);
}

TEST(Spec, TablesAreChecked) {
  AllAreRefused(
      Described,
      {{[](Configuration* c) { c->tables.clear(); }, "at least one table"},
       {[](Configuration* c) { c->tables[1].name = "users"; }, "same name"},
       {[](Configuration* c) { c->tables[1].rows = 0; },
        "table 1 ('items'): vocabulary_size must be positive, is 0"},
       {[](Configuration* c) { c->tables[0].dimension = -1; },
        "table 0 ('users'): dimension must be positive, is -1"},
       {[](Configuration* c) { c->tables[0].rows = int64_t{1} << 54; },
        "more than memory has addresses"},
       {[](Configuration* c) { c->tables[0].rows = c->tables[0].dimension = INT64_MAX; },
        "more than memory has addresses"},
       {[](Configuration* c) { c->tables[1].features = 2; }, "num_features must be 0"},
       {[](Configuration* c) { c->features.erase(c->features.begin() + 1); },
        "table 1 ('items'): no feature is looked up in it"},
       {[](Configuration* c) { c->hosts = 12, c->cores = 12; }, "12 hosts share its 10 rows"}});
}

TEST(Spec, FeaturesAreChecked) {
  AllAreRefused(
      Described,
      {{[](Configuration* c) { c->batch = 1; }, "batch_size_per_tensor_core must be 0"},
       {[](Configuration* c) { c->features[0].table = 2; }, "table_id must be in [0, 2), is 2"},
       {[](Configuration* c) { c->features[0].table = -1; }, "table_id must be in [0, 2)"},
       {[](Configuration* c) { c->features[0].shape.clear(); },
        "input_shape must not be empty"},
       {[](Configuration* c) { c->features[0].shape.assign(254, 1); },
        "at most 253 dimensions, has 254"},
       {[](Configuration* c) { c->features[1].shape[1] = 0; },
        "sizes in input_shape must be positive, one is 0"},
       {[](Configuration* c) { c->features[1].shape[1] = int64_t{1} << 28; },
        "a core has at most 268435456 samples"},
       {[](Configuration* c) { c->features[1].shape = {INT64_MAX, INT64_MAX}; },
        "its input_shape is too large"},
       {[](Configuration* c) {
          c->features[0].shape = c->features[2].shape = {int64_t{3} << 26};
        },
        "with the features before it"}});
}

TEST(Spec, NumFeaturesConfigurationsAreChecked) {
  AllAreRefused(
      Legacy,
      {{[](Configuration* c) { c->batch = 0; }, "batch_size_per_tensor_core must be positive"},
       {[](Configuration* c) { c->tables[1].features = 0; }, "num_features must be positive"},
       {[](Configuration* c) { c->batch = int64_t{1} << 27; },
        "batch_size_per_tensor_core * num_features is too large"}});
}

TEST(Spec, HostsAndCoresAreChecked) {
  AllAreRefused(
      Described,
      {{[](Configuration* c) { c->hosts = 0; }, "num_hosts must be positive"},
       {[](Configuration* c) { c->cores = 0; }, "num_tensor_cores must be positive"},
       {[](Configuration* c) { c->hosts = 2, c->cores = 3; }, "multiple of num_hosts"},
       {[](Configuration* c) { c->cores = (1 << 16) + 1; }, "must be at most 65536"}});
}

TEST(Spec, TagsAreCounted) {
  Configuration made = Described();
  made.tables[0].dynamic_rate = made.tables[1].dynamic_rate = true;
  made.tables[0].tag = 1;
  EXPECT_OK(Complete(&made));
  EXPECT_EQ(made.tags, 2);
  Configuration shared = Described();
  shared.tables[0].dynamic_rate = shared.tables[1].dynamic_rate = true;
  EXPECT_OK(Complete(&shared));
  EXPECT_EQ(shared.tags, 1);
  const auto dynamic = [](int64_t tag) {
    return [tag](Configuration* c) {
      c->tables[1].dynamic_rate = true;
      c->tables[1].tag = tag;
    };
  };
  AllAreRefused(Described, {{dynamic(1), "but no table has the tag 0"},
                            {dynamic(-1), "must not be negative, is -1"}});
}

TEST(Spec, NumbersAreChecked) {
  AllAreRefused(
      Described,
      {{[](Configuration* c) { c->tables[0].hyper.learning_rate = NAN; },
        "its learning rate must be finite, is nan"},
       {[](Configuration* c) { c->tables[0].optimizer = Optimizer::kFrequencyEstimator; },
        "must be dynamic, is a constant"},
       {[](Configuration* c) {
          c->tables[0].hyper.clip_gradient[0] = 2;
          c->tables[0].hyper.clip_gradient[1] = 1;
        },
        "the lower end of gradient_clipping_limits must not be above the upper"},
       {[](Configuration* c) { c->tables[0].hyper.clip_weight[0] = HUGE_VALF; },
        "the lower end of clipping_limits"},
       {[](Configuration* c) { c->tables[0].hyper.decay = 2; },
        "weight_decay_factor must be finite and from 0 to 1, is 2"},
       {[](Configuration* c) {
          c->tables[0].hyper.decay = NAN;
          c->tables[0].decay_times_rate = true;
        },
        "weight_decay_factor must be finite, is nan"},
       {[](Configuration* c) { c->tables[0].quantization = {true, 0, 1, 1}; },
        "num_buckets must be at least 2, is 1"},
       {[](Configuration* c) { c->tables[0].quantization = {true, 1, 0, 2}; },
        "clipping_limits must be finite, ascending"},
       {[](Configuration* c) { c->tables[0].quantization = {true, -FLT_MAX, FLT_MAX, 2}; },
        "clipping_limits must be finite, ascending"}});
  // The error names the hyperparameter that is outside of its range.
  for (const Optimizer optimizer : WithRules()) {
    const OptimizerTraits& traits = TraitsOf(optimizer);
    for (int i = 0; i < kMaxHyper && traits.hyper[i].name; ++i) {
      for (const float bad : {-2.f, 2.f, NAN}) {
        if (Within(traits.hyper[i].range, bad)) continue;
        TableConfig table;
        table.optimizer = optimizer;
        table.dynamic_rate = true;
        table.hyper = SomeHyper(optimizer);
        EXPECT_OK(CheckNumbers(table, "t"));
        table.hyper.values[i] = bad;
        EXPECT_ERROR(CheckNumbers(table, "t"), kInvalid,
                     std::string(traits.field) + "." + traits.hyper[i].name + " must be ");
      }
    }
  }
}

TEST(Spec, DecayTimesRate) {
  TableConfig table;
  table.hyper.decay = 0.5f;
  EXPECT_EQ(HyperAt(table, 0.25f).decay, 0.5f);
  table.decay_times_rate = true;
  EXPECT_EQ(HyperAt(table, 0.25f).decay, 0.125f);
  EXPECT_EQ(HyperAt(table, 0.25f).learning_rate, 0.25f);
}

TEST(Spec, ShardsCoverATable) {
  for (const bool by_remainder : {false, true}) {
    for (int64_t rows = 1; rows < 20; ++rows) {
      for (int64_t shards = 1; shards <= rows; ++shards) {
        std::vector<int> seen(rows);
        for (int64_t i = 0; i < shards; ++i) {
          const Shard shard = ShardOf(rows, shards, i, by_remainder);
          for (int64_t j = 0; j < shard.count; ++j) ++seen.at(shard.first + j * shard.step);
        }
        for (const int times : seen) EXPECT_EQ(times, 1);
      }
    }
  }
  const Shard divided = ShardOf(11, 4, 3, false), dealt = ShardOf(11, 4, 3, true);
  EXPECT(divided.first == 9 && divided.count == 2 && divided.step == 1);
  EXPECT(dealt.first == 3 && dealt.count == 2 && dealt.step == 4);
}

}  // namespace
}  // namespace opwright::embedding
