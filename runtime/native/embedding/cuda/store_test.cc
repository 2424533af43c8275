// The tables of an engine on a device, where the CPU takes the device's place and gets to its
// work later, as a device does: steps of several cores against rows of doubles, bad gradients
// that are found too late to refuse them, memory that runs out, and that nobody waits.
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "embedding/cuda/store.h"
#include "embedding/testing/steps.h"
#include "on_cpu/device.h"

namespace opwright::embedding::cuda {
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
struct Bed {
  explicit Bed(bool pipelined = false) {
    configuration.tables.emplace_back();
    configuration.tables[0].name = "t";
    configuration.tables[0].rows = configuration.tables[0].dimension = 4;
    configuration.tables[0].hyper.learning_rate = 1;
    configuration.tables.push_back(configuration.tables[0]);
    configuration.tables[1].name = "u";
    configuration.features = {{"f", 0, {2}}, {"g", 1, {3}}};
    configuration.pipelined = pipelined;
    heap = std::make_shared<Heap>();
    EXPECT_OK(Complete(&configuration));
    engine = Value(Engine::Create(configuration, cuda::MakeTableStore(nullptr, heap)));
  }

  void Enqueue(Mode mode = Mode::kTraining) {
    const int32_t ids[] = {1, 2, 0};
    Batch batch;
    batch.mode = mode;
    for (int64_t f = 0; f < 2; ++f) {
      Lookups lookups;
      lookups.ids = {ids, false, 2 + f};
      batch.features.push_back(Value(MakeBags(configuration, f, lookups, Combiner::kSum)));
    }
    Status enqueued;
    engine->Enqueue(&exec, 0, std::move(batch), [&](Status status) { enqueued = status; });
    EXPECT_OK(enqueued);
  }
  Status Receive() {
    Status received;
    Engine::Turn turn;
    const Engine::Ticket ticket =
        engine->Receive(&exec, 0, [&](Status status, const Engine::Turn& given) {
          received = status;
          turn = given;
        });
    if (turn.batch) return engine->Lookup(&exec, turn, outputs);
    return engine->Cancel(ticket) ? FailedPreconditionError("it waits") : received;
  }
  Status Send(float value) {
    // Read when the device gets there, so it stays.
    gradients.push_back(std::vector<float>(20, 1.f));
    std::vector<float>& all = gradients.back();
    all[8 + 7] = value;  // Of the second feature, sample 1, column 3.
    return engine->Send(&exec, 0, {all.data(), all.data() + 8}, nullptr, {});
  }
  // Row 1 of each table.
  Status Read(float (&row)[2]) {
    float rows[2][16];
    const Status status = engine->Use(&exec, [&](TableStore* store) -> Status {
      for (int64_t t = 0; t < 2; ++t) {
        OPWRIGHT_RETURN_IF_ERROR(store->Read(&exec, t, -1, {4, 0, 1}, rows[t]));
      }
      return {};
    });
    on_cpu::Settle();
    if (status.ok()) row[0] = rows[0][4], row[1] = rows[1][4];
    return status;
  }

  ~Bed() { on_cpu::Hold(false); }

  Pool pool{2};
  PoolContext exec{pool};
  Configuration configuration;
  std::shared_ptr<Heap> heap;
  std::shared_ptr<Engine> engine;
  std::deque<std::vector<float>> gradients;
  float out[2][12];
  float* outputs[2] = {out[0], out[1]};
};

void Has(const Status& status, StatusCode code, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_ERROR(status, code, word);
}

constexpr auto kInvalid = StatusCode::kInvalidArgument;
constexpr auto kOutOfMemory = StatusCode::kResourceExhausted;

// While a test runs, the device gets to its work later; then all is given back.
struct Later {
  Later() { on_cpu::SetLater(true); }
  ~Later() { on_cpu::SetLater(false); }
};
void NothingIsLeft() {
  EXPECT_EQ(on_cpu::Pinned(), 0);
  EXPECT_EQ(on_cpu::Events(), 0);
}

// No table changes by a step with a bad gradient in one of them, nor by steps after it, until
// somebody was told: who asks next once the device has got there.
TEST(Store, BadGradientsAreTold) {
  const Later later;
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (int who = 0; who < 3; ++who) {
      Bed s;
      float row[2];
      const auto step = [&](float value) -> Status {
        s.Enqueue();
        OPWRIGHT_RETURN_IF_ERROR(s.Receive());
        return s.Send(value);
      };
      EXPECT_OK(step(1));
      EXPECT(s.Read(row).ok() && row[0] == -1 && row[1] == -1);
      const int64_t waits = on_cpu::Waits();
      on_cpu::Hold(true);
      // The device has not got there: nobody is told, and nobody waits.
      EXPECT_OK(step(bad));
      EXPECT_OK(step(1));
      EXPECT(on_cpu::Waits() == waits);
      on_cpu::Hold(false);
      on_cpu::Settle();
      EXPECT_ERROR(step(1), kInvalid, "gradients must be finite");  // Receive is told.
      EXPECT(on_cpu::Waits() == waits);
      EXPECT(s.Receive().ok());
      EXPECT(s.Send(1).ok());
      EXPECT(s.Read(row).ok() && row[0] == -2 && row[1] == -2);
      // By name, once, to each who may ask.
      s.Enqueue();
      EXPECT_OK(s.Receive());
      if (who == 0) s.Enqueue();
      EXPECT(s.Send(bad).ok());
      on_cpu::Settle();
      const std::vector<std::string> words = {"step 4", "feature 1 ('g'", "sample 1",
                                              "column 3", "the update of step 4 was not"};
      if (who == 0) {
        Has(s.Receive(), kInvalid, words);
        EXPECT(s.Receive().ok());
        EXPECT(s.Send(1).ok());
      } else if (who == 1) {
        Has(s.Send(1), kInvalid, words);
        Has(s.Send(1), StatusCode::kFailedPrecondition, {"no step"});
      } else {
        Has(s.Read(row), kInvalid, words);
      }
      EXPECT(s.Read(row).ok() && row[0] == (who == 0 ? -3 : -2));
    }
  }
  // Of several steps.
  Bed s;
  on_cpu::Hold(true);
  for (const float value : {1.f, NAN, NAN, 1.f}) {
    s.Enqueue();
    EXPECT_OK(s.Receive());
    EXPECT_OK(s.Send(value));
  }
  on_cpu::Hold(false);
  float row[2];
  Has(s.Read(row), kInvalid, {"step 1,", "the updates of steps 1 to 3 were not made"});
  EXPECT(s.Read(row).ok() && row[0] == -1);
}

// A call without memory changes nothing, says what it wanted, and can be made again.
TEST(Store, MemoryRunsOut) {
  const Later later;
  {
    auto heap = std::make_shared<Heap>();
    heap->LeaveOnly(40);
    Bed s;
    Has(Engine::Create(s.configuration, cuda::MakeTableStore(nullptr, heap)).status(),
        kOutOfMemory, {"table 't': 4 rows", "GiB", "left"});
    EXPECT_EQ(heap->used(), 0);
  }
  Bed s;
  float row[2];
  // The lookup: the batch is the next one still.
  s.Enqueue();
  s.heap->LeaveOnly(10);
  Has(s.Receive(), kOutOfMemory, {"the ids of a batch", " 10 are left"});
  Has(s.Send(1), StatusCode::kFailedPrecondition, {"no step"});
  Has(s.Receive(), kOutOfMemory, {"the ids of a batch"});
  s.heap->LeaveOnly(1 << 20);
  EXPECT(s.Receive().ok());
  // The update: it is put off, and whoever needs it does not wait for ever.
  s.heap->LeaveOnly(10);
  Has(s.Send(1), kOutOfMemory, {"step 0", "put off", "an update", " 10 are left"});
  s.Enqueue();
  Has(s.Receive(), kOutOfMemory, {"step 0", "put off"});
  Has(s.Read(row), kOutOfMemory, {"step 0", "put off"});
  s.heap->LeaveOnly(1 << 20);
  EXPECT(s.Receive().ok());
  on_cpu::Settle();
  EXPECT(s.out[0][0] == -1);
  EXPECT(s.Send(1).ok());
  EXPECT(s.Read(row).ok() && row[0] == -2 && row[1] == -2);
}

// Batches whose ids come to the device with their update; values, where they are wanted.
TEST(Store, TheRestIsDone) {
  const Later later;
  Bed s;
  float row[2];
  s.Enqueue(Mode::kBackwardOnly);
  EXPECT_OK(s.Send(1));
  EXPECT(s.Read(row).ok() && row[0] == -1);
  s.Enqueue(Mode::kInference);
  EXPECT_OK(s.Receive());
  on_cpu::Settle();
  EXPECT(s.out[0][0] == -1 && s.out[1][11] == -1);
}

TEST(Store, ValuesOfTheDevice) {
  const Later later;
  Heap heap;
  std::vector<float> values(1000);
  const auto find = [&](Range range) {
    return Value(FindOutside(range, 1000, values.data(), &heap, nullptr));
  };
  EXPECT_OK(FillWithBits(kClearBits, 1000, values.data(), nullptr));
  EXPECT(!find(Range::kClear));
  EXPECT_EQ(BitsOf(values[999]), kClearBits);
  values[700] = 2.5f;
  values[900] = -1;
  EXPECT_EQ(find(Range::kClear)->at, 700);
  EXPECT_EQ(find(Range::kClear)->value, 2.5f);
  EXPECT_EQ(find(Range::kNotNegative)->at, 900);
  EXPECT_EQ(heap.used(), 0);
  heap.LeaveOnly(1);
  EXPECT_ERROR(FindOutside(Range::kClear, 1000, values.data(), &heap, nullptr), kOutOfMemory,
               "looking through values takes 8 bytes of device memory; 1 are left");
}

// Pinned memory is used again: as much as steps are under way, however many there were.
TEST(Store, PinnedMemoryStays) {
  const Later later;
  Bed s;
  int64_t early = 0;
  for (int i = 0; i < 25; ++i) {
    on_cpu::Hold(true);
    for (int n = 0; n < 4; ++n) {
      s.Enqueue();
      EXPECT_OK(s.Receive());
      EXPECT_OK(s.Send(1));
    }
    on_cpu::Hold(false);
    on_cpu::Settle();
    if (i == 1) early = on_cpu::Pinned();
  }
  EXPECT(on_cpu::Pinned() == early);
}

TEST(Store, RandomStepsAreInOrder) {
  {
    const Later later;
    Pool pool(3);
    for (int64_t round = 0; round < testing::Rounds(40); ++round) {
      const auto heap = std::make_shared<Heap>();
      StepsAreInOrder(testing::Seed(), pool, cuda::MakeTableStore(nullptr, heap),
                      on_cpu::Settle);
      EXPECT_EQ(heap->used(), 0);
    }
  }
  NothingIsLeft();
}

}  // namespace
}  // namespace opwright::embedding::cuda
