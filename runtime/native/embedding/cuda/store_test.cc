// Tests the tables of an engine on a GPU, or on a CPU that simulates one and executes its work
// later. The tests compare steps of several TensorCores with rows of doubles. They cover bad
// gradients that are found too late to refuse them, memory that runs out, and asynchronous
// calls.
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <mutex>

#include "device/device.h"
#include "device/heap.h"
#include "embedding/cuda/store.h"
#include "embedding/testing/steps.h"

namespace opwright::embedding::cuda {
namespace {

using device::Heap;
using device::Later;

// An engine with two tables of four rows. Their features have two and three samples with one id
// each.
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
    auto made = cuda::MakeTableStore(nullptr, heap);
    store = made.get();
    engine = Value(Engine::Create(configuration, std::move(made)));
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
    Engine::Grant grant;
    const Engine::WaiterId waiter =
        engine->Receive(&exec, 0, [&](Status status, const Engine::Grant& given) {
          received = status;
          grant = given;
        });
    if (grant.batch) return engine->Lookup(&exec, grant, outputs);
    return engine->Cancel(waiter) ? FailedPreconditionError("it waits") : received;
  }
  Status Send(float value) {
    // The gradients are not destroyed in this function, because the device reads them later.
    gradients.push_back(device::Floats(20, 1.f));
    device::Floats& all = gradients.back();
    all[8 + 7] = value;  // Column 3 of sample 1 of the second feature.
    return engine->Send(&exec, 0, {all.data(), all.data() + 8}, nullptr, {});
  }
  // Reads a weight in row 1 of each table.
  Status Read(float (&row)[2]) {
    device::Floats rows[2] = {device::Floats(16), device::Floats(16)};
    const Status status = engine->Use(&exec, [&](TableStore* store) -> Status {
      for (int64_t t = 0; t < 2; ++t) {
        OPWRIGHT_RETURN_IF_ERROR(store->Read(&exec, t, -1, {4, 0, 1}, rows[t].data()));
      }
      return {};
    });
    device::Settle();
    if (status.ok()) row[0] = rows[0][4], row[1] = rows[1][4];
    return status;
  }

  ~Bed() { device::Hold(false); }

  Pool pool{2};
  PoolContext exec{pool};
  Configuration configuration;
  std::shared_ptr<Heap> heap;
  TableStore* store;  // The store belongs to the engine.
  std::shared_ptr<Engine> engine;
  std::deque<device::Floats> gradients;
  device::Floats out[2] = {device::Floats(12), device::Floats(12)};
  float* outputs[2] = {out[0].data(), out[1].data()};
};

void Has(const Status& status, StatusCode code, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_ERROR(status, code, word);
}

constexpr auto kInvalid = StatusCode::kInvalidArgument;
constexpr auto kOutOfMemory = StatusCode::kResourceExhausted;

// Expects that all resources are freed. Call it at the end of a test.
void NothingIsLeft() {
  EXPECT_EQ(device::Pinned(), 0);
  EXPECT_EQ(device::Events(), 0);
  EXPECT_EQ(device::Streams(), 0);
}

// A step with a bad gradient changes no table, and neither do the steps after it. The first
// call after the device has found the error reports it. Steps after that report are applied.
TEST(Store, BadGradientsAreReported) {
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
      const int64_t waits = device::Waits();
      device::Hold(true);
      // The device has not executed the step yet, so there is no error, and no call waits.
      EXPECT_OK(step(bad));
      EXPECT_OK(step(1));
      EXPECT(device::Waits() == waits);
      device::Hold(false);
      device::Settle();
      EXPECT_ERROR(step(1), kInvalid, "gradients must be finite");  // Receive returns it.
      EXPECT(device::Waits() == waits);
      EXPECT(s.Receive().ok());
      EXPECT(s.Send(1).ok());
      EXPECT(s.Read(row).ok() && row[0] == -2 && row[1] == -2);
      // Each kind of call can report the error, with the names of the step and the feature, and
      // only once.
      s.Enqueue();
      EXPECT_OK(s.Receive());
      if (who == 0) s.Enqueue();
      EXPECT(s.Send(bad).ok());
      device::Settle();
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
  // The error names all steps that were lost.
  Bed s;
  device::Hold(true);
  for (const float value : {1.f, NAN, NAN, 1.f}) {
    s.Enqueue();
    EXPECT_OK(s.Receive());
    EXPECT_OK(s.Send(value));
  }
  device::Hold(false);
  float row[2];
  Has(s.Read(row), kInvalid, {"step 1,", "the updates of steps 1 to 3 were not made"});
  EXPECT(s.Read(row).ok() && row[0] == -1);
}

// A call without enough memory changes nothing, reports the missing bytes, and can be repeated.
TEST(Store, MemoryRunsOut) {
  const Later later;
  {
    auto heap = std::make_shared<Heap>();
    heap->LeaveOnly(sizeof(DeviceErrors));
    Bed s;
    Has(Engine::Create(s.configuration, cuda::MakeTableStore(nullptr, heap)).status(),
        kOutOfMemory, {"descriptors of 2 tables", "bytes of device memory; 0 are left"});
    EXPECT_EQ(heap->used(), 0);
    heap->LeaveOnly(2000);
    s.configuration.tables[0].rows = 1000;
    Has(Engine::Create(s.configuration, cuda::MakeTableStore(nullptr, heap)).status(),
        kOutOfMemory, {"table 't': 1000 rows", "GiB", "left"});
    EXPECT_EQ(heap->used(), 0);
  }
  Bed s;
  float row[2];
  // If a lookup fails, its batch is still the next one.
  s.heap->LeaveOnly(10);
  s.Enqueue();
  Has(s.Receive(), kOutOfMemory, {"the ids of a batch", " 10 are left"});
  Has(s.Send(1), StatusCode::kFailedPrecondition, {"no step"});
  Has(s.Receive(), kOutOfMemory, {"the ids of a batch"});
  s.heap->LeaveOnly(1 << 20);
  EXPECT(s.Receive().ok());
  // If an update fails, it is postponed. Calls that depend on it fail and do not wait forever.
  s.heap->LeaveOnly(10);
  Has(s.Send(1), kOutOfMemory, {"step 0", "put off", "an update", " 10 are left"});
  s.Enqueue();
  Has(s.Receive(), kOutOfMemory, {"step 0", "put off"});
  Has(s.Read(row), kOutOfMemory, {"step 0", "put off"});
  s.heap->LeaveOnly(1 << 20);
  EXPECT(s.Receive().ok());
  device::Settle();
  EXPECT(s.out[0][0] == -1);
  EXPECT(s.Send(1).ok());
  EXPECT(s.Read(row).ok() && row[0] == -2 && row[1] == -2);
}

TEST(Store, NarrowRowsAreRefused) {
  {
    Bed s;
    s.configuration.tables[1].dtype = RowDtype::kInt8;
    auto heap = std::make_shared<Heap>();
    Has(Engine::Create(s.configuration, cuda::MakeTableStore(nullptr, heap)).status(),
        StatusCode::kUnimplemented,
        {"table 1 ('", "rows on a GPU must be float32, are int8", "tables on the CPU"});
    EXPECT_EQ(heap->used(), 0);
  }
  NothingIsLeft();
}

// Tests batches that are updated without a lookup, and activations of batches for inference.
TEST(Store, BackwardOnlyAndInferenceBatches) {
  const Later later;
  Bed s;
  float row[2];
  s.Enqueue(Mode::kBackwardOnly);
  EXPECT_OK(s.Send(1));
  EXPECT(s.Read(row).ok() && row[0] == -1);
  s.Enqueue(Mode::kInference);
  EXPECT_OK(s.Receive());
  device::Settle();
  EXPECT(s.out[0][0] == -1 && s.out[1][11] == -1);
}

// Pinned memory is reused. Its size depends on how many steps are in progress at the same time,
// not on how many steps there were.
TEST(Store, PinnedMemoryIsReused) {
  const Later later;
  Bed s;
  int64_t early = 0;
  for (int i = 0; i < 25; ++i) {
    device::Hold(true);
    for (int n = 0; n < 4; ++n) {
      s.Enqueue();
      EXPECT_OK(s.Receive());
      EXPECT_OK(s.Send(1));
    }
    device::Hold(false);
    device::Settle();
    if (i == 1) early = device::Pinned();
  }
  EXPECT(device::Pinned() == early);
}

// An engine with many tables of the same rule. Each table has a feature with one id for each
// sample.
struct Many {
  Many(int64_t tables, int64_t rows, int64_t samples, int64_t dimension) {
    for (int64_t t = 0; t < tables; ++t) {
      TableConfig table;
      table.name = "t" + std::to_string(t);
      table.rows = rows;
      table.dimension = dimension;
      table.optimizer = Optimizer::kAdagrad;
      table.hyper.learning_rate = 0.1f;
      configuration.tables.push_back(table);
      configuration.features.push_back({"f" + std::to_string(t), t, {samples}});
      out.emplace_back(static_cast<size_t>(samples * dimension));
      gradients.emplace_back(out.back().size(), 0.5f);
    }
    EXPECT_OK(Complete(&configuration));
    engine = Value(
        Engine::Create(configuration, cuda::MakeTableStore(nullptr, std::make_shared<Heap>())));
  }

  void Enqueue() {
    Batch batch;
    for (size_t f = 0; f < configuration.features.size(); ++f) {
      std::vector<int64_t> ids(static_cast<size_t>(configuration.features[f].samples()));
      for (int64_t& id : ids) id = random.Below(configuration.tables[f].rows);
      Lookups lookups;
      lookups.ids = {ids.data(), true, static_cast<int64_t>(ids.size())};
      batch.features.push_back(
          Value(MakeBags(configuration, static_cast<int64_t>(f), lookups, Combiner::kSum)));
    }
    engine->Enqueue(&exec, 0, std::move(batch),
                    [](const Status& status) { EXPECT_OK(status); });
  }
  void Receive() {
    engine->Receive(&exec, 0, [&](const Status& status, const Engine::Grant& grant) {
      EXPECT_OK(status);
      std::vector<float*> outputs;
      for (auto& one : out) outputs.push_back(one.data());
      EXPECT_OK(engine->Lookup(&exec, grant, outputs.data()));
    });
  }
  void Send() {
    std::vector<const float*> values;
    for (const auto& one : gradients) values.push_back(one.data());
    EXPECT_OK(engine->Send(&exec, 0, values, nullptr, {}));
  }
  void Step() {
    Enqueue();
    Receive();
    Send();
    device::Settle();
  }
  // Returns all weights and slots.
  std::vector<float> Contents() {
    std::vector<float> all;
    for (size_t t = 0; t < configuration.tables.size(); ++t) {
      const TableConfig& table = configuration.tables[t];
      for (int64_t slot = -1; slot < table.slots(); ++slot) {
        device::Floats values(static_cast<size_t>(table.rows * table.dimension));
        EXPECT_OK(engine->Use(&exec, [&](TableStore* store) {
          return store->Read(&exec, static_cast<int64_t>(t), slot, {table.rows, 0, 1},
                             values.data());
        }));
        device::Settle();
        all.insert(all.end(), values.begin(), values.end());
      }
    }
    return all;
  }

  Random random{7};
  Pool pool{2};
  PoolContext exec{pool};
  Configuration configuration;
  std::vector<device::Floats> out, gradients;
  // The last member, because its destructor waits for the device.
  std::shared_ptr<Engine> engine;
};

// The number of device operations in a step does not grow with the number of tables.
TEST(Store, OperationsDoNotGrowWithTables) {
  if (!device::Counts()) return;
  int64_t of_step[2];
  for (const int64_t tables : {26, 200}) {
    // There are 2.6 and 20 million rows, whose keys have 22 and 25 bits.
    Many s(tables, 100000, 3000 / tables, 1);
    for (int i = 0; i < 3; ++i) s.Step();
    const int64_t before = device::Operations();
    for (int i = 0; i < 4; ++i) s.Step();
    of_step[tables == 200] = (device::Operations() - before) / 4;
  }
  EXPECT(of_step[0] <= 24);
  EXPECT(of_step[1] <= 24);
  EXPECT_EQ(of_step[1] - of_step[0], 2);  // The second engine sorts eight bits more.
}

// An id takes four bytes. It is copied during Enqueue, before the device has executed other
// work.
TEST(Store, IdsTakeFourBytesEach) {
  if (!device::Counts()) return;
  const Later later;
  const int64_t tables = 26, samples = 1000;
  Many s(tables, 5000, samples, 4);
  for (int i = 0; i < 3; ++i) s.Step();
  const int64_t before = device::CopiedToDevice();
  device::Hold(true);
  s.Enqueue();
  const int64_t of_ids = device::CopiedToDevice() - before;
  EXPECT(of_ids >= tables * samples * 4);
  EXPECT(of_ids <= tables * (samples * 4 + 200));
  s.Receive();
  EXPECT_EQ(device::CopiedToDevice() - before, of_ids);
  s.Send();
  EXPECT(device::CopiedToDevice() - before <= of_ids + tables * 1200);
  device::Hold(false);
}

// The same steps give the same bits, in whichever order threads run.
TEST(Store, EqualStepsGiveEqualBits) {
  std::vector<float> first;
  for (int run = 0; run < 2; ++run) {
    const Later later;
    Many s(5, 60, 200, 12);
    for (int i = 0; i < 5; ++i) s.Step();
    if (run == 0) first = s.Contents();
    EXPECT(s.Contents() == first);
  }
}

// A call that waits for memory has no lock, so other calls can run. If memory is freed in
// time, the call succeeds.
TEST(Store, WaitsForMemoryWithoutALock) {
  const Later later;
  Bed s;
  int64_t refusals = 0;
  s.heap->LeaveOnly(10);
  s.Enqueue();  // The ids are not copied ahead, because there is no memory.
  s.heap->LeaveOnly(1 << 20);
  const auto look_on = [&] {
    ++refusals;
    auto other = std::async(std::launch::async, [&] {
      return s.engine->Steps() >= 0 && s.store->CheckUpdates(/*wait=*/false).ok();
    });
    EXPECT(other.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  };
  s.heap->Refuse(3, look_on);
  EXPECT_OK(s.Receive());
  EXPECT(refusals >= 3);
  refusals = 0;
  s.heap->Refuse(3, look_on);
  EXPECT_OK(s.Send(1));
  EXPECT(refusals >= 3);
  float row[2];
  EXPECT(s.Read(row).ok() && row[0] == -1 && row[1] == -1);

  // After a failed wait, each later call tries to allocate only once.
  s.Enqueue();
  EXPECT_OK(s.Receive());
  s.heap->LeaveOnly(10);
  EXPECT_ERROR(s.Send(1), kOutOfMemory, "put off");
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 5; ++i) EXPECT_ERROR(s.Read(row), kOutOfMemory, "put off");
  EXPECT(std::chrono::steady_clock::now() - began < std::chrono::milliseconds(450));
  s.heap->LeaveOnly(1 << 20);
  EXPECT(s.Read(row).ok() && row[0] == -2 && row[1] == -2);
}

// Values go through the host in pieces. They may be larger than the free device memory.
TEST(Store, LoadsAndRetrievesInPieces) {
  const Later later;
  const auto heap = std::make_shared<Heap>();
  Configuration configuration;
  configuration.tables.emplace_back();
  configuration.tables[0].name = "t";
  configuration.tables[0].rows = 3 * 4096 + 100;
  configuration.tables[0].dimension = 1024;  // 4,096 rows are one piece.
  configuration.features = {{"f", 0, {1}}};
  EXPECT_OK(Complete(&configuration));
  const auto engine = Value(Engine::Create(configuration, cuda::MakeTableStore(nullptr, heap)));
  heap->LeaveOnly(10);
  Pool pool{2};
  PoolContext exec{pool};
  const int64_t before = device::Pinned();
  for (const Shard shard : {Shard{3 * 4096 + 100, 0, 1}, Shard{6000, 1, 2}}) {
    std::vector<float> values(static_cast<size_t>(shard.count * 1024)), found(values.size());
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 999983);
    EXPECT_OK(engine->Use(&exec, [&](TableStore* store) -> Status {
      OPWRIGHT_RETURN_IF_ERROR(store->Write(&exec, 0, -1, shard, values.data()));
      return store->Read(&exec, 0, -1, shard, found.data());
    }));
    EXPECT(found == values);
    EXPECT(device::Pinned() - before <= 4);
  }
}

// If code on the host throws, no pinned memory stays in use, wherever the exception comes from.
TEST(Store, ExceptionsReleasePinnedMemory) {
  struct Throwing : PoolContext {
    using PoolContext::PoolContext;
    void For(int64_t count, const std::function<void(int64_t)>& task) override {
      if (throws) throw std::bad_alloc();
      PoolContext::For(count, task);
    }
    bool throws = false;
  };
  const Later later;
  Many s(1, 1000, 100000, 1);
  Throwing exec(s.pool);
  const auto enqueue = [&] {
    std::vector<int32_t> ids(100000, 7);
    Lookups lookups;
    lookups.ids = {ids.data(), false, 100000};
    Batch batch;
    batch.features.push_back(Value(MakeBags(s.configuration, 0, lookups, Combiner::kSum)));
    s.engine->Enqueue(&exec, 0, std::move(batch),
                      [](const Status& status) { EXPECT_OK(status); });
  };
  int64_t pinned = 0;
  for (int i = 0; i < 25; ++i) {
    if (i == 5) pinned = device::Pinned();
    exec.throws = i >= 5;
    enqueue();
    exec.throws = false;
    s.Receive();
    s.Send();
    device::Settle();
  }
  EXPECT(device::Pinned() <= pinned + 2);
}

// A thread without a context has none after a call. No device is chosen for it, because that
// would create a context on a GPU that the program may hide.
TEST(Store, NoDeviceIsChosen) {
  if (!device::Counts()) return;
  Bed s;
  const int64_t chosen = device::Choices();
  std::async(std::launch::async, [&] {
    s.Enqueue();
    EXPECT_OK(s.Receive());
    EXPECT_OK(s.Send(1));
    float row[2];
    EXPECT(s.Read(row).ok() && row[0] == -1);
    s.engine.reset();
  }).get();
  EXPECT_EQ(device::Choices(), chosen);
}

// On a machine that cannot run the kernels, the error comes before anything is allocated.
TEST(Store, MachinesAreRefused) {
  if (!device::Counts()) return;
  Bed s;
  const auto refuses = [&](const std::string& words) {
    const auto heap = std::make_shared<Heap>();
    EXPECT_ERROR(Engine::Create(s.configuration, cuda::MakeTableStore(nullptr, heap)).status(),
                 StatusCode::kFailedPrecondition, words);
    EXPECT_EQ(heap->used(), 0);
  };
  const int64_t pinned = device::Pinned();
  device::SetDriver(11080);
  refuses("the driver is for CUDA 11.8");
  device::SetDriver(CUDART_VERSION);
  device::SetCode(false);
  refuses("has the compute capability 7.5");
  device::SetCode(true);
  EXPECT_EQ(device::Pinned(), pinned);
}

TEST(Store, RandomStepsAreInOrder) {
  {
    const Later later;
    Pool pool(3);
    for (int64_t round = 0; round < testing::Rounds(40); ++round) {
      const auto heap = std::make_shared<Heap>();
      StepsAreInOrder<device::Floats>(testing::Seed(), pool,
                                      cuda::MakeTableStore(nullptr, heap), device::Settle,
                                      WithElementRules());
      EXPECT_EQ(heap->used(), 0);
    }
  }
  NothingIsLeft();
}

}  // namespace
}  // namespace opwright::embedding::cuda
