// Drives the embedding engine without TensorFlow, for the sanitizers: several cores, each with
// threads of its own that enqueue, look up and send gradients at once, pipelined and not,
// against the same steps done one after the other, row by row. Arrays are exactly as long as
// they must be, so that a step outside is seen. Also: broken batches of every kind, calls
// that are cancelled or closed while they wait, shards.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "core/isa.h"
#include "embedding_steps.h"

namespace opwright {
namespace embedding {
namespace {

// Any numbers at all in a batch: it is refused, or what is in it can be looked up.
bool BatchesAreChecked(uint64_t seed, Pool& pool) {
  Random random{seed};
  Configuration configuration = DrawConfiguration(random);
  EXPECT(!Complete(&configuration));
  std::shared_ptr<Engine> engine;
  EXPECT(!Engine::Create(configuration, MakeCpuTableStore(), &engine));
  constexpr int64_t kOdd[] = {INT64_MIN, -1, 0, 1, 2, 3, 1 << 20, INT32_MAX, INT64_MAX};
  for (int i = 0; i < 50; ++i) {
    const int64_t f = random.Below(configuration.features.size());
    Input input = DrawInput(random, configuration, f);
    Lookups lookups = input.View();
    lookups.form = static_cast<Lookups::Form>(random.Below(4));
    std::vector<int64_t> where = input.splits;
    if (lookups.form == Lookups::Form::kIndices) {
      lookups.rank = 1 + random.Below(4);
      where.assign(input.ids.size() * lookups.rank, 0);
    } else if (lookups.form == Lookups::Form::kSamples) {
      where.assign(input.ids.size(), 0);
    }
    for (int64_t& x : where) {
      if (random.Below(8) == 0 || lookups.form != Lookups::Form::kSplits) {
        x = random.Below(6) == 0 ? kOdd[random.Below(std::size(kOdd))] : random.Below(4);
      }
    }
    lookups.where = {where.data(), true, static_cast<int64_t>(where.size())};
    if (!input.ids.empty() && random.Below(4) == 0) {
      input.ids[random.Below(input.ids.size())] = kOdd[random.Below(std::size(kOdd))];
    }
    if (!input.weights.empty() && random.Below(8) == 0) input.weights[0] = NAN;
    Bags bags;
    if (MakeBags(configuration, f, lookups, static_cast<Combiner>(random.Below(3)), &bags)) {
      continue;
    }
    EXPECT(bags.starts[0] == 0);
    for (int64_t j = 0; j < bags.count(); ++j) {
      EXPECT(bags.ids[j] >= 0 &&
             bags.ids[j] < configuration.tables[configuration.features[f].table].rows);
    }
  }
  (void)pool;
  return true;
}

bool WaitingEnds(Pool& pool) {
  Configuration configuration;
  configuration.tables.emplace_back();
  configuration.tables[0].rows = configuration.tables[0].dimension = 4;
  configuration.features.push_back({"f", 0, {2}});
  EXPECT(!Complete(&configuration));
  std::shared_ptr<Engine> engine;
  EXPECT(!Engine::Create(configuration, MakeCpuTableStore(), &engine));
  PoolHost host(pool);
  int told = 0;
  const auto receive = [&] {
    return engine->Receive(&host, 0, [&](Maybe refusal, const Engine::Turn&) {
      told += refusal ? 1 : 100;
    });
  };
  const Engine::Ticket cancelled = receive();
  receive();
  EXPECT(engine->Cancel(cancelled));
  EXPECT(!engine->Cancel(cancelled));
  const float gradient[8] = {};
  EXPECT(engine->Send(&host, 0, {gradient}, nullptr, {})->kind ==
         Refusal::Kind::kFailedPrecondition);
  EXPECT(engine->CheckCore(-1) && engine->CheckCore(1) && !engine->CheckCore(0));
  EXPECT(told == 0);
  engine->Close("closed");
  EXPECT(told == 1);
  receive();
  EXPECT(told == 2);
  EXPECT(engine->Use(&host, [](TableStore*) -> Maybe { return {}; }));
  // A full queue makes the next one wait.
  EXPECT(!Engine::Create(configuration, MakeCpuTableStore(), &engine));
  int rooms = 0;
  Engine::Ticket last = 0;
  for (int i = 0; i <= Engine::kMostQueued; ++i) {
    const int32_t ids[2] = {1, 2};
    Lookups lookups;
    lookups.ids = {ids, false, 2};
    Batch batch;
    batch.features.resize(1);
    EXPECT(!MakeBags(configuration, 0, lookups, Combiner::kSum, &batch.features[0]));
    last = engine->Enqueue(&host, 0, std::move(batch), [&](Maybe refusal) {
      rooms += refusal ? 1000 : 1;
    });
  }
  EXPECT(rooms == Engine::kMostQueued);
  Engine::Turn turn;
  engine->Receive(&host, 0, [&](Maybe, const Engine::Turn& given) { turn = given; });
  EXPECT(turn.batch && rooms == Engine::kMostQueued + 1);
  EXPECT(!engine->Cancel(last));
  float out[8];
  float* const outputs[] = {out};
  EXPECT(!engine->Lookup(&host, turn, outputs));
  return true;
}

bool ShardsCoverATable() {
  for (const bool by_remainder : {false, true}) {
    for (int64_t rows = 1; rows < 20; ++rows) {
      for (int64_t shards = 1; shards <= rows; ++shards) {
        std::vector<int> seen(rows);
        for (int64_t i = 0; i < shards; ++i) {
          const Shard shard = ShardOf(rows, shards, i, by_remainder);
          for (int64_t j = 0; j < shard.count; ++j) ++seen.at(shard.first + j * shard.step);
        }
        for (const int times : seen) EXPECT(times == 1);
      }
    }
  }
  return true;
}

int Main(int draws) {
  Pool pool(3);
  bool good = ShardsCoverATable() && WaitingEnds(pool);
  for (int i = 0; i < draws && good; ++i) {
    for (const char* isa : {"portable", "avx2", "avx512"}) {
      if (!UseIsa(isa)) continue;
      good = good && StepsAreInOrder(i, pool, MakeCpuTableStore(), [] {});
      if (!good) std::printf("%s, draw %d\n", isa, i);
    }
    good = good && BatchesAreChecked(i, pool);
  }
  std::printf("%d draws: %s\n", draws, good ? "steps are in order" : "FAILED");
  return good ? 0 : 1;
}

}  // namespace
}  // namespace embedding
}  // namespace opwright

int main(int count, char** arguments) {
  return opwright::embedding::Main(count > 1 ? std::atoi(arguments[1]) : 100);
}
