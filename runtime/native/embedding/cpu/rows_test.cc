// Tests the row loops of every instruction set, with rows that fill no vector and arrays that
// are not aligned. Arrays have no unused elements at their ends, so that a sanitizer finds
// accesses outside of them.
#include "embedding/cpu/rows.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "embedding/testing/elements.h"

namespace opwright::embedding {
namespace {

// Widths close to those of one vector and of several vectors, for all instruction sets.
constexpr int64_t kWidths[] = {1,  2,  3,  4,  5,  7,  8,   9,   12,  15,  16,  17,
                               23, 31, 32, 33, 63, 65, 127, 128, 129, 150, 257, 300};

// An array of floats that begins `offset` floats after an aligned address. It ends at the end
// of its memory block.
class Floats {
 public:
  Floats(int64_t size, int64_t offset)
      : memory_(new float[static_cast<size_t>(size + offset)]()),
        offset_(offset),
        size_(size) {}
  float* get() const { return memory_.get() + offset_; }
  float& operator[](int64_t i) const { return get()[i]; }
  int64_t size() const { return size_; }

 private:
  std::unique_ptr<float[]> memory_;
  int64_t offset_, size_;
};

// Samples with any number of rows.
struct Ids {
  std::vector<int64_t> offsets{0}, rows;
  std::vector<float> weights, scales;
};

Ids DrawIds(Random& random, int64_t samples, int64_t rows) {
  Ids ids;
  // The number of rows varies between calls, because prefetching depends on it.
  const int64_t most = 2 + random.Below(12);
  for (int64_t s = 0; s < samples; ++s) {
    for (int64_t n = random.Below(most); n > 0; --n) {
      ids.rows.push_back(random.Below(rows));
      ids.weights.push_back(static_cast<float>(random.Uniform() + 1));
    }
    ids.offsets.push_back(static_cast<int64_t>(ids.rows.size()));
    ids.scales.push_back(static_cast<float>(random.Uniform() + 1));
  }
  return ids;
}

// Draws samples with one row each.
Ids DrawSingleIds(Random& random, int64_t samples, int64_t rows) {
  Ids ids;
  for (int64_t s = 1; s <= samples; ++s) {
    ids.rows.push_back(random.Below(rows));
    ids.offsets.push_back(s);
  }
  return ids;
}

LookupCall MakeCall(const Ids& ids, const Floats& table, int64_t stride, int64_t dimension,
                    float* out) {
  LookupCall call{};
  call.table = table.get();
  call.stride = stride;
  call.dimension = dimension;
  call.offsets = ids.offsets.data();
  call.indices = ids.rows.data();
  call.end = static_cast<int64_t>(ids.offsets.size()) - 1;
  call.out = out;
  call.out_stride = dimension;
  return call;
}

TEST(Rows, LookupsAtOddWidths) {
  ForEachIsa([] {
    Random random{testing::Seed()};
    for (int64_t round = 0; round < testing::Rounds(1); ++round) {
      for (const int64_t width : kWidths) {
        const int64_t rows = 1 + random.Below(50), samples = 1 + random.Below(20);
        // A stride for rows with a slot behind their weights, or without one.
        const int64_t stride = width * (1 + random.Below(2));
        const Floats table(rows * stride, random.Below(4));
        for (int64_t i = 0; i < table.size(); ++i) {
          table[i] = static_cast<float>(random.Uniform());
        }
        const bool single = random.Below(4) == 0;
        const Ids ids =
            single ? DrawSingleIds(random, samples, rows) : DrawIds(random, samples, rows);
        // Outputs of other features may be between the rows of the output.
        const int64_t out_stride = width + random.Below(4);
        const Floats out(samples * out_stride, random.Below(4));
        std::fill_n(out.get(), out.size(), 9.f);
        LookupCall call = MakeCall(ids, table, stride, width, out.get());
        call.out_stride = out_stride;
        if (single) call.offsets = nullptr;
        const bool weighted = !single && random.Below(2), scaled = !single && random.Below(2);
        call.cache_resident = random.Below(2);
        if (weighted) call.per_sample_weights = ids.weights.data();
        if (scaled) call.scales = ids.scales.data();
        // Two calls look up one part each, as threads do.
        const int64_t cut = random.Below(samples + 1);
        call.end = cut;
        if (cut > 0) SelectRowKernels().lookup(call);
        call.first = cut;
        call.end = samples;
        if (cut < samples) SelectRowKernels().lookup(call);
        for (int64_t s = 0; s < samples; ++s) {
          for (int64_t k = 0; k < width; ++k) {
            double sum = 0;
            for (int64_t i = ids.offsets[s]; i < ids.offsets[s + 1]; ++i) {
              sum += (weighted ? ids.weights[i] : 1.) * table[ids.rows[i] * stride + k];
            }
            if (scaled) sum *= ids.scales[s];
            EXPECT_NEAR(out[s * out_stride + k], sum, 2e-6);
          }
          for (int64_t k = width; k < out_stride; ++k) EXPECT_EQ(out[s * out_stride + k], 9.f);
        }
      }
    }
  });
}

// Streaming stores write the same bits as other stores, for any alignment of the output. They
// write nothing next to the output.
TEST(Rows, StreamingLookupsWriteTheSameBits) {
  ForEachIsa([] {
    Random random{testing::Seed()};
    for (const int64_t width : kWidths) {
      for (const int64_t offset : {0, 1, 4}) {
        const int64_t rows = 50, samples = 20, out_stride = width + offset;
        const Floats table(rows * width, random.Below(4));
        for (int64_t i = 0; i < table.size(); ++i) {
          table[i] = static_cast<float>(random.Uniform());
        }
        const Ids ids = DrawIds(random, samples, rows);
        const Floats out(samples * out_stride, offset), wanted(samples * out_stride, offset);
        std::fill_n(out.get(), out.size(), 9.f);
        std::fill_n(wanted.get(), wanted.size(), 9.f);
        LookupCall call = MakeCall(ids, table, width, width, wanted.get());
        call.out_stride = out_stride;
        SelectRowKernels().lookup(call);
        call.out = out.get();
        call.streaming = true;
        SelectRowKernels().lookup(call);
        for (int64_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], wanted[i]);
      }
    }
  });
}

// A lookup does not write samples before `first` or from `end` on.
TEST(Rows, LookupsStayWithinTheirSamples) {
  ForEachIsa([] {
    const Floats table(4 * 21, 1), out(5 * 21, 1);
    std::fill_n(table.get(), table.size(), 2.f);
    std::fill_n(out.get(), out.size(), 9.f);
    Ids ids;
    ids.offsets = {0, 1, 2, 2, 4, 5};
    ids.rows = {0, 1, 2, 3, 0};
    LookupCall call = MakeCall(ids, table, 21, 21, out.get());
    call.first = 1;
    call.end = 4;
    SelectRowKernels().lookup(call);
    const float expected[] = {9, 2, 0, 4, 9};
    for (int64_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], expected[i / 21]);
  });
}

TEST(Rows, QuantizedLookups) {
  const Quantization quantization{true, -0.75f, 1.25f, 5};
  EXPECT_EQ(quantization.step(), 0.5f);
  ForEachIsa([&] {
    Random random{testing::Seed()};
    for (const int64_t width : kWidths) {
      const Floats table(width, random.Below(4)), out(width, random.Below(4));
      for (int64_t k = 0; k < width; ++k) table[k] = static_cast<float>(4 * random.Uniform());
      Ids ids;
      ids.offsets = {0, 1};
      ids.rows = {0};
      LookupCall call = MakeCall(ids, table, width, width, out.get());
      call.quantization = &quantization;
      SelectRowKernels().lookup(call);
      for (int64_t k = 0; k < width; ++k) {
        const float x = std::min(1.25f, std::max(-0.75f, table[k]));
        EXPECT_EQ(out[k], std::floor((x + 0.75f) / 0.5f + 0.5f) * 0.5f - 0.75f);
      }
    }
  });
}

// Due to rounding, the value of the last bucket may exceed the upper limit. The kernel then
// replaces the value by the limit.
TEST(Rows, QuantizedRowsStayWithinTheLimits) {
  ForEachIsa([] {
    Random random{testing::Seed()};
    for (int64_t round = 0; round < testing::Rounds(300); ++round) {
      Quantization quantization{true, Extreme(random, Range::kFinite),
                                Extreme(random, Range::kFinite), 2 + random.Below(1000)};
      if (!quantization.good()) continue;
      float table[9], out[9];
      for (float& x : table) {
        x = random.Below(2) ? quantization.upper : Extreme(random, Range::kFinite);
      }
      Ids ids;
      ids.offsets = {0, 1};
      ids.rows = {0};
      LookupCall call = MakeCall(ids, Floats(1, 0), 9, 9, out);
      call.table = table;
      call.quantization = &quantization;
      SelectRowKernels().lookup(call);
      for (const float x : out) EXPECT(x >= quantization.lower && x <= quantization.upper);
    }
  });
}

// A table, gradients for its rows, and the expected table after an update.
struct Updates {
  Updates(Random& random, Optimizer rule, int64_t columns)
      : optimizer(rule),
        width(columns),
        parts(1 + TraitsOf(rule).slot_count()),
        columns(TraitsOf(rule).row_wise ? 1 : width),
        floats(width + (parts - 1) * columns),
        separate(random.Below(2)),
        table(kRows * floats, random.Below(4)),
        gradients(kGradients * width, random.Below(4)),
        hyper(SomeHyper(rule)) {
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t part = 0; part < parts; ++part) {
        for (int64_t k = 0; k < (part == 0 ? width : columns); ++k) {
          const double least = part == 0 ? 0 : 1;
          table[At(row, part) + k] = static_cast<float>(random.Uniform() + least);
        }
      }
    }
    for (int64_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = static_cast<float>(random.Uniform());
    }
    model.assign(table.get(), table.get() + table.size());
  }

  // The index of a row's weights (part 0), or of its slot part - 1.
  int64_t At(int64_t row, int64_t part) const {
    const int64_t slot = part == 0 ? 0 : width + (part - 1) * columns;
    if (!separate) return row * floats + slot;
    return part == 0 ? row * width : kRows * width + row * (floats - width) + slot - width;
  }

  TableRows Rows() const {
    TableRows rows;
    rows.weights = table.get();
    rows.stride = separate ? width : floats;
    rows.slots = table.get() + (separate ? kRows * width : width);
    rows.slots_stride = separate ? floats - width : floats;
    rows.dimension = width;
    return rows;
  }

  // Updates a row of the expected table, with one gradient for each column.
  void Apply(int64_t row, const std::vector<double>& gradient) {
    float* of_row[5];
    for (int64_t p = 0; p < parts; ++p) of_row[p] = model.data() + At(row, p);
    UpdateRow(optimizer, hyper, width, gradient.data(), of_row);
  }

  void Check() const {
    for (int64_t i = 0; i < table.size(); ++i) {
      const float expected = model[static_cast<size_t>(i)];
      EXPECT_NEAR(table[i], expected, 1e-5 * (1 + std::abs(expected)));
    }
  }

  static constexpr int64_t kRows = 80, kGradients = 5;
  const Optimizer optimizer;
  // `columns` is the number of columns of a slot, `floats` the number of floats of a row with
  // slots.
  const int64_t width, parts, columns, floats;
  const bool separate;  // Whether weights and slots are in separate arrays.
  const Floats table, gradients;
  Hyper hyper;
  std::vector<float> model;
};

void UpdatesAreRight(bool accumulate) {
  ForEachIsa([accumulate] {
    Random random{testing::Seed()};
    for (const Optimizer optimizer : WithRules()) {
      for (const int64_t width : kWidths) {
        Updates updates(random, optimizer, width);
        // The number of rows is less or more than one block of prefetched rows.
        std::vector<int64_t> rows;
        const int64_t count = 1 + random.Below(Updates::kRows);
        for (int64_t i = 0; i < count; ++i) rows.push_back((i * 7 + 5) % Updates::kRows);
        std::vector<int32_t> offsets = {0};
        std::vector<Contribution> contributions;
        for (const int64_t row : rows) {
          std::vector<double> sum(static_cast<size_t>(width));
          const int64_t gradients = 1 + random.Below(4);
          for (int64_t i = 0; i < gradients; ++i) {
            const Contribution one{
                updates.gradients.get() + random.Below(Updates::kGradients) * width,
                static_cast<float>(random.Uniform() + 1)};
            contributions.push_back(one);
            for (int64_t k = 0; k < width; ++k) {
              const double gradient = static_cast<double>(one.coefficient) * one.gradient[k];
              double& all = sum[static_cast<size_t>(k)];
              all = accumulate ? all + gradient : gradient;
            }
            if (!accumulate || i + 1 == gradients) updates.Apply(row, sum);
          }
          offsets.push_back(static_cast<int32_t>(contributions.size()));
        }
        std::vector<double> work(static_cast<size_t>(width));
        UpdateCall call{};
        call.table = updates.Rows();
        call.count = count;
        call.rows = rows.data();
        call.offsets = offsets.data();
        call.contributions = contributions.data();
        call.accumulate = accumulate;
        call.hyper = &updates.hyper;
        call.sum = work.data();
        SelectRowKernels().update[static_cast<int>(optimizer)](call);
        updates.Check();
      }
    }
  });
}

TEST(Rows, UpdatesOfSums) { UpdatesAreRight(true); }
TEST(Rows, UpdatesOneByOne) { UpdatesAreRight(false); }

// `rest` updates the rows from `first` to `end` whose bit is not set, and no other rows.
TEST(Rows, RestUpdatesRowsWithoutBit) {
  ForEachIsa([] {
    Random random{testing::Seed()};
    for (const Optimizer optimizer : WithRules()) {
      for (const int64_t width : {int64_t{1}, int64_t{5}, int64_t{16}, int64_t{37}}) {
        Updates updates(random, optimizer, width);
        const uint64_t touched = 0b0101000;
        for (const int64_t row : {1, 2, 4}) {
          updates.Apply(row, std::vector<double>(static_cast<size_t>(width)));
        }
        RestCall call{};
        call.table = updates.Rows();
        call.first = 1;
        call.end = 6;
        call.touched = &touched;
        call.hyper = &updates.hyper;
        SelectRowKernels().rest[static_cast<int>(optimizer)](call);
        updates.Check();
      }
    }
  });
}

TEST(Rows, OptimizersWithRulesHaveLoops) {
  ForEachIsa([] {
    for (int i = 0; i < kOptimizers; ++i) {
      EXPECT_EQ(SelectRowKernels().update[i] != nullptr, kOptimizerRegistry[i].has_rule());
      EXPECT_EQ(SelectRowKernels().rest[i] != nullptr, kOptimizerRegistry[i].has_rule());
    }
  });
}

// Rows with numbers of any magnitude stay finite. Gradients, learning rates and hyperparameters
// have any magnitude, too.
TEST(Rows, TablesStayFinite) {
  ForEachIsa([] {
    Random random{testing::Seed()};
    for (int64_t round = 0; round < testing::Rounds(300); ++round) {
      for (const Optimizer optimizer : WithRules()) {
        TableConfig table;
        table.optimizer = optimizer;
        table.dynamic_rate = true;
        const OptimizerTraits& traits = TraitsOf(optimizer);
        for (int h = 0; h < kMaxHyper && traits.hyper[h].name; ++h) {
          table.hyper.values[h] = Extreme(random, traits.hyper[h].range);
        }
        table.hyper.decay = random.Below(2) ? Extreme(random, Range::kFraction) : 0.f;
        table.decay_times_rate = random.Below(2);
        EXPECT_OK(CheckNumbers(table, "a table"));
        const Hyper hyper = HyperAt(table, Extreme(random, Range::kFinite));
        if (!WrongRate(optimizer, hyper).empty()) continue;
        const int64_t width = 1 + random.Below(40), parts = 1 + table.slots();
        const Floats row(parts * width, 0), gradients(2 * width, 0);
        for (int64_t k = 0; k < row.size(); ++k) {
          row[k] = Extreme(random, traits.range(k / width - 1));
        }
        for (int64_t k = 0; k < gradients.size(); ++k) {
          gradients[k] = Extreme(random, Range::kFinite);
        }
        const float coefficient = Extreme(random, Range::kFinite);
        const Contribution all[] = {{gradients.get(), coefficient},
                                    {gradients.get() + width, -coefficient}};
        std::vector<double> sum(static_cast<size_t>(width));
        const int64_t rows[] = {0};
        const int32_t offsets[] = {0, 1 + static_cast<int32_t>(random.Below(2))};
        const RowKernels& kernels = SelectRowKernels();
        UpdateCall call{};
        call.table = {row.get(), parts * width, row.get() + width, parts * width, width};
        call.count = 1;
        call.rows = rows;
        call.offsets = offsets;
        call.contributions = all;
        call.hyper = &hyper;
        call.sum = sum.data();
        for (int step = 0; step < 3; ++step) {
          call.accumulate = random.Below(2) == 0;
          kernels.update[static_cast<int>(optimizer)](call);
          for (int64_t part = 0; part < parts; ++part) {
            EXPECT(
                kernels.within(traits.range(part - 1), 1, 0, width, row.get() + part * width));
          }
        }
      }
    }
  });
}

// `within` checks every row and column, and no values between the rows.
TEST(Rows, WithinFindsEveryValueOutsideOfARange) {
  ForEachIsa([] {
    const struct {
      Range range;
      float good, bad;
    } cases[] = {{Range::kFinite, -1, NAN},
                 {Range::kFinite, 1, HUGE_VALF},
                 {Range::kNotNegative, 1, -1},
                 {Range::kClear, FloatOf(kClearBits), 1}};
    const RowKernels& kernels = SelectRowKernels();
    for (const auto& [range, good, bad] : cases) {
      for (const int64_t width : {1, 7, 16, 33}) {
        const int64_t stride = width + 3;
        const Floats values(2 * stride + width, 1);
        for (int64_t i = 0; i < values.size(); ++i) {
          values[i] = i % stride < width ? good : bad;
        }
        EXPECT(kernels.within(range, 3, stride, width, values.get()));
        for (int64_t i = 0; i < values.size(); ++i) {
          if (i % stride >= width) continue;
          values[i] = bad;
          EXPECT(!kernels.within(range, 3, stride, width, values.get()));
          values[i] = good;
        }
      }
    }
  });
}

TEST(Rows, TheFirstValueOutsideIsFound) {
  Pool pool(3);
  PoolContext exec(pool);
  constexpr int64_t kCount = 200003;
  std::vector<float> values(kCount, 1.f);
  EXPECT(!FindOutside(exec, Range::kClear, 0, values.data()));
  EXPECT(!FindOutside(exec, Range::kFinite, kCount, values.data()));
  values[kCount - 1] = NAN;
  for (const int64_t at : {kCount - 1, int64_t{131072}, int64_t{131071}, int64_t{0}}) {
    values[static_cast<size_t>(at)] = HUGE_VALF;
    const auto found = FindOutside(exec, Range::kFinite, kCount, values.data());
    EXPECT(found.has_value());
    EXPECT_EQ(found->at, at);
    EXPECT_EQ(found->value, HUGE_VALF);
  }
  FillWithBits(kClearBits, kCount, values.data());
  EXPECT(!FindOutside(exec, Range::kClear, kCount, values.data()));
  EXPECT_EQ(BitsOf(values[kCount - 1]), kClearBits);
}

}  // namespace
}  // namespace opwright::embedding
