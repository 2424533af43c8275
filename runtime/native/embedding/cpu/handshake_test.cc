// Tests that hosts with different configurations report which settings differ, and on which
// hosts.
#include "embedding/cpu/handshake.h"

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "embedding/testing/two_engines.h"

namespace opwright::embedding {
namespace {

// The configuration that all hosts have before a test changes one of them. It has two tables of
// the same size, with one feature each.
Configuration Alike() {
  Configuration configuration;
  for (const char* const name : {"films", "users"}) {
    TableConfig table;
    table.name = name;
    table.rows = 10;
    table.dimension = 4;
    table.optimizer = Optimizer::kAdam;
    table.hyper = SomeHyper(table.optimizer);
    table.hyper.learning_rate = 0.5f;
    configuration.tables.push_back(table);
  }
  configuration.features = {{"seen", 0, {2}}, {"who", 1, {2}}};
  configuration.mode = Mode::kTraining;
  EXPECT_OK(Complete(&configuration));
  return configuration;
}

// The result of the handshake on each host.
std::vector<Status> Shake(const std::vector<Configuration>& configurations) {
  const auto mailboxes = std::make_shared<Mailboxes>();
  const int64_t hosts = static_cast<int64_t>(configurations.size());
  std::vector<Status> ends(configurations.size());
  OnEach(hosts, [&](int64_t h) {
    ThreadExchange exchange(mailboxes, hosts, h);
    ends[static_cast<size_t>(h)] = Handshake(&exchange, configurations[static_cast<size_t>(h)]);
  });
  return ends;
}

struct Difference {
  std::function<void(Configuration*)> make;
  std::string name, here, there;  // The setting, and its values on host 0 and on host 1.
};

void IsNamed(const Difference& difference) {
  std::vector<Configuration> configurations(2, Alike());
  difference.make(&configurations[1]);
  const std::vector<Status> ends = Shake(configurations);
  const auto said = [&](const std::string& first, int64_t host, const std::string& second,
                        int64_t other) {
    return difference.name + " is " + first + " on host " + std::to_string(host) + " and " +
           second + " on host " + std::to_string(other);
  };
  EXPECT_ERROR(ends[0], StatusCode::kInvalidArgument,
               said(difference.there, 1, difference.here, 0));
  EXPECT_ERROR(ends[1], StatusCode::kInvalidArgument,
               said(difference.here, 0, difference.there, 1));
  EXPECT_ERROR(ends[0], StatusCode::kInvalidArgument, "all hosts must run the same program");
}

TEST(Handshake, TablesThatDifferAreNamed) {
  const auto of = [](auto change) {
    return [change](Configuration* configuration) { change(configuration->tables[1]); };
  };
  const std::string users = " of table 1 ('users')";
  IsNamed(
      {of([](TableConfig& t) { t.name = "people"; }), "name of table 1", "users", "people"});
  IsNamed({of([](TableConfig& t) { t.rows = 11; }), "rows" + users, "10", "11"});
  IsNamed({of([](TableConfig& t) { t.dimension = 8; }), "dimension" + users, "4", "8"});
  IsNamed({of([](TableConfig& t) { t.dtype = RowDtype::kInt8; }), "dtype of rows" + users,
           "float32", "int8"});
  IsNamed({of([](TableConfig& t) { t.optimizer = Optimizer::kSgd; }), "optimizer" + users,
           "adam", "stochastic_gradient_descent"});
  IsNamed({of([](TableConfig& t) { t.accumulate = false; }), "gradient accumulation" + users,
           "true", "false"});
  IsNamed({of([](TableConfig& t) { t.every_row = true; }), "updates of all rows" + users,
           "false", "true"});
  IsNamed({of([](TableConfig& t) { t.quantization = {true, -1, 1, 17}; }),
           "simulated_quantization" + users, "none", "17 buckets from -1 to 1"});
}

TEST(Handshake, HyperparametersThatDifferAreNamed) {
  const auto of = [](auto change) {
    return [change](Configuration* configuration) { change(configuration->tables[0]); };
  };
  const std::string films = " of table 0 ('films')";
  IsNamed({of([](TableConfig& t) { t.hyper.learning_rate = 0.25f; }), "learning rate" + films,
           "0.5", "0.25"});
  IsNamed({of([](TableConfig& t) { t.dynamic_rate = true; }), "learning rate" + films, "0.5",
           "dynamic, of tag 0"});
  IsNamed(
      {of([](TableConfig& t) { t.has_rate = false; }), "learning rate" + films, "0.5", "none"});
  const OptimizerTraits& adam = TraitsOf(Optimizer::kAdam);
  const Hyper hyper = Alike().tables[0].hyper;
  for (int i = 0; i < kMaxHyper && adam.hyper[i].name; ++i) {
    IsNamed({of([i](TableConfig& t) { t.hyper.values[i] = 0.125f; }),
             adam.hyper[i].name + films, Number(hyper.values[i]), "0.125"});
  }
  IsNamed({of([](TableConfig& t) { t.hyper.clip_gradient[0] = -2; }),
           "gradient_clipping_limits" + films,
           Number(hyper.clip_gradient[0]) + " to " + Number(hyper.clip_gradient[1]),
           "-2 to " + Number(hyper.clip_gradient[1])});
  IsNamed({of([](TableConfig& t) { t.hyper.clip_weight[1] = 3; }), "clipping_limits" + films,
           Number(hyper.clip_weight[0]) + " to " + Number(hyper.clip_weight[1]),
           Number(hyper.clip_weight[0]) + " to 3"});
  IsNamed({of([](TableConfig& t) { t.hyper.decay = 0.75f; }), "weight_decay_factor" + films,
           Number(hyper.decay), "0.75"});
  IsNamed({of([](TableConfig& t) { t.decay_times_rate = true; }),
           "multiply_weight_decay_factor_by_learning_rate" + films, "false", "true"});
}

TEST(Handshake, FeaturesThatDifferAreNamed) {
  IsNamed({[](Configuration* c) { c->features[1].name = "whom"; }, "name of feature 1", "who",
           "whom"});
  IsNamed({[](Configuration* c) { c->features[1].table = 0; }, "table of feature 1 ('who')",
           "1", "0"});
  IsNamed({[](Configuration* c) { c->features[1].shape = {1, 2}; },
           "input_shape of feature 1 ('who')", "[2]", "[1, 2]"});
  IsNamed({[](Configuration* c) { std::swap(c->features[0], c->features[1]); },
           "name of feature 0", "seen", "who"});
  IsNamed({[](Configuration* c) { c->features.push_back({"more", 0, {1}}); },
           "number of features", "2", "3"});
}

TEST(Handshake, StepsThatDifferAreNamed) {
  IsNamed({[](Configuration* c) { c->shard_by_remainder = true; }, "sharding_strategy",
           "DIV_DEFAULT", "MOD"});
  IsNamed({[](Configuration* c) { c->pipelined = true; }, "pipeline_execution_with_tensor_core",
           "false", "true"});
  IsNamed(
      {[](Configuration* c) { c->mode = Mode::kInference; }, "mode", "training", "inference"});
  IsNamed({[](Configuration* c) { c->cores = 2; }, "num_tensor_cores", "1", "2"});
  IsNamed({[](Configuration* c) { c->tables.pop_back(); }, "number of tables", "2", "1"});
}

TEST(Handshake, LineBreaksInNamesAreEscaped) {
  IsNamed({[](Configuration* c) { c->tables[1].name = "a\nrows\t7\\"; }, "name of table 1",
           "users", "a\\nrows\\t7\\\\"});
}

TEST(Handshake, EqualHostsSendFingerprintsOnly) {
  const auto mailboxes = std::make_shared<Mailboxes>();
  OnEach(3, [&](int64_t h) {
    ThreadExchange exchange(mailboxes, 3, h);
    EXPECT_OK(Handshake(&exchange, Alike()));
    EXPECT_EQ(exchange.BytesSent(Channel::kConfigurations), 2 * 24);
    EXPECT_EQ(exchange.MessagesSent(), 2);
  });
}

TEST(Handshake, EveryHostReportsTheOneThatDiffers) {
  std::vector<Configuration> configurations(3, Alike());
  configurations[2].tables[0].hyper.learning_rate = 0.25f;
  const std::vector<Status> ends = Shake(configurations);
  const std::string rate = "learning rate of table 0 ('films') is ";
  for (size_t h = 0; h < 2; ++h) {
    EXPECT_ERROR(ends[h], StatusCode::kInvalidArgument,
                 rate + "0.25 on host 2 and 0.5 on host " + std::to_string(h));
  }
  EXPECT_ERROR(ends[2], StatusCode::kInvalidArgument,
               rate + "0.5 on host 0 and 0.25 on host 2");
  EXPECT_ERROR(ends[2], StatusCode::kInvalidArgument,
               rate + "0.5 on host 1 and 0.25 on host 2");
}

// The result of a handshake with a host that sends these bytes as its greeting and its
// settings.
Status AgainstAStranger(const std::vector<int64_t>& greeting, const std::string& settings) {
  const auto mailboxes = std::make_shared<Mailboxes>();
  std::string bytes(greeting.size() * sizeof(int64_t), '\0');
  std::memcpy(bytes.data(), greeting.data(), bytes.size());
  mailboxes->Post({1, 0, Channel::kConfigurations, 0}, bytes);
  mailboxes->Post({1, 0, Channel::kConfigurations, 1}, settings);
  ThreadExchange exchange(mailboxes, 2, 0);
  return Handshake(&exchange, Alike());
}

TEST(Handshake, OtherProtocolVersionIsRefused) {
  EXPECT_ERROR(
      AgainstAStranger({kHostProtocol + 1, 0, 0}, ""), StatusCode::kInvalidArgument,
      "host 1 sends version 2 of the messages between hosts, host 0 version 1; install "
      "the same version of opwright on all hosts");
}

TEST(Handshake, MalformedSettingsAreRefused) {
  for (const int64_t bytes : {int64_t{-1}, int64_t{0}, int64_t{1} << 60}) {
    EXPECT_ERROR(AgainstAStranger({kHostProtocol, 0, bytes}, ""), StatusCode::kInvalidArgument,
                 "different configurations");
  }
  const std::vector<std::string> texts = {std::string(100, '\n'), std::string(100, '\t'),
                                          std::string(100, '\0'), "number of tables",
                                          "number of tables\t2",  "\tx\ny\t"};
  for (const std::string& text : texts) {
    const int64_t bytes = static_cast<int64_t>(text.size());
    EXPECT_ERROR(AgainstAStranger({kHostProtocol, 0, bytes}, text),
                 StatusCode::kInvalidArgument, "different configurations: ");
  }
}

// Combiners belong to batches, and are compared for each batch.
TEST(Handshake, CombinersThatDifferAreNamed) {
  const Configuration configuration = Alike();
  const auto mailboxes = std::make_shared<Mailboxes>();
  OnEach(2, [&](int64_t h) {
    Pool pool(1);
    PoolContext exec(pool);
    const auto store =
        MakeHostsStore(std::make_shared<ThreadExchange>(mailboxes, 2, h), MakeCpuTableStore());
    EXPECT_OK(store->Allocate(configuration));
    Input input;
    input.splits = {0, 1, 2};
    input.ids = {1, 2};
    Batch batch;
    AddBags(configuration, 0, input, Combiner::kMean, &batch);
    AddBags(configuration, 1, input, h == 0 ? Combiner::kSum : Combiner::kSqrtN, &batch);
    const PreparedRef prepared =
        Value(store->Prepare(&exec, std::make_shared<const Batch>(std::move(batch))));
    std::vector<float> values(8);
    const std::vector<float*> outputs(2, values.data());
    const std::string feature = " combines feature 1 ('who') of table 1 ('users') by ";
    EXPECT_ERROR(store->Lookup(&exec, prepared.get(), outputs.data()),
                 StatusCode::kInvalidArgument,
                 h == 0 ? "host 1" + feature + "'sqrtn' and host 0 by 'sum'"
                        : "host 0" + feature + "'sum' and host 1 by 'sqrtn'");
  });
}

}  // namespace
}  // namespace opwright::embedding
