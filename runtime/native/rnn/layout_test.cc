#include "rnn/layout.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "base/testing/pool.h"
#include "base/testing/testing.h"

namespace opwright::rnn {
namespace {

StackSpec DrawStack(Random& random) {
  StackSpec stack;
  stack.cell = static_cast<Cell>(random.Below(4));
  stack.bidirectional = random.Below(2);
  stack.layers = 1 + random.Below(3);
  stack.units = 1 + random.Below(6);
  stack.skip_input = random.Below(3) == 0;
  stack.input_size = stack.skip_input ? stack.units : 1 + random.Below(6);
  if (stack.cell == Cell::kLstm && random.Below(2)) {
    stack.projection = 1 + random.Below(stack.units);
  }
  return stack;
}

// The weights of all layers and directions come first, then all biases, without gaps. The
// canonical matrices of a layer's weights are the gates' parts of these weights, in order.
TEST(Layout, CanonicalParamsCoverTheVectorInOrder) {
  Random random{testing::Seed()};
  for (int64_t round = 0; round < testing::Rounds(200); ++round) {
    const StackSpec stack = DrawStack(random);
    std::vector<CanonicalParam> all = CanonicalWeights(stack);
    EXPECT_EQ(static_cast<int64_t>(all.size()),
              stack.layers * stack.dirs() * WeightsPerLayer(stack));
    const std::vector<CanonicalParam> biases = CanonicalBiases(stack);
    EXPECT_EQ(static_cast<int64_t>(biases.size()),
              stack.layers * stack.dirs() * 2 * stack.gates());
    for (const CanonicalParam& bias : biases) {
      EXPECT_EQ(bias.columns, -1);
      EXPECT_EQ(bias.size(), stack.units);
    }
    all.insert(all.end(), biases.begin(), biases.end());
    int64_t at = 0;
    for (const CanonicalParam& param : all) {
      EXPECT_EQ(param.at, at);
      at += param.size();
    }
    EXPECT_EQ(at, ParamsSize(stack));
  }
}

TEST(Layout, ParamsOfAnLstmWithProjection) {
  StackSpec stack;
  stack.units = 3;
  stack.projection = 2;
  stack.input_size = 5;
  stack.bidirectional = true;
  stack.layers = 2;
  const std::vector<LayerParams> layout = ParamsLayout(stack);
  EXPECT_EQ(layout.size(), 4u);
  // Each direction of the first layer has weights [4 * 3, 5], [4 * 3, 2] and [2, 3].
  EXPECT_EQ(layout[0].input_weights, 0);
  EXPECT_EQ(layout[0].recurrent_weights, 60);
  EXPECT_EQ(layout[0].projection, 84);
  EXPECT_EQ(layout[1].input_weights, 90);
  // The second layer reads the outputs of both directions, so its input weights are [12, 4].
  EXPECT_EQ(layout[2].input_weights, 180);
  EXPECT_EQ(layout[2].recurrent_weights, 228);
  EXPECT_EQ(layout[3].input_weights, 258);
  EXPECT_EQ(layout[0].input_bias, 336);
  EXPECT_EQ(layout[0].recurrent_bias, 348);
  EXPECT_EQ(layout[3].recurrent_bias, 420);
  EXPECT_EQ(ParamsSize(stack), 432);
}

TEST(Layout, SkippedInputHasNoWeights) {
  StackSpec stack;
  stack.cell = Cell::kGru;
  stack.units = stack.input_size = 4;
  stack.layers = 2;
  stack.skip_input = true;
  const std::vector<CanonicalParam> weights = CanonicalWeights(stack);
  EXPECT_EQ(weights[0].size(), 0);
  EXPECT_EQ(weights[0].rows, 4);
  EXPECT_EQ(weights[3].at, 0);
  EXPECT_EQ(weights[6].size(), 16);
  EXPECT_EQ(ParamsLayout(stack)[0].recurrent_weights, 0);
}

CallSpec TrainingSpec(Cell cell) {
  CallSpec spec;
  spec.cell = cell;
  spec.units = 3;
  spec.input_size = 2;
  spec.layers = 2;
  spec.bidirectional = true;
  spec.time = 5;
  spec.batch = 7;
  spec.training = true;
  return spec;
}

TEST(Layout, ReserveArraysFollowEachOther) {
  const int64_t header = ReserveLayout::kHeaderElements, steps = 5 * 7;
  const ReserveLayout lstm(TrainingSpec(Cell::kLstm));
  EXPECT_EQ(lstm.saved_gates, 4);
  EXPECT_EQ(lstm.gates, header);
  EXPECT_EQ(lstm.cells, lstm.gates + 4 * steps * 4 * 3);
  EXPECT_EQ(lstm.hidden, lstm.cells + 4 * steps * 3);
  EXPECT_EQ(lstm.size, lstm.hidden + steps * 6);
  const ReserveLayout gru(TrainingSpec(Cell::kGru));
  EXPECT_EQ(gru.hidden, header + 4 * steps * 4 * 3);
  EXPECT_EQ(gru.size, gru.hidden + steps * 6);
  const ReserveLayout tanh(TrainingSpec(Cell::kTanh));
  EXPECT_EQ(tanh.saved_gates, 0);
  EXPECT_EQ(tanh.hidden, header);
  EXPECT_EQ(tanh.size, header + steps * 6);
}

template <class T>
void CheckHeader() {
  for (const uint64_t nonce : {uint64_t{0}, uint64_t{7}, ~uint64_t{0}}) {
    CallSpec spec;
    spec.units = spec.input_size = spec.layers = spec.time = spec.batch = 2;
    spec.training = true;
    std::vector<T> header(ReserveLayout::kHeaderElements);
    WriteHeader(spec, nonce, header.data());
    EXPECT(ReadHeader(spec, header.data()) == nonce);
    for (const T& element : header) EXPECT(std::isfinite(Load(element)));
    CallSpec other = spec;
    other.seed = 1;
    EXPECT(!ReadHeader(other, header.data()));
    for (T& element : header) {
      const T before = element;
      for (const float bad : {std::nanf(""), HUGE_VALF, 256.0f, -1.0f}) {
        Store(static_cast<Compute<T>>(bad), &element);
        EXPECT(!ReadHeader(spec, header.data()));
      }
      element = before;
    }
  }
}
TEST(Layout, HeaderOfFloatIdentifiesItsCall) { CheckHeader<float>(); }
TEST(Layout, HeaderOfDoubleIdentifiesItsCall) { CheckHeader<double>(); }
TEST(Layout, HeaderOfHalfIdentifiesItsCall) { CheckHeader<Half>(); }
TEST(Layout, HeaderOfBFloat16IdentifiesItsCall) { CheckHeader<BFloat16>(); }

TEST(Layout, FingerprintDependsOnEveryField) {
  const std::function<void(CallSpec&)> changes[] = {
      [](CallSpec&) {},
      [](CallSpec& spec) { spec.cell = Cell::kGru; },
      [](CallSpec& spec) { spec.skip_input = true; },
      [](CallSpec& spec) { spec.bidirectional = false; },
      [](CallSpec& spec) { ++spec.layers; },
      [](CallSpec& spec) { ++spec.units; },
      [](CallSpec& spec) { ++spec.input_size; },
      [](CallSpec& spec) { ++spec.projection; },
      [](CallSpec& spec) { ++spec.time; },
      [](CallSpec& spec) { ++spec.batch; },
      [](CallSpec& spec) { spec.time_major = false; },
      [](CallSpec& spec) { spec.dropout = 0.25f; },
      [](CallSpec& spec) { ++spec.seed; },
  };
  std::set<uint64_t> fingerprints;
  for (const auto& change : changes) {
    CallSpec spec = TrainingSpec(Cell::kLstm);
    change(spec);
    EXPECT(fingerprints.insert(Fingerprint(spec, 4)).second);
    EXPECT(fingerprints.insert(Fingerprint(spec, 2)).second);
  }
}

}  // namespace
}  // namespace opwright::rnn
