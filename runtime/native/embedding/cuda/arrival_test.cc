// Tests ids that are on the device before they are enqueued, on a GPU or on a CPU that
// simulates one. Results for ids of all forms are compared with the CPU's engine. The tests
// also check how many bytes are copied, and that errors in the ids are reported later without
// changing anything else.
#include "embedding/cuda/arrival.h"

#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "device/heap.h"
#include "embedding/cuda/store.h"
#include "embedding/testing/steps.h"

namespace opwright::embedding::cuda {
namespace {

using device::Heap;
using device::Later;
using Form = Lookups::Form;
using Bytes = std::vector<char, device::Shared<char>>;

constexpr auto kInvalid = StatusCode::kInvalidArgument;

// The ids of a feature, with their form and types.
struct Given {
  Form form = Form::kDense;
  int64_t rank = 1;
  std::vector<int64_t> where, ids;
  std::vector<float> weights;
  bool wide_where = true, wide_ids = true;
};

// The arrays of a feature and views of them. They are in host memory that the device can
// access.
struct Arrays {
  explicit Arrays(const Given& given)
      : where(BytesOf(given.where, given.wide_where)),
        ids(BytesOf(given.ids, given.wide_ids)),
        weights(given.weights.size() * sizeof(float)) {
    if (!weights.empty()) std::memcpy(weights.data(), given.weights.data(), weights.size());
    view.form = given.form;
    view.rank = given.rank;
    view.where = {where.data(), given.wide_where, static_cast<int64_t>(given.where.size())};
    view.ids = {ids.data(), given.wide_ids, static_cast<int64_t>(given.ids.size())};
    view.weights = {weights.data(), false, static_cast<int64_t>(given.weights.size())};
  }

  static Bytes BytesOf(const std::vector<int64_t>& values, bool wide) {
    Bytes bytes(values.size() * (wide ? 8 : 4));
    for (size_t i = 0; i < values.size(); ++i) {
      const int32_t narrow = static_cast<int32_t>(values[i]);
      std::memcpy(bytes.data() + i * (wide ? 8 : 4),
                  wide ? static_cast<const void*>(&values[i]) : &narrow, wide ? 8 : 4);
    }
    return bytes;
  }

  Bytes where, ids, weights;
  Lookups view;
};

// Creates batches. Ids are on the device if they can be, and work on the null stream has
// written them.
class Maker {
 public:
  explicit Maker(std::shared_ptr<Heap> heap) : heap_(std::move(heap)) {}

  Batch Make(const Configuration& configuration, const std::vector<Given>& given,
             Combiner combiner, Mode mode) {
    Batch batch;
    batch.mode = mode;
    // The copies of ids are freed like TensorFlow's tensors: on the stream, after their
    // release.
    auto pieces = std::make_shared<std::vector<std::shared_ptr<void>>>();
    for (size_t f = 0; f < given.size(); ++f) {
      const int64_t feature = static_cast<int64_t>(f);
      sources_.emplace_back(given[f]);
      const Arrays& from = sources_.back();
      Lookups lookups = from.view;
      if (!CanStayOnDevice(configuration, feature, lookups)) {
        batch.features.push_back(Value(MakeBags(configuration, feature, lookups, combiner)));
        continue;
      }
      lookups.where.data = Copy(from.where, pieces.get());
      lookups.ids.data = Copy(from.ids, pieces.get());
      lookups.weights.data = Copy(from.weights, pieces.get());
      batch.features.push_back(MakeDeviceBags(configuration, feature, lookups, combiner));
    }
    batch.owner = std::move(pieces);
    return batch;
  }

 private:
  const void* Copy(const Bytes& from, std::vector<std::shared_ptr<void>>* pieces) {
    if (from.empty()) return nullptr;
    const std::shared_ptr<void> data(heap_->Allocate(static_cast<int64_t>(from.size())),
                                     [heap = heap_](void* piece) { heap->Free(piece); });
    EXPECT(cudaMemcpyAsync(data.get(), from.data(), from.size(), cudaMemcpyDefault, nullptr) ==
           cudaSuccess);
    pieces->push_back(data);
    return data.get();
  }

  const std::shared_ptr<Heap> heap_;
  // The arrays stay here, because the device copies them later.
  std::deque<Arrays> sources_;
};

// Draws ids in any form. The ids of a sample are contiguous, as a device requires.
Given Draw(Random& random, const Configuration& configuration, int64_t feature) {
  const FeatureConfig& config = configuration.features[feature];
  const int64_t rows = configuration.tables[config.table].rows, samples = config.samples();
  const bool matrix = config.shape.size() > 1;
  const int64_t length = config.shape.back();
  Given given;
  given.form = static_cast<Form>(random.Below(4));
  given.wide_where = random.Below(2), given.wide_ids = random.Below(2);
  const bool sequences = matrix && (given.form == Form::kIndices ||
                                    (given.form == Form::kSplits && random.Below(2)));
  const int64_t given_rows = sequences ? samples / length : samples;
  given.rank = matrix || random.Below(2) ? 2 : 1;
  if (given.form == Form::kSplits) given.where.push_back(0);
  for (int64_t row = 0; row < given_rows; ++row) {
    // Some ids of a sequence are beyond its end.
    const int64_t count =
        given.form == Form::kDense ? 1 : random.Below(sequences ? length + 2 : 4);
    for (int64_t i = 0; i < count; ++i) {
      given.ids.push_back(random.Below(rows));
      if (given.form == Form::kSamples) given.where.push_back(row);
      if (given.form != Form::kIndices) continue;
      given.where.push_back(row);
      if (given.rank == 2) given.where.push_back(i);
    }
    if (given.form == Form::kSplits) {
      given.where.push_back(static_cast<int64_t>(given.ids.size()));
    }
  }
  if (random.Below(2)) {
    for (size_t i = 0; i < given.ids.size(); ++i) {
      given.weights.push_back(static_cast<float>(random.Uniform() + 0.75));
    }
  }
  return given;
}

Status Enqueue(Engine* engine, ExecutionContext* exec, int64_t core, Batch batch) {
  Status enqueued = FailedPreconditionError("the queue is full");
  engine->Enqueue(exec, core, std::move(batch),
                  [&](const Status& status) { enqueued = status; });
  return enqueued;
}
Status Receive(Engine* engine, ExecutionContext* exec, int64_t core,
               std::vector<device::Floats>* outputs) {
  std::vector<float*> all;
  for (device::Floats& one : *outputs) all.push_back(one.data());
  Status received = FailedPreconditionError("it waits");
  const Engine::WaiterId waiter =
      engine->Receive(exec, core, [&](const Status& status, const Engine::Grant& grant) {
        received = status.ok() ? engine->Lookup(exec, grant, all.data()) : status;
      });
  engine->Cancel(waiter);
  return received;
}

// Returns buffers for the activations of a batch, or for its gradients.
std::vector<device::Floats> Activations(const Configuration& configuration) {
  std::vector<device::Floats> all;
  for (const FeatureConfig& feature : configuration.features) {
    const int64_t dimension = configuration.tables[feature.table].dimension;
    all.emplace_back(static_cast<size_t>(feature.samples() * dimension));
  }
  return all;
}
std::vector<const float*> Pointers(const std::vector<device::Floats>& all) {
  std::vector<const float*> pointers;
  for (const device::Floats& one : all) pointers.push_back(one.data());
  return pointers;
}

std::vector<float> Contents(Engine* engine, ExecutionContext* exec) {
  const Configuration& configuration = engine->configuration();
  std::vector<float> all;
  for (size_t t = 0; t < configuration.tables.size(); ++t) {
    const TableConfig& table = configuration.tables[t];
    // The updates of Lion are signs of sums, which may differ if the sums are almost zero.
    if (table.optimizer == Optimizer::kLion) continue;
    for (int64_t slot = -1; slot < table.slots(); ++slot) {
      std::vector<float> values(static_cast<size_t>(table.rows * table.dimension));
      EXPECT_OK(engine->Use(exec, [&](TableStore* store) {
        return store->Read(exec, static_cast<int64_t>(t), slot, {table.rows, 0, 1},
                           values.data());
      }));
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  return all;
}
void AllNear(const std::vector<float>& expected, const std::vector<float>& found) {
  EXPECT_EQ(expected.size(), found.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT(Near(expected[i], found[i]));
}

// Compares random steps of the CPU's engine with an engine whose ids are on the device.
void EnginesAgree(Random& random, ExecutionContext* exec) {
  Configuration configuration = DrawConfiguration(random, WithElementRules());
  const auto heap = std::make_shared<Heap>();
  Maker maker(heap);
  const auto host = Value(Engine::Create(configuration, MakeCpuTableStore()));
  const auto late = Value(Engine::Create(configuration, cuda::MakeTableStore(nullptr, heap)));
  for (size_t t = 0; t < configuration.tables.size(); ++t) {
    const TableConfig& table = configuration.tables[t];
    for (int64_t slot = -1; slot < table.slots(); ++slot) {
      std::vector<float> values(static_cast<size_t>(table.rows * table.dimension));
      for (float& x : values) x = static_cast<float>(random.Uniform() + (slot < 0 ? 0 : 1));
      for (Engine* engine : {host.get(), late.get()}) {
        EXPECT_OK(engine->Use(exec, [&](TableStore* store) {
          return store->Write(exec, static_cast<int64_t>(t), slot, {table.rows, 0, 1},
                              values.data());
        }));
      }
    }
  }
  // These buffers are not destroyed, because the device reads them later.
  std::deque<std::vector<device::Floats>> expected, found, gradients;
  for (int step = 0; step < 5; ++step) {
    const Mode mode = random.Below(4) ? Mode::kTraining : Mode::kInference;
    for (int64_t core = 0; core < configuration.cores; ++core) {
      std::vector<Given> given;
      for (size_t f = 0; f < configuration.features.size(); ++f) {
        given.push_back(Draw(random, configuration, static_cast<int64_t>(f)));
      }
      const Combiner combiner = static_cast<Combiner>(random.Below(3));
      Batch batch;
      batch.mode = mode;
      for (size_t f = 0; f < given.size(); ++f) {
        const Arrays arrays(given[f]);
        batch.features.push_back(
            Value(MakeBags(configuration, static_cast<int64_t>(f), arrays.view, combiner)));
      }
      EXPECT_OK(Enqueue(host.get(), exec, core, std::move(batch)));
      EXPECT_OK(
          Enqueue(late.get(), exec, core, maker.Make(configuration, given, combiner, mode)));
    }
    for (int64_t core = 0; core < configuration.cores; ++core) {
      expected.push_back(Activations(configuration));
      found.push_back(Activations(configuration));
      EXPECT_OK(Receive(host.get(), exec, core, &expected.back()));
      EXPECT_OK(Receive(late.get(), exec, core, &found.back()));
    }
    if (mode == Mode::kInference) continue;
    const std::vector<float> rates(static_cast<size_t>(configuration.tags), 10.f);
    for (int64_t core = 0; core < configuration.cores; ++core) {
      gradients.push_back(Activations(configuration));
      for (device::Floats& of : gradients.back()) {
        for (float& g : of) g = static_cast<float>(random.Uniform());
      }
      const std::vector<const float*> values = Pointers(gradients.back());
      EXPECT_OK(host->Send(exec, core, values, nullptr, rates));
      EXPECT_OK(late->Send(exec, core, values, nullptr, rates));
    }
  }
  device::Settle();
  for (size_t i = 0; i < found.size(); ++i) {
    for (size_t f = 0; f < configuration.features.size(); ++f) {
      const TableConfig& table = configuration.tables[configuration.features[f].table];
      // A value at the edge of a bucket may be rounded to either side.
      if (table.quantization.enabled || table.optimizer == Optimizer::kLion) continue;
      AllNear({expected[i][f].begin(), expected[i][f].end()},
              {found[i][f].begin(), found[i][f].end()});
    }
  }
  AllNear(Contents(host.get(), exec), Contents(late.get(), exec));
}

TEST(Arrival, ResultsAreThoseOfTheCpu) {
  const Later later;
  Pool pool(2);
  PoolContext exec(pool);
  for (int64_t round = 0; round < testing::Rounds(60); ++round) {
    Random random{testing::Seed()};
    EnginesAgree(random, &exec);
  }
}

// The host must read the ids of sequences, and ids with invalid sizes. Other ids stay on the
// device.
TEST(Arrival, SequencesAndInvalidSizesNeedTheHost) {
  Configuration configuration;
  configuration.tables.emplace_back();
  configuration.tables[0].name = "t";
  configuration.tables[0].rows = configuration.tables[0].dimension = 4;
  configuration.features = {{"f", 0, {3}}, {"g", 0, {2, 3}}};
  EXPECT_OK(Complete(&configuration));
  const auto stays = [&](int64_t feature, Form form, int64_t where, int64_t rank, int64_t ids,
                         int64_t weights = 0, bool wide = false) {
    Lookups lookups;
    lookups.form = form;
    lookups.rank = rank;
    lookups.where.size = where;
    lookups.ids.size = ids;
    lookups.weights = {nullptr, wide, weights};
    return CanStayOnDevice(configuration, feature, lookups);
  };
  EXPECT(stays(0, Form::kDense, 0, 0, 3) && stays(1, Form::kDense, 0, 0, 6));
  EXPECT(!stays(0, Form::kDense, 0, 0, 2));
  EXPECT(stays(0, Form::kSplits, 4, 0, 9) && stays(1, Form::kSplits, 7, 0, 9, 9));
  EXPECT(!stays(0, Form::kSplits, 3, 0, 9) && !stays(1, Form::kSplits, 3, 0, 9));
  EXPECT(stays(0, Form::kSamples, 9, 0, 9) && !stays(0, Form::kSamples, 8, 0, 9));
  EXPECT(stays(0, Form::kIndices, 9, 1, 9) && stays(0, Form::kIndices, 18, 2, 9));
  EXPECT(!stays(0, Form::kIndices, 27, 3, 9) && !stays(0, Form::kIndices, 17, 2, 9));
  EXPECT(!stays(1, Form::kIndices, 18, 2, 9));
  EXPECT(!stays(0, Form::kSplits, 4, 0, 9, 8) && !stays(0, Form::kSplits, 4, 0, 9, 9, true));
}

// An engine with two tables of four rows. Each has a feature of three samples.
struct Bed {
  Bed() {
    configuration.tables.emplace_back();
    configuration.tables[0].name = "t";
    configuration.tables[0].rows = configuration.tables[0].dimension = 4;
    configuration.tables[0].hyper.learning_rate = 1;
    configuration.tables.push_back(configuration.tables[0]);
    configuration.tables[1].name = "u";
    configuration.features = {{"f", 0, {3}}, {"g", 1, {3}}};
    EXPECT_OK(Complete(&configuration));
    engine = Value(Engine::Create(configuration, cuda::MakeTableStore(nullptr, heap)));
    outputs = Activations(configuration);
    gradients = Activations(configuration);
    for (device::Floats& of : gradients) std::fill(of.begin(), of.end(), 1.f);
  }
  ~Bed() { device::Hold(false); }

  // Enqueues a batch. The first feature is valid.
  Status Enqueue(const Given& second, Mode mode = Mode::kTraining,
                 Combiner combiner = Combiner::kSum) {
    Given first;
    first.ids = {1, 2, 3};
    return cuda::Enqueue(engine.get(), &exec, 0,
                         maker.Make(configuration, {first, second}, combiner, mode));
  }
  Status Receive() { return cuda::Receive(engine.get(), &exec, 0, &outputs); }
  Status Send() { return engine->Send(&exec, 0, Pointers(gradients), nullptr, {}); }
  // Returns a weight in row 1 of a table. It is the negative number of applied steps.
  float Row(size_t table) { return Contents(engine.get(), &exec)[table * 16 + 4]; }

  Pool pool{2};
  PoolContext exec{pool};
  Configuration configuration;
  std::shared_ptr<Heap> heap = std::make_shared<Heap>();
  Maker maker{heap};
  std::vector<device::Floats> outputs, gradients;
  // The last member, because its destructor waits for the device.
  std::shared_ptr<Engine> engine;
};

struct Wrong {
  Given given;
  std::vector<std::string> words;
  Combiner combiner = Combiner::kSum;
};

std::vector<Wrong> Wrongs() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::string id = "ids must be in [0, 4)";
  const std::string splits = "row splits must begin with 0, not descend and end";
  const std::string samples = "sample indices must be in [0, 3) and";
  const auto splits_of = [](std::vector<int64_t> where, std::vector<float> weights = {}) {
    return Given{Form::kSplits, 1, std::move(where), {1, 2, 3, 1}, std::move(weights)};
  };
  const auto samples_of = [](std::vector<int64_t> where) {
    return Given{Form::kSamples, 1, std::move(where), {1, 2, 3, 1}, {}};
  };
  return {
      {{Form::kDense, 1, {}, {1, -1, 2}, {}}, {id, "id at position 1 "}},
      {{Form::kDense, 1, {}, {1, 2, 4}, {}, true, false}, {id, "id at position 2 "}},
      {{Form::kDense, 1, {}, {int64_t{1} << 40, 0, 0}, {}}, {id, "id at position 0 "}},
      {{Form::kSplits, 1, {0, 2, 2, 4}, {1, 2, 3, -7}, {}}, {id, "id at position 3 "}},
      {{Form::kSamples, 1, {0, 1, 1, 2}, {1, 4, 3, 1}, {}}, {id, "id at position 1 "}},
      {splits_of({0, 3, 2, 4}), {splits, "row 1 "}},
      {splits_of({1, 2, 3, 4}), {splits, "row 0 "}},
      {splits_of({0, 1, 2, 3}), {splits, "row 2 "}},
      {splits_of({0, 1, int64_t{1} << 40, 4}), {splits, "row 1 "}},
      {samples_of({0, 2, 1, 2}), {samples, "index at position 2 "}},
      {samples_of({0, 1, 2, 3}), {samples, "index at position 3 "}},
      {samples_of({-1, 1, 2, 2}), {samples, "index at position 0 "}},
      {{Form::kIndices, 2, {0, 0, 2, 0, 1, 0, 2, 1}, {1, 2, 3, 1}, {}},
       {samples, "index at position 2 "}},
      {splits_of({0, 1, 2, 4}, {1, NAN, 1, 1}), {"must be finite", "weight at position 1 "}},
      {splits_of({0, 1, 2, 4}, {1, 1, 1, kInfinity}),
       {"must be finite", "weight at position 3 "},
       Combiner::kMean},
      {splits_of({0, 1, 2, 4}, {1e-45f, 1, 1, 1}),
       {"must be finite", "weight at position 0 "},
       Combiner::kSqrtN},
  };
}

// The first call after the device has found the error reports it, and only once. Neither the
// bad step nor the steps queued after it have changed anything. No call waited for the device.
TEST(Arrival, ErrorsInIdsAreReportedLater) {
  const Later later;
  const Given good = {Form::kDense, 1, {}, {1, 2, 3}, {}};
  for (const Wrong& wrong : Wrongs()) {
    Bed s;
    const auto step = [&](const Given& given, Combiner combiner = Combiner::kSum) -> Status {
      EXPECT_OK(s.Enqueue(given, Mode::kTraining, combiner));
      OPWRIGHT_RETURN_IF_ERROR(s.Receive());
      return s.Send();
    };
    const auto told = [&](const std::string& what, const std::string& outcome) {
      device::Settle();
      const Status status = s.Receive();
      for (const std::string& word : wrong.words) EXPECT_ERROR(status, kInvalid, word);
      for (const std::string& word : {what, std::string("feature 1 ('g'"), outcome}) {
        EXPECT_ERROR(status, kInvalid, word);
      }
    };
    EXPECT_OK(step(good));
    device::Settle();
    const int64_t waits = device::Waits();
    device::Hold(true);
    EXPECT_OK(step(wrong.given, wrong.combiner));
    EXPECT_OK(step(good));
    EXPECT_OK(s.Enqueue(good));
    EXPECT_EQ(device::Waits(), waits);
    device::Hold(false);
    told("step 1, ", "the updates of steps 1 to 2 were not made");
    // The refused call has done nothing, so its batch is still the next one.
    EXPECT_OK(s.Receive());
    EXPECT_OK(s.Send());
    EXPECT(s.Row(0) == -2 && s.Row(1) == -2);
    // An error in a batch for inference drops no step. Its lookup uses the valid ids.
    EXPECT_OK(s.Enqueue(wrong.given, Mode::kInference, wrong.combiner));
    EXPECT_OK(s.Receive());
    EXPECT_OK(s.Enqueue(good));
    told("a batch for inference, ", "added nothing");
    EXPECT(s.outputs[0][0] == -2);
    EXPECT_OK(s.Receive());
    EXPECT_OK(s.Send());
    EXPECT(s.Row(0) == -3 && s.Row(1) == -3);
  }
}

// The ids are copied in neither direction. The number of bytes of descriptors does not depend
// on the number of ids. Only errors are copied back.
TEST(Arrival, BytesOfAStepDoNotDependOnIds) {
  if (!device::Counts()) return;
  const Later later;
  const int64_t tables = 26;
  int64_t to_device[2], to_host[2];
  for (const int64_t samples : {1000, 4000}) {
    Configuration configuration;
    std::vector<Given> given;
    for (int64_t t = 0; t < tables; ++t) {
      TableConfig table;
      table.name = "t" + std::to_string(t);
      table.rows = 5000;
      table.dimension = 4;
      table.hyper.learning_rate = 1;
      configuration.tables.push_back(table);
      configuration.features.push_back({"f" + std::to_string(t), t, {samples}});
      Given one;
      one.form = static_cast<Form>(t % 4);
      for (int64_t s = 0; s < samples; ++s) {
        one.ids.push_back(s);
        if (one.form != Form::kDense) one.where.push_back(s);
      }
      if (one.form == Form::kSplits) one.where.push_back(samples);
      given.push_back(std::move(one));
    }
    EXPECT_OK(Complete(&configuration));
    const auto heap = std::make_shared<Heap>();
    Maker maker(heap);
    const auto engine =
        Value(Engine::Create(configuration, cuda::MakeTableStore(nullptr, heap)));
    Pool pool(2);
    PoolContext exec(pool);
    std::vector<device::Floats> outputs = Activations(configuration);
    const std::vector<device::Floats> gradients = Activations(configuration);
    const auto step = [&] {
      EXPECT_OK(Enqueue(engine.get(), &exec, 0,
                        maker.Make(configuration, given, Combiner::kMean, Mode::kTraining)));
      EXPECT_OK(Receive(engine.get(), &exec, 0, &outputs));
      EXPECT_OK(engine->Send(&exec, 0, Pointers(gradients), nullptr, {}));
      device::Settle();
    };
    step();
    const int64_t before = device::CopiedToDevice(), back = device::CopiedToHost();
    step();
    to_device[samples == 4000] = device::CopiedToDevice() - before;
    to_host[samples == 4000] = device::CopiedToHost() - back;
  }
  EXPECT_EQ(to_device[0], to_device[1]);
  EXPECT(to_device[0] <= tables * 1600);
  for (const int64_t bytes : to_host) {
    EXPECT_EQ(bytes, static_cast<int64_t>(sizeof(DeviceErrors)));
  }
}

}  // namespace
}  // namespace opwright::embedding::cuda
