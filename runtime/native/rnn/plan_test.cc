#include "rnn/plan.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "rnn/testing/kernel_sets.h"

namespace opwright::rnn {
namespace {

// A context that reports the given number of threads and runs all tasks in the caller's thread.
class CountedThreads : public ExecutionContext {
 public:
  explicit CountedThreads(int threads) : threads_(threads) {}

  int Threads() const override { return threads_; }
  void For(int64_t count, const std::function<void(int64_t)>& task) override {
    ++calls;
    for (int64_t i = count - 1; i >= 0; --i) task(i);
  }
  void* Allocate(size_t bytes) override {
    memory_.emplace_back(new char[bytes + 1]);
    return memory_.back().get();
  }

  int calls = 0;

 private:
  const int threads_;
  std::vector<std::unique_ptr<char[]>> memory_;
};

CallSpec DrawCall(Random& random) {
  CallSpec spec;
  spec.cell = static_cast<Cell>(random.Below(4));
  spec.bidirectional = random.Below(2);
  spec.units = 1 + random.Below(200);
  spec.input_size = 1 + random.Below(200);
  spec.time = 1 + random.Below(50);
  spec.batch = 1 + random.Below(100);
  return spec;
}

Plan PlanOf(const CallSpec& spec, const ExecutionContext& exec, int64_t chunk_rows) {
  return Plan(spec, SelectKernels<float>(), exec, chunk_rows);
}

// Each sequence in each direction belongs to one slice. The sizes of two parts differ by at
// most one.
TEST(Plan, SlicesCoverTheBatchOnce) {
  Random random{testing::Seed()};
  for (int64_t round = 0; round < testing::Rounds(500); ++round) {
    const CallSpec spec = DrawCall(random);
    const CountedThreads exec(static_cast<int>(1 + random.Below(20)));
    const Plan plan = PlanOf(spec, exec, 64);
    EXPECT_EQ(plan.slices, plan.parts * spec.dirs());
    std::vector<int> seen(static_cast<size_t>(spec.dirs() * spec.batch));
    for (int64_t i = 0; i < plan.slices; ++i) {
      const SliceRange slice = plan.Slice(i);
      EXPECT(slice.sequences() >= spec.batch / plan.parts);
      EXPECT(slice.sequences() <= plan.max_sequences);
      for (int64_t b = slice.first; b < slice.end; ++b) {
        ++seen[static_cast<size_t>(slice.dir * spec.batch + b)];
      }
    }
    for (const int count : seen) EXPECT_EQ(count, 1);
    EXPECT_EQ(plan.max_sequences, (spec.batch + plan.parts - 1) / plan.parts);
  }
}

TEST(Plan, SmallBatchIsNotDivided) {
  CallSpec spec;
  spec.units = spec.input_size = 256;
  spec.time = 50;
  spec.batch = 64;
  EXPECT_EQ(PlanOf(spec, CountedThreads(1), 64).parts, 1);
  EXPECT_EQ(PlanOf(spec, CountedThreads(8), 64).parts, 8);
  EXPECT_EQ(PlanOf(spec, CountedThreads(100), 64).parts, 64);
  spec.bidirectional = true;
  EXPECT_EQ(PlanOf(spec, CountedThreads(8), 64).parts, 4);
  EXPECT_EQ(PlanOf(spec, CountedThreads(7), 64).parts, 4);
  spec.units = spec.input_size = 4;
  spec.time = 2;
  EXPECT_EQ(PlanOf(spec, CountedThreads(8), 64).parts, 1);
}

TEST(Plan, IdleThreadsShareThePanelsOfAStep) {
  CallSpec spec;
  spec.units = spec.input_size = 256;
  spec.time = 50;
  spec.batch = 2;
  const CountedThreads exec(8);
  const Plan plan = PlanOf(spec, exec, 64);
  EXPECT_EQ(plan.slices, 2);
  EXPECT_EQ(plan.PanelCuts(exec, 100), 4);
  EXPECT_EQ(plan.PanelCuts(exec, 3), 3);
  EXPECT_EQ(plan.PanelCuts(CountedThreads(1), 100), 1);
}

TEST(Plan, ChunksHaveTheRequestedRows) {
  CallSpec spec;
  spec.units = spec.input_size = 2;
  spec.time = 1000;
  spec.batch = 10;
  const CountedThreads exec(1);
  EXPECT_EQ(PlanOf(spec, exec, 64).chunk_steps, 6);
  EXPECT_EQ(PlanOf(spec, exec, 64).max_chunk_rows, 60);
  EXPECT_EQ(PlanOf(spec, exec, 5).chunk_steps, 1);
  EXPECT_EQ(PlanOf(spec, exec, 5).max_chunk_rows, 10);
  spec.time = 3;
  EXPECT_EQ(PlanOf(spec, exec, 64).chunk_steps, 3);
}

// The rows of a step are the sequences that are longer than the step's time. The reverse
// direction starts with the last time.
TEST(Plan, ChunksSkipStepsPastLengths) {
  Random random{testing::Seed()};
  for (int64_t round = 0; round < testing::Rounds(200); ++round) {
    CallSpec spec = DrawCall(random);
    CountedThreads exec(1);
    std::vector<int32_t> lengths(static_cast<size_t>(spec.batch));
    for (int32_t& length : lengths) {
      length = static_cast<int32_t>(random.Below(spec.time + 1));
    }
    const bool ragged = random.Below(2);
    const int64_t first = random.Below(spec.batch);
    const int64_t end = first + 1 + random.Below(spec.batch - first);
    const int64_t from = random.Below(spec.time);
    const int64_t to = from + 1 + random.Below(spec.time - from);
    for (const int64_t dir : {0, 1}) {
      Chunk chunk;
      chunk.Allocate(exec, to - from, (to - from) * (end - first));
      chunk.Fill(spec, dir, ragged ? lengths.data() : nullptr, first, end, from, to);
      EXPECT_EQ(chunk.first_step, from);
      EXPECT_EQ(chunk.steps, to - from);
      int64_t row = 0;
      for (int64_t s = 0; s < chunk.steps; ++s) {
        EXPECT_EQ(chunk.begin[s], row);
        const int64_t t = dir == 0 ? from + s : spec.time - 1 - (from + s);
        for (int64_t b = first; b < end; ++b) {
          if (ragged && t >= lengths[static_cast<size_t>(b)]) continue;
          EXPECT(row < chunk.rows);
          EXPECT_EQ(chunk.row[row].t, t);
          EXPECT_EQ(chunk.row[row].b, b);
          EXPECT_EQ(chunk.state_row[row], b - first);
          ++row;
        }
      }
      EXPECT_EQ(chunk.begin[chunk.steps], row);
      EXPECT_EQ(chunk.rows, row);
    }
  }
}

TEST(Plan, EveryTaskRunsOnce) {
  for (const int threads : {1, 3, 8}) {
    for (const double operations : {1.0, 1e9}) {
      for (const int64_t count : {1, 2, 7, 30}) {
        CountedThreads exec(threads);
        std::vector<int> ran(static_cast<size_t>(count));
        const auto task = [&](int64_t i) { ++ran[static_cast<size_t>(i)]; };
        ParallelFor(exec, count, operations, task);
        EXPECT_EQ(exec.calls, threads > 1 && operations > 1e6 && count > 1 ? 1 : 0);
        for (const int64_t ranges : {int64_t{1}, count / 2 + 1, count}) {
          ParallelForRanges(exec, ranges, count, operations, task);
        }
        for (const int times : ran) EXPECT_EQ(times, 4);
      }
    }
  }
}

CallSpec DroppingSpec(float dropout) {
  CallSpec spec;
  spec.dropout = dropout;
  spec.seed = 11;
  return spec;
}

TEST(Plan, DropoutIsAFunctionOfTheElement) {
  const CallSpec spec = DroppingSpec(0.5f);
  CallSpec reseeded = spec;
  reseeded.seed = 12;
  const Dropout dropout(spec, 3, 1), same(spec, 3, 1);
  const Dropout others[] = {Dropout(spec, 4, 1), Dropout(spec, 3, 2), Dropout(reseeded, 3, 1)};
  int64_t differ[3] = {};
  for (uint64_t i = 2000; i-- > 0;) {
    EXPECT_EQ(dropout.Factor(i), same.Factor(i));
    for (int other = 0; other < 3; ++other) {
      differ[other] += dropout.Factor(i) != others[other].Factor(i);
    }
  }
  for (const int64_t count : differ) EXPECT(count > 800 && count < 1200);
}

// The fraction of dropped elements is the configured rate. The other elements are scaled up.
TEST(Plan, DropoutKeepsTheMean) {
  for (const float share : {0.1f, 0.5f, 0.9f}) {
    const Dropout dropout(DroppingSpec(share), 0, 1);
    const int64_t count = 20000;
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      const double factor = dropout.Factor(static_cast<uint64_t>(i));
      if (factor != 0) EXPECT_NEAR(factor, 1 / (1 - static_cast<double>(share)), 1e-12);
      sum += factor;
    }
    EXPECT_NEAR(sum / static_cast<double>(count), 1.0, 0.1);
  }
  const Dropout none(DroppingSpec(0), 0, 1), all(DroppingSpec(1), 0, 1);
  for (uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(none.Factor(i), 1.0);
    EXPECT_EQ(all.Factor(i), 0.0);
  }
}

TEST(Plan, SequencesSupportBothLayouts) {
  CallSpec spec;
  spec.time = 3;
  spec.batch = 5;
  std::vector<float> data(3 * 5 * 2);
  float* const first = data.data();
  EXPECT(Sequence<float>::View(first, spec, true, 2).at(1, 4) == first + (1 * 5 + 4) * 2);
  EXPECT(Sequence<float>::View(first, spec, false, 2).at(1, 4) == first + (4 * 3 + 1) * 2);
}

// Rows are read in place if they have the type of computation and no dropout. Otherwise they
// are converted copies.
template <class T>
void CheckInputs(bool drops) {
  using S = Compute<T>;
  CallSpec spec;
  spec.units = 3;
  spec.input_size = 5;
  spec.layers = 2;
  spec.time = 4;
  spec.batch = 2;
  spec.training = true;
  spec.dropout = drops ? 0.5f : 0.0f;
  CountedThreads exec(1);
  Chunk chunk;
  chunk.Allocate(exec, 2, 4);
  chunk.Fill(spec, 0, nullptr, 0, 2, 1, 3);
  LayerInputs<T> inputs;
  inputs.Allocate(exec, spec, 4);
  Random random{testing::Seed()};
  const std::vector<T> stored = Draw<T>(random, spec.time * spec.batch * spec.width());
  const Dropout dropout(spec, 0, 1);
  const S* const* rows =
      inputs.Read(spec, 1, drops ? &dropout : nullptr,
                  Sequence<const T>::View(stored.data(), spec, true, spec.width()), chunk);
  for (int64_t m = 0; m < chunk.rows; ++m) {
    const int64_t begin = (chunk.row[m].t * spec.batch + chunk.row[m].b) * spec.width();
    for (int64_t i = 0; i < spec.width(); ++i) {
      S wanted = Load(stored[static_cast<size_t>(begin + i)]);
      if (drops) wanted *= static_cast<S>(dropout.Factor(static_cast<uint64_t>(begin + i)));
      EXPECT_EQ(rows[m][i], wanted);
    }
    const void* const as_stored = stored.data() + begin;
    EXPECT_EQ(rows[m] == as_stored, (!drops && std::is_same_v<T, S>));
  }
}
TEST(Plan, InputsAreReadInPlaceOrCopied) {
  for (const bool drops : {false, true}) {
    CheckInputs<float>(drops);
    CheckInputs<double>(drops);
    CheckInputs<Half>(drops);
    CheckInputs<BFloat16>(drops);
  }
}

}  // namespace
}  // namespace opwright::rnn
