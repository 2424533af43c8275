// The tables of an engine on a device, where the CPU takes the device's place and gets to its
// work later, as a device does: steps of several cores against rows of doubles, bad gradients
// that are found too late to refuse them, memory that runs out, and that nobody waits.
#include <cmath>
#include <cstring>
#include <mutex>

#include "cuda/store.h"
#include "device.h"
#include "embedding_steps.h"

namespace opwright {
namespace embedding {
namespace {

// Memory that may be given again while earlier work uses it, as TensorFlow's is: what was
// freed is overwritten when the device gets there.
class Heap : public cuda::Memory {
 public:
  void* Allocate(int64_t bytes) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (bytes > limit_ - used_) return nullptr;
    used_ += bytes;
    void* const data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    std::memset(data, 0xA5, bytes);
    sizes_[data] = bytes;
    return data;
  }
  void Free(void* data) override {
    int64_t bytes;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      bytes = sizes_.at(data);
      sizes_.erase(data);
      used_ -= bytes;
    }
    on_cpu::Do([=] {
      std::memset(data, 0xA5, bytes);
      std::free(data);
    });
  }
  int64_t Left() override {
    std::lock_guard<std::mutex> lock(mutex_);
    return limit_ - used_;
  }

  int64_t used() {
    std::lock_guard<std::mutex> lock(mutex_);
    return used_;
  }
  void LeaveOnly(int64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    limit_ = used_ + bytes;
  }

 private:
  std::mutex mutex_;
  std::map<void*, int64_t> sizes_;
  int64_t used_ = 0, limit_ = int64_t{1} << 40;
};

// One table of four rows and a feature of two samples, an id each.
struct System {
  explicit System(bool pipelined = false) {
    configuration.tables.emplace_back();
    configuration.tables[0].name = "t";
    configuration.tables[0].rows = configuration.tables[0].dimension = 4;
    configuration.tables[0].hyper.learning_rate = 1;
    configuration.tables.push_back(configuration.tables[0]);
    configuration.tables[1].name = "u";
    configuration.features = {{"f", 0, {2}}, {"g", 1, {3}}};
    configuration.pipelined = pipelined;
    heap = std::make_shared<Heap>();
    good = !Complete(&configuration) &&
           !Engine::Create(configuration, cuda::MakeTableStore(nullptr, heap), &engine);
  }

  bool Enqueue(Mode mode = Mode::kTraining) {
    const int32_t ids[] = {1, 2, 0};
    Batch batch;
    batch.mode = mode;
    batch.features.resize(2);
    for (int64_t f = 0; f < 2; ++f) {
      Lookups lookups;
      lookups.ids = {ids, false, 2 + f};
      if (MakeBags(configuration, f, lookups, Combiner::kSum, &batch.features[f])) return false;
    }
    Maybe refused;
    engine->Enqueue(&host, 0, std::move(batch), [&](Maybe refusal) { refused = refusal; });
    return !refused;
  }
  Maybe Receive() {
    Maybe refused;
    Engine::Turn turn;
    const Engine::Ticket ticket =
        engine->Receive(&host, 0, [&](Maybe refusal, const Engine::Turn& given) {
          refused = refusal;
          turn = given;
        });
    if (turn.batch) return engine->Lookup(&host, turn, outputs);
    return engine->Cancel(ticket) ? Precondition("it waits") : refused;
  }
  Maybe Send(float value) {
    // Read when the device gets there, so it stays.
    gradients.push_back(std::vector<float>(20, 1.f));
    std::vector<float>& all = gradients.back();
    all[8 + 7] = value;  // Of the second feature, sample 1, column 3.
    return engine->Send(&host, 0, {all.data(), all.data() + 8}, nullptr, {});
  }
  // Row 1 of each table.
  Maybe Read(float (&row)[2]) {
    float rows[2][16];
    const Maybe refusal = engine->Use(&host, [&](TableStore* store) -> Maybe {
      for (int64_t t = 0; t < 2; ++t) {
        if (auto refused = store->Read(&host, t, -1, {4, 0, 1}, rows[t])) return refused;
      }
      return {};
    });
    on_cpu::Settle();
    if (!refusal) row[0] = rows[0][4], row[1] = rows[1][4];
    return refusal;
  }

  Pool pool{2};
  PoolHost host{pool};
  Configuration configuration;
  std::shared_ptr<Heap> heap;
  std::shared_ptr<Engine> engine;
  bool good = false;
  std::deque<std::vector<float>> gradients;
  float out[2][12];
  float* outputs[2] = {out[0], out[1]};
};

bool Has(const Maybe& refusal, Refusal::Kind kind, const std::vector<std::string>& words) {
  if (!refusal || refusal->kind != kind) return false;
  for (const std::string& word : words) {
    if (refusal->problem.find(word) != std::string::npos) continue;
    std::printf("'%s' lacks '%s'\n", refusal->problem.c_str(), word.c_str());
    return false;
  }
  return true;
}

constexpr auto kInvalid = Refusal::Kind::kInvalidArgument;
constexpr auto kOutOfMemory = Refusal::Kind::kOutOfMemory;

// No table changes by a step with a bad gradient in one of them, nor by steps after it, until
// somebody was told: who asks next once the device has got there.
bool BadGradientsAreTold() {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (int who = 0; who < 3; ++who) {
      System s;
      EXPECT(s.good);
      float row[2];
      const auto step = [&](float value) {
        return s.Enqueue() && !s.Receive() && !s.Send(value);
      };
      EXPECT(step(1));
      EXPECT(!s.Read(row) && row[0] == -1 && row[1] == -1);
      const int64_t waits = on_cpu::Waits();
      on_cpu::Hold(true);
      // The device has not got there: nobody is told, and nobody waits.
      EXPECT(step(bad) && step(1));
      EXPECT(on_cpu::Waits() == waits);
      on_cpu::Hold(false);
      on_cpu::Settle();
      EXPECT(!step(1));  // Receive is told.
      EXPECT(on_cpu::Waits() == waits);
      EXPECT(!s.Receive());
      EXPECT(!s.Send(1));
      EXPECT(!s.Read(row) && row[0] == -2 && row[1] == -2);
      // By name, once, to each who may ask.
      EXPECT(s.Enqueue() && !s.Receive());
      if (who == 0) EXPECT(s.Enqueue());
      EXPECT(!s.Send(bad));
      on_cpu::Settle();
      const std::vector<std::string> words = {
          "step 4", "feature 1 ('g'", "sample 1", "column 3", "the update of step 4 was not"};
      if (who == 0) {
        EXPECT(Has(s.Receive(), kInvalid, words));
        EXPECT(!s.Receive());
        EXPECT(!s.Send(1));
      } else if (who == 1) {
        EXPECT(Has(s.Send(1), kInvalid, words));
        EXPECT(Has(s.Send(1), Refusal::Kind::kFailedPrecondition, {"no step"}));
      } else {
        EXPECT(Has(s.Read(row), kInvalid, words));
      }
      EXPECT(!s.Read(row) && row[0] == (who == 0 ? -3 : -2));
    }
  }
  // Of several steps.
  System s;
  EXPECT(s.good);
  on_cpu::Hold(true);
  for (const float value : {1.f, NAN, NAN, 1.f}) {
    EXPECT(s.Enqueue() && !s.Receive() && !s.Send(value));
  }
  on_cpu::Hold(false);
  float row[2];
  EXPECT(Has(s.Read(row), kInvalid, {"step 1,", "the updates of steps 1 to 3 were not made"}));
  EXPECT(!s.Read(row) && row[0] == -1);
  return true;
}

// A call without memory changes nothing, says what it wanted, and can be made again.
bool MemoryRunsOut() {
  {
    auto heap = std::make_shared<Heap>();
    heap->LeaveOnly(40);
    System s;
    std::shared_ptr<Engine> engine;
    EXPECT(Has(Engine::Create(s.configuration, cuda::MakeTableStore(nullptr, heap), &engine),
               kOutOfMemory, {"table 't': 4 rows", "GiB", "left"}));
    EXPECT(!engine && heap->used() == 0);
  }
  System s;
  EXPECT(s.good);
  float row[2];
  // The lookup: the batch is the next one still.
  EXPECT(s.Enqueue());
  s.heap->LeaveOnly(10);
  EXPECT(Has(s.Receive(), kOutOfMemory, {"the ids of a batch", " 10 are left"}));
  EXPECT(Has(s.Send(1), Refusal::Kind::kFailedPrecondition, {"no step"}));
  EXPECT(Has(s.Receive(), kOutOfMemory, {"the ids of a batch"}));
  s.heap->LeaveOnly(1 << 20);
  EXPECT(!s.Receive());
  // The update: it is put off, and whoever needs it does not wait for ever.
  s.heap->LeaveOnly(10);
  EXPECT(Has(s.Send(1), kOutOfMemory, {"step 0", "put off", "an update", " 10 are left"}));
  EXPECT(s.Enqueue());
  EXPECT(Has(s.Receive(), kOutOfMemory, {"step 0", "put off"}));
  EXPECT(Has(s.Read(row), kOutOfMemory, {"step 0", "put off"}));
  s.heap->LeaveOnly(1 << 20);
  EXPECT(!s.Receive());
  on_cpu::Settle();
  EXPECT(s.out[0][0] == -1);
  EXPECT(!s.Send(1));
  EXPECT(!s.Read(row) && row[0] == -2 && row[1] == -2);
  return true;
}

// Batches whose ids come to the device with their update; values, where they are wanted.
bool TheRestIsDone() {
  System s;
  EXPECT(s.good);
  float row[2];
  EXPECT(s.Enqueue(Mode::kBackwardOnly) && !s.Send(1));
  EXPECT(!s.Read(row) && row[0] == -1);
  EXPECT(s.Enqueue(Mode::kInference) && !s.Receive());
  on_cpu::Settle();
  EXPECT(s.out[0][0] == -1 && s.out[1][11] == -1);
  std::vector<float> values(1000);
  TableStore::Found found;
  EXPECT(!s.engine->Use(&s.host, [&](TableStore* store) -> Maybe {
    if (auto refusal = store->Fill(&s.host, 1, 1000, values.data())) return refusal;
    return store->FindAbove(&s.host, 1, 1000, values.data(), &found);
  }));
  EXPECT(found.at == -1);
  uint32_t bits;
  std::memcpy(&bits, &values[999], sizeof bits);
  EXPECT(bits == 1);
  values[700] = 2.5f;
  values[900] = -1;
  EXPECT(!s.engine->Use(&s.host, [&](TableStore* store) {
    return store->FindAbove(&s.host, 1, 1000, values.data(), &found);
  }));
  EXPECT(found.at == 700 && found.value == 2.5f);
  return true;
}

// Pinned memory is used again: as much as steps are under way, however many there were.
bool PinnedMemoryStays() {
  System s;
  EXPECT(s.good);
  int64_t early = 0;
  for (int i = 0; i < 25; ++i) {
    on_cpu::Hold(true);
    for (int n = 0; n < 4; ++n) {
      EXPECT(s.Enqueue() && !s.Receive() && !s.Send(1));
    }
    on_cpu::Hold(false);
    on_cpu::Settle();
    if (i == 1) early = on_cpu::Pinned();
  }
  EXPECT(on_cpu::Pinned() == early);
  return true;
}

int Main(int draws) {
  on_cpu::SetLater(true);
  bool good = BadGradientsAreTold() && MemoryRunsOut() && TheRestIsDone() && PinnedMemoryStays();
  {
    Pool pool(3);
    for (int i = 0; i < draws && good; ++i) {
      const auto heap = std::make_shared<Heap>();
      good = StepsAreInOrder(i, pool, cuda::MakeTableStore(nullptr, heap), on_cpu::Settle);
      if (good && heap->used() != 0) {
        std::printf("%lld bytes were not given back\n",
                    static_cast<long long>(heap->used()));
        good = false;
      }
      if (!good) std::printf("draw %d\n", i);
    }
  }
  on_cpu::SetLater(false);
  if (good && (on_cpu::Pinned() != 0 || on_cpu::Events() != 0)) {
    std::printf("pinned memory or events were not given back\n");
    good = false;
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
