// Tests concurrent steps and reads of several threads. The results are compared with those of
// the same steps one after the other.
#include "embedding/engine.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "embedding/testing/steps.h"

namespace opwright::embedding {
namespace {

// Each step subtracts the same number from every row. If a reader saw only a part of an update,
// the rows would differ.
TEST(EngineConcurrency, ReadsSeeCompleteUpdatesOnly) {
  constexpr int64_t kRows = 300, kSteps = 40;
  Configuration configuration;
  configuration.tables.resize(1);
  configuration.tables[0].name = "t";
  configuration.tables[0].rows = kRows;
  configuration.tables[0].dimension = 2;
  configuration.tables[0].hyper.learning_rate = 1;
  configuration.features.push_back({"f", 0, {kRows}});
  configuration.mode = Mode::kTraining;
  EXPECT_OK(Complete(&configuration));
  std::vector<int32_t> ids(kRows);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  Lookups lookups;
  lookups.ids = {ids.data(), false, kRows};
  const std::vector<float> gradients(2 * kRows, 1.f);
  Pool pool(3);
  const auto engine = Value(Engine::Create(configuration, MakeCpuTableStore(/*few_bytes=*/0)));
  std::atomic<bool> over{false}, good{true};
  std::atomic<int64_t> seen{0};
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 2; ++reader) {
    readers.emplace_back([&] {
      std::vector<float> out(2 * kRows);
      PackedBags bags;
      bags.samples = kRows;
      bags.ids = lookups.ids;
      float before = 1;
      while (!over) {
        PoolContext exec(pool);
        const Status status = engine->Read(&exec, [&](TableStore* store) {
          return store->LookUpPacked(&exec, bags, out.data());
        });
        const bool same =
            std::all_of(out.begin(), out.end(), [&](float x) { return x == out[0]; });
        if (!status.ok() || !same || out[0] > before) good = false;
        before = out[0];
        ++seen;
      }
    });
  }
  for (int64_t step = 0; step < kSteps || seen < kSteps; ++step) {
    PoolContext exec(pool);
    Batch batch;
    batch.mode = Mode::kTraining;
    batch.features.push_back(Value(MakeBags(configuration, 0, lookups, Combiner::kSum)));
    engine->Enqueue(&exec, 0, std::move(batch), [](const Status&) {});
    std::vector<float> out(2 * kRows);
    float* const outputs[] = {out.data()};
    std::promise<Engine::Grant> grant;  // The thread of a reader may grant the batch.
    engine->Receive(&exec, 0, [&](const Status& status, const Engine::Grant& given) {
      if (!status.ok()) good = false;
      grant.set_value(given);
    });
    if (!engine->Lookup(&exec, grant.get_future().get(), outputs).ok()) good = false;
    if (!engine->Send(&exec, 0, {gradients.data()}, nullptr, {}).ok()) good = false;
  }
  over = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT(good);
}

TEST(EngineConcurrency, RandomStepsMatchSequentialSteps) {
  Pool pool(3);
  ForEachIsa([&] {
    for (int64_t round = 0; round < testing::Rounds(12); ++round) {
      // With few_bytes = 0, even small lookups may begin before their batches are received.
      StepsAreInOrder(testing::Seed(), pool, MakeCpuTableStore(/*few_bytes=*/0), [] {});
    }
  });
}

}  // namespace
}  // namespace opwright::embedding
