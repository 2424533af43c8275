// Tests rows of narrow dtypes in the loops of every instruction set, against references in
// float64 that are written anew here.
#include "embedding/cpu/narrow.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "embedding/cpu/rows.h"
#include "embedding/testing/elements.h"

namespace opwright::embedding {
namespace {

constexpr RowDtype kNarrowDtypes[] = {RowDtype::kFloat16, RowDtype::kBfloat16, RowDtype::kInt8};
constexpr int64_t kRowWidths[] = {1,  2,  3,  4,  5,  7,  8,   9,   12,  15,  16,  17,
                                  23, 31, 32, 33, 63, 65, 127, 128, 129, 150, 257, 300};

// The value of the bits of a 16-bit float.
double ValueOf(RowDtype dtype, uint32_t bits) {
  const int fraction = dtype == RowDtype::kFloat16 ? 10 : 7;
  const int bias = dtype == RowDtype::kFloat16 ? 15 : 127;
  const int exponent = static_cast<int>(bits & 0x7fffu) >> fraction;
  const int rest = static_cast<int>(bits & ((1u << fraction) - 1));
  const int whole = exponent == 0 ? rest : rest + (1 << fraction);
  const double size = std::ldexp(whole, std::max(exponent, 1) - bias - fraction);
  return bits & 0x8000u ? -size : size;
}

template <class T>
T ReadAt(const float* row, int64_t byte) {
  T value;
  std::memcpy(&value, reinterpret_cast<const char*>(row) + byte, sizeof value);
  return value;
}

// The number that a column of a row has.
double WeightOf(RowDtype dtype, const float* row, int64_t k) {
  if (dtype != RowDtype::kInt8) return ValueOf(dtype, ReadAt<uint16_t>(row, 2 * k));
  return ReadAt<uint8_t>(row, 8 + k) * double{ReadAt<float>(row, 0)} + ReadAt<float>(row, 4);
}

// A row in the same memory as that of tables: it ends with the last of its words.
std::vector<float> Narrowed(RowDtype dtype, const std::vector<float>& weights) {
  const auto width = static_cast<int64_t>(weights.size());
  std::vector<float> row(static_cast<size_t>(RowWords(dtype, width)));
  NarrowWith(dtype, width, weights.data(), row.data(), ToNearest());
  return row;
}

std::vector<float> DrawWeights(Random& random, int64_t width) {
  std::vector<float> weights(static_cast<size_t>(width));
  for (float& one : weights) one = static_cast<float>(random.Uniform());
  return weights;
}

// Floats of all magnitudes, and numbers halfway between two numbers of 16 bits.
float DrawHostile(Random& random, RowDtype dtype) {
  const float x = Extreme(random, Range::kFinite);
  if (random.Below(2)) return x;
  const auto bits =
      static_cast<uint32_t>(random.Below(dtype == RowDtype::kFloat16 ? 31743 : 32639));
  const double half = (ValueOf(dtype, bits) + ValueOf(dtype, bits + 1)) / 2;
  return static_cast<float>(random.Below(2) ? half : -half);
}

// The numbers of the dtype next to |x|, as bits, and the place of |x| between them.
struct Neighbors {
  uint32_t below;
  double place;
};
Neighbors NeighborsOf(RowDtype dtype, double size) {
  uint32_t low = 0, high = dtype == RowDtype::kFloat16 ? 0x7bffu : 0x7f7fu;
  if (size >= ValueOf(dtype, high)) return {high, 0};
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (ValueOf(dtype, middle) <= size ? low : high) = middle;
  }
  const double below = ValueOf(dtype, low);
  return {low, (size - below) / (ValueOf(dtype, high) - below)};
}

TEST(Narrow, FloatsOf16BitsAreRoundedToNearestEven) {
  Random random{testing::Seed()};
  for (const RowDtype dtype : {RowDtype::kFloat16, RowDtype::kBfloat16}) {
    for (int64_t round = 0; round < testing::Rounds(20000); ++round) {
      const float x = DrawHostile(random, dtype);
      const auto [below, place] = NeighborsOf(dtype, std::abs(double{x}));
      const uint32_t up = place > 0.5 || (place == 0.5 && below % 2 == 1);
      const uint32_t expected = (below + up) | (std::signbit(x) ? 0x8000u : 0);
      EXPECT_EQ(ReadAt<uint16_t>(Narrowed(dtype, {x}).data(), 0), expected);
    }
  }
}

TEST(Narrow, NumbersThatAreTooLargeBecomeTheLargest) {
  const double largest[] = {65504, 3.3895313892515355e38, 8.507059173023462e37};
  for (int i = 0; i < 3; ++i) {
    for (const float x : {HUGE_VALF, FLT_MAX, 1e38f}) {
      const bool fits = i == 1 && x == 1e38f;
      for (const float sign : {1.f, -1.f}) {
        const std::vector<float> row = Narrowed(kNarrowDtypes[i], {sign * x});
        const double expected = sign * (fits ? 1e38 : largest[i]);
        EXPECT_NEAR(WeightOf(kNarrowDtypes[i], row.data(), 0), expected,
                    4e-3 * largest[i] * fits);
      }
    }
  }
  // No op loads a NaN. If one came, it would become a finite number.
  for (const RowDtype dtype : kNarrowDtypes) {
    EXPECT(std::isfinite(WeightOf(dtype, Narrowed(dtype, {NAN, 1.f}).data(), 0)));
  }
}

TEST(Narrow, CodesAreRoundedToNearest) {
  Random random{testing::Seed()};
  for (int64_t round = 0; round < testing::Rounds(200); ++round) {
    for (const int64_t width : kRowWidths) {
      std::vector<float> weights = DrawWeights(random, width);
      const auto offset = static_cast<float>(100 * random.Uniform());
      for (float& one : weights) one += offset;
      const std::vector<float> row = Narrowed(RowDtype::kInt8, weights);
      const auto [low, high] = std::minmax_element(weights.begin(), weights.end());
      EXPECT_EQ(ReadAt<float>(row.data(), 4), *low);
      EXPECT_EQ(ReadAt<float>(row.data(), 0), (*high - *low) / 255);
      const double scale = ReadAt<float>(row.data(), 0);
      for (int64_t k = 0; k < width; ++k) {
        const double weight = weights[static_cast<size_t>(k)];
        EXPECT_NEAR(WeightOf(RowDtype::kInt8, row.data(), k), weight, 0.5001 * scale);
      }
    }
  }
}

// Weights in the middle of two codes, with a scale that has no exact reciprocal.
TEST(Narrow, TiesOfCodesAreRoundedToEven) {
  for (float scale = 1; scale <= 99; ++scale) {
    std::vector<float> weights = {0, 255 * scale};
    for (float code = 0.5f; code < 255; ++code) weights.push_back(code * scale);
    const std::vector<float> row = Narrowed(RowDtype::kInt8, weights);
    for (size_t k = 2; k < weights.size(); ++k) {
      const float code = std::nearbyint(static_cast<float>(k) - 1.5f);
      EXPECT_EQ(WeightOf(RowDtype::kInt8, row.data(), static_cast<int64_t>(k)), code * scale);
    }
  }
}

// Without a range, with the largest and with the smallest one.
TEST(Narrow, CodesOfExtremeRows) {
  const std::vector<float> rows[] = {{3, 3, 3},
                                     {0, -0.f, 0},
                                     {-1e-42f, 1e-42f},
                                     {0, FLT_MIN, -1},
                                     {FLT_MAX, -FLT_MAX},
                                     {1e30f, 1e30f + 1e23f},
                                     {FLT_MIN, 2 * FLT_MIN, 300 * FLT_MIN}};
  for (const std::vector<float>& weights : rows) {
    const std::vector<float> row = Narrowed(RowDtype::kInt8, weights);
    const double scale = ReadAt<float>(row.data(), 0);
    EXPECT(scale == 0 || scale >= double{FLT_MIN});
    for (size_t k = 0; k < weights.size(); ++k) {
      const double wanted = std::clamp(double{weights[k]}, -0x1p126, 0x1p126);
      const double found = WeightOf(RowDtype::kInt8, row.data(), static_cast<int64_t>(k));
      EXPECT_NEAR(found, wanted, 0.5001 * scale + 2e-38);
      ForEachIsa([&] {
        float wide[9];
        SelectRowKernels().widen(RowDtype::kInt8, row.data(), static_cast<int64_t>(k), 1, wide);
        EXPECT(std::isfinite(wide[0]));
        const double size = std::abs(found) + std::abs(ReadAt<float>(row.data(), 4));
        EXPECT_NEAR(wide[0], found, 1e-6 * size + 1e-37);
      });
    }
  }
}

// Every number of 16 bits, in vectors and alone.
TEST(Narrow, FloatsOf16BitsAreWidenedExactly) {
  ForEachIsa([] {
    for (const RowDtype dtype : {RowDtype::kFloat16, RowDtype::kBfloat16}) {
      const uint32_t end = dtype == RowDtype::kFloat16 ? 0x7c00u : 0x7f80u;
      for (uint32_t first = 0; first < end; first += 31) {
        uint16_t bits[32] = {};
        float row[16], wide[31];
        for (uint32_t k = 0; k < 31; ++k) {
          const uint32_t size = std::min(first + k, end - 1);
          bits[k] = static_cast<uint16_t>(size | (k % 2 ? 0x8000u : 0));
        }
        std::memcpy(row, bits, sizeof row);
        SelectRowKernels().widen(dtype, row, 0, 31, wide);
        for (int k = 0; k < 31; ++k) EXPECT_EQ(double{wide[k]}, ValueOf(dtype, bits[k]));
      }
    }
  });
}

// The memory of a table ends with its last row, so that a sanitizer finds accesses after it.
TEST(Narrow, LookupsAtOddWidths) {
  const Quantization quantization{true, -0.25f, 0.5f, 9};
  ForEachIsa([&] {
    Random random{testing::Seed()};
    for (const RowDtype dtype : kNarrowDtypes) {
      for (const int64_t width : kRowWidths) {
        const int64_t rows = 1 + random.Below(50), samples = 1 + random.Below(20);
        const int64_t words = RowWords(dtype, width), stride = words + random.Below(3);
        const int64_t begin = random.Below(4);
        std::vector<float> table(static_cast<size_t>(begin + (rows - 1) * stride + words));
        const float* const base = table.data() + begin;
        for (int64_t row = 0; row < rows; ++row) {
          NarrowWith(dtype, width, DrawWeights(random, width).data(),
                     table.data() + begin + row * stride, ToNearest());
        }
        const bool single = random.Below(4) == 0, quantized = random.Below(4) == 0;
        const bool weighted = !single && random.Below(2), scaled = !single && random.Below(2);
        std::vector<int64_t> offsets{0}, ids;
        std::vector<float> weights, scales;
        for (int64_t s = 0; s < samples; ++s) {
          for (int64_t n = single ? 1 : random.Below(40); n > 0; --n) {
            ids.push_back(random.Below(rows));
            weights.push_back(static_cast<float>(random.Uniform() + 1));
          }
          offsets.push_back(static_cast<int64_t>(ids.size()));
          scales.push_back(static_cast<float>(random.Uniform() + 1));
        }
        const int64_t out_stride = width + random.Below(4);
        std::vector<float> out(static_cast<size_t>(samples * out_stride), 9.f);
        LookupCall call{};
        call.table = base;
        call.stride = stride;
        call.dimension = width;
        call.dtype = dtype;
        call.cache_resident = random.Below(2);
        call.quantization = quantized ? &quantization : nullptr;
        call.offsets = single ? nullptr : offsets.data();
        call.indices = ids.data();
        call.per_sample_weights = weighted ? weights.data() : nullptr;
        call.scales = scaled ? scales.data() : nullptr;
        call.out = out.data();
        call.out_stride = out_stride;
        call.streaming = random.Below(2);
        const int64_t cut = random.Below(samples + 1);
        call.end = cut;
        if (cut > 0) SelectRowKernels().lookup(call);
        call.first = cut;
        call.end = samples;
        if (cut < samples) SelectRowKernels().lookup(call);
        for (int64_t s = 0; s < samples; ++s) {
          for (int64_t k = 0; k < out_stride; ++k) {
            const double found = out[static_cast<size_t>(s * out_stride + k)];
            double sum = 0, size = 0;
            for (int64_t i = offsets[s]; k < width && i < offsets[s + 1]; ++i) {
              double one = WeightOf(dtype, base + ids[i] * stride, k);
              if (quantized) {
                // Which bucket it is may depend on the last bit.
                const double bucket = (std::clamp(one, -0.25, 0.5) + 0.25) / 0.09375 + 0.5;
                if (std::abs(bucket - std::round(bucket)) < 1e-5) one = NAN;
                one = std::floor(bucket) * 0.09375 - 0.25 + 0 * one;
              }
              sum += (weighted ? weights[i] : 1.) * one;
              size += std::abs(one);
            }
            if (scaled) sum *= scales[s];
            if (k >= width) sum = 9;
            if (!std::isnan(sum)) EXPECT_NEAR(found, sum, 1e-6 * (1 + size));
          }
        }
      }
    }
  });
}

// The documented random number of a row's column, in [0, 1).
double DocumentedNumber(uint64_t table, uint64_t update, uint64_t row, uint32_t column) {
  const auto mix = [](uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  };
  const auto finish = [](uint32_t h) {
    h ^= h >> 16;
    h *= 0x85EBCA6Bu;
    h ^= h >> 13;
    h *= 0xC2B2AE35u;
    return h ^ (h >> 16);
  };
  const uint64_t key = mix(mix(mix(table) + update) + row);
  const auto low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
  return std::ldexp(finish(finish(low + column) ^ high), -32);
}

// docs/how-to/embedding_narrow.md has this number too.
TEST(Narrow, RandomNumbersAreThoseOfTheDocumentation) {
  const Rounding rounding{KeyOf(2, 9), 12345678900, 1};
  EXPECT_EQ(RandomBits(KeyOfRow(rounding, 1), 77), 3794425108u);
  EXPECT_EQ(DocumentedNumber(2, 9, 12345678901, 77), std::ldexp(3794425108u, -32));
}

// Checks that `row` is what `weights` become by the documented rule.
void CheckRounded(RowDtype dtype, const std::vector<float>& weights, const float* row,
                  uint64_t table, uint64_t update, uint64_t number) {
  const auto width = static_cast<int64_t>(weights.size());
  const auto [low, high] = std::minmax_element(weights.begin(), weights.end());
  const float scale = *high > *low ? std::max((*high - *low) / 255, FLT_MIN) : 0;
  if (dtype == RowDtype::kInt8) {
    EXPECT_EQ(ReadAt<float>(row, 0), scale);
    EXPECT_EQ(ReadAt<float>(row, 4), *low);
  }
  for (int64_t k = 0; k < width; ++k) {
    const float weight = weights[static_cast<size_t>(k)];
    const double u = DocumentedNumber(table, update, number, static_cast<uint32_t>(k));
    if (dtype == RowDtype::kInt8) {
      const double place = scale > 0 ? (double{weight} - *low) / scale : 0;
      const double code = std::min(255., std::floor(place + u));
      const bool tie = std::abs(place + u - std::round(place + u)) < 1e-9;
      if (!tie) EXPECT_EQ(ReadAt<uint8_t>(row, 8 + k), code);
    } else {
      const auto [below, place] = NeighborsOf(dtype, std::abs(double{weight}));
      const uint32_t expected = below + (place + u >= 1) + (std::signbit(weight) ? 0x8000u : 0);
      EXPECT_EQ(ReadAt<uint16_t>(row, 2 * k), expected);
    }
  }
}

// Updates narrow rows, and the same rows in float32. The rounded results must be the same.
void UpdatesAreRounded(RowDtype dtype, Optimizer optimizer, int64_t width, Random& random) {
  const OptimizerTraits& traits = TraitsOf(optimizer);
  const int64_t rows = 40, words = RowWords(dtype, width);
  const int64_t slot_floats = traits.slot_count() * (traits.row_wise ? 1 : width);
  const bool separate = random.Below(2);
  const int64_t stride = separate ? words : words + slot_floats;
  std::vector<float> narrow(static_cast<size_t>(rows * (words + slot_floats)), 1.f);
  std::vector<float> wide(static_cast<size_t>(rows * width));
  std::vector<float> slots(static_cast<size_t>(rows * slot_floats), 1.f);
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<float> weights = DrawWeights(random, width);
    if (random.Below(8) == 0) std::fill(weights.begin(), weights.end(), 0.5f);
    for (float& one : weights) one = random.Below(9) ? one : one * 1e-5f;
    float* const at = narrow.data() + row * stride;
    NarrowWith(dtype, width, weights.data(), at, ToNearest());
    SelectRowKernels().widen(dtype, at, 0, width, wide.data() + row * width);
  }
  std::vector<int64_t> ids;
  std::vector<int32_t> offsets{0};
  std::vector<Contribution> contributions;
  const std::vector<float> gradients = DrawWeights(random, 8 * width);
  for (int64_t row = 3; row < rows; row += 1 + random.Below(3)) {
    ids.push_back(row);
    for (int64_t i = 0; i <= random.Below(3); ++i) {
      const auto coefficient = static_cast<float>(random.Uniform());
      contributions.push_back({gradients.data() + random.Below(8) * width, coefficient});
    }
    offsets.push_back(static_cast<int32_t>(contributions.size()));
  }
  const Hyper hyper = SomeHyper(optimizer);
  std::vector<double> sum(static_cast<size_t>(width));
  std::vector<float> scratch(static_cast<size_t>(width));
  const int64_t number_of_table = random.Below(9), update = random.Below(1000);
  UpdateCall call{};
  call.table = {narrow.data(),
                stride,
                narrow.data() + (separate ? rows * words : words),
                separate ? slot_floats : stride,
                width,
                dtype};
  call.count = static_cast<int64_t>(ids.size());
  call.rows = ids.data();
  call.offsets = offsets.data();
  call.contributions = contributions.data();
  call.accumulate = random.Below(2);
  call.hyper = &hyper;
  call.sum = sum.data();
  call.rounding = {KeyOf(number_of_table, update), 5, 3};
  call.wide = scratch.data();
  const std::vector<float> before = narrow;
  SelectRowKernels().update[static_cast<int>(optimizer)](call);
  UpdateCall same = call;
  same.table = {wide.data(), width, slots.data(), slot_floats, width};
  SelectRowKernels().update[static_cast<int>(optimizer)](same);
  for (int64_t row = 0; row < rows; ++row) {
    const float* const at = narrow.data() + row * stride;
    const bool updated = std::find(ids.begin(), ids.end(), row) != ids.end();
    if (!updated) {
      EXPECT(!std::memcmp(at, before.data() + row * stride, static_cast<size_t>(words) * 4));
      continue;
    }
    const std::vector<float> weights(wide.begin() + row * width,
                                     wide.begin() + (row + 1) * width);
    CheckRounded(dtype, weights, at, static_cast<uint64_t>(number_of_table),
                 static_cast<uint64_t>(update), static_cast<uint64_t>(5 + 3 * row));
    for (int64_t i = 0; i < slot_floats; ++i) {
      EXPECT_EQ(call.table.slots[row * call.table.slots_stride + i],
                slots[static_cast<size_t>(row * slot_floats + i)]);
    }
  }
}

TEST(Narrow, UpdatesAreThoseOfFloat32Rounded) {
  ForEachIsa([] {
    Random random{testing::Seed()};
    for (const RowDtype dtype : kNarrowDtypes) {
      for (const Optimizer optimizer : WithRules()) {
        for (const int64_t width : {1, 2, 5, 16, 31, 64, 150}) {
          UpdatesAreRounded(dtype, optimizer, width, random);
        }
      }
    }
  });
}

// With SGD and a gradient that is far smaller than the distance of two numbers, rows move as
// far as in float32, on average. Rounding to nearest would not move them.
TEST(Narrow, RoundingHasNoBias) {
  ForEachIsa([] {
    for (const RowDtype dtype : kNarrowDtypes) {
      constexpr int64_t kRows = 4000, kWidth = 4, kUpdates = 25;
      const int64_t words = RowWords(dtype, kWidth);
      std::vector<float> table(static_cast<size_t>(kRows * words));
      // The first and the last column keep the range of a row.
      const std::vector<float> weights = {0.f, 0.3f, 0.7f, 1.f};
      std::vector<int64_t> ids;
      std::vector<int32_t> offsets{0};
      const float gradient[] = {0, 1e-4f, -1e-4f, 0};
      std::vector<Contribution> contributions(kRows, Contribution{gradient, 1});
      for (int64_t row = 0; row < kRows; ++row) {
        NarrowWith(dtype, kWidth, weights.data(), table.data() + row * words, ToNearest());
        ids.push_back(row);
        offsets.push_back(static_cast<int32_t>(row + 1));
      }
      const double start[] = {WeightOf(dtype, table.data(), 1),
                              WeightOf(dtype, table.data(), 2)};
      Hyper hyper;
      hyper.learning_rate = 1;
      std::vector<double> sum(kWidth);
      std::vector<float> wide(kWidth);
      for (int64_t update = 0; update < kUpdates; ++update) {
        UpdateCall call{};
        call.table = {table.data(), words, nullptr, 0, kWidth, dtype};
        call.count = kRows;
        call.rows = ids.data();
        call.offsets = offsets.data();
        call.contributions = contributions.data();
        call.accumulate = true;
        call.hyper = &hyper;
        call.sum = sum.data();
        call.rounding = {KeyOf(0, update), 0, 1};
        call.wide = wide.data();
        SelectRowKernels().update[static_cast<int>(Optimizer::kSgd)](call);
      }
      for (int column = 1; column <= 2; ++column) {
        double mean = 0, squares = 0;
        for (int64_t row = 0; row < kRows; ++row) {
          const double moved =
              WeightOf(dtype, table.data() + row * words, column) - start[column - 1];
          mean += moved / kRows;
          squares += moved * moved / kRows;
        }
        const double error = std::sqrt((squares - mean * mean) / kRows);
        const double expected = (column == 1 ? -1 : 1) * 1e-4 * kUpdates;
        EXPECT_NEAR(mean, expected, 5 * error + 1e-6);
        EXPECT(error < 1e-4);
      }
    }
  });
}

}  // namespace
}  // namespace opwright::embedding
