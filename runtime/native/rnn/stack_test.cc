// Tests of complete stacks, forward and backward, for every cell, type and instruction set.
// Several callers use one thread pool at the same time. Arrays end where their memory ends, so
// that a sanitizer reports an access outside.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "rnn/layout.h"
#include "rnn/rnn.h"
#include "rnn/testing/kernel_sets.h"
#include "rnn/weight_cache.h"

namespace opwright::rnn {
namespace {

// The inputs of a call, and the gradients of its outputs.
template <class T>
struct Given {
  std::vector<T> x, h, c, params, dy, dhn, dcn;
  std::vector<int32_t> lengths;
  bool ragged;

  Given(const CallSpec& spec, uint64_t seed) : ragged(seed % 2 == 0) {
    Random random{seed};
    const int64_t states = spec.layers * spec.dirs() * spec.batch;
    const int64_t cells = spec.cell == Cell::kLstm ? states * spec.units : 0;
    const int64_t steps = spec.time * spec.batch;
    x = Draw<T>(random, steps * spec.input_size);
    h = Draw<T>(random, states * spec.hidden());
    c = Draw<T>(random, cells);
    // The scale is so small that no activation grows from step to step.
    const double scale = 2 / std::sqrt(static_cast<double>(spec.units + spec.input_size));
    params = Draw<T>(random, ParamsSize(spec), scale);
    lengths.resize(static_cast<size_t>(spec.batch));
    for (int32_t& length : lengths) {
      length = static_cast<int32_t>(random.Below(spec.time + 1));
    }
    dy = Draw<T>(random, steps * spec.width());
    dhn = Draw<T>(random, states * spec.hidden());
    dcn = Draw<T>(random, cells);
  }
};

template <class T>
struct Outputs {
  std::vector<T> y, hn, cn, reserve;
};
template <class T>
struct Gradients {
  std::vector<T> dx, dh, dc, dparams;
};

template <class T>
Outputs<T> RunForward(const CallSpec& spec, const Given<T>& given, uint64_t nonce, Pool& pool,
                      WeightCache* cache = nullptr, const KerasWeights<T>* keras = nullptr) {
  Outputs<T> made;
  made.y.resize(given.dy.size());
  made.hn.resize(given.h.size());
  made.cn.resize(given.c.size());
  if (spec.training) made.reserve.resize(static_cast<size_t>(ReserveLayout(spec).size));
  ForwardCall<T> call{};
  call.input = given.x.data();
  call.input_h = given.h.data();
  call.input_c = given.c.data();
  call.params = given.params.data();
  call.lengths = given.ragged ? given.lengths.data() : nullptr;
  call.output = made.y.data();
  call.output_h = made.hn.data();
  call.output_c = made.cn.data();
  call.reserve = made.reserve.data();
  call.nonce = nonce;
  call.cache = cache;
  call.keras = keras;
  PoolContext exec(pool);
  Forward(spec, call, exec);
  return made;
}

template <class T>
Gradients<T> RunBackward(const CallSpec& spec, const Given<T>& given, const Outputs<T>& made,
                         Pool& pool) {
  Gradients<T> gradients;
  gradients.dx.resize(given.x.size());
  gradients.dh.resize(given.h.size());
  gradients.dc.resize(given.c.size());
  gradients.dparams.resize(given.params.size());
  BackwardCall<T> call{};
  call.input = given.x.data();
  call.input_h = given.h.data();
  call.input_c = given.c.data();
  call.params = given.params.data();
  call.lengths = given.ragged ? given.lengths.data() : nullptr;
  call.output = made.y.data();
  call.output_backprop = given.dy.data();
  call.output_h_backprop = given.dhn.data();
  call.output_c_backprop = given.dcn.data();
  call.reserve = made.reserve.data();
  call.nonce = ReadHeader(spec, made.reserve.data()).value();
  call.input_backprop = gradients.dx.data();
  call.input_h_backprop = gradients.dh.data();
  call.input_c_backprop = gradients.dc.data();
  call.params_backprop = gradients.dparams.data();
  PoolContext exec(pool);
  Backward(spec, call, exec);
  return gradients;
}

// Returns all outputs and gradients in one vector.
template <class T>
std::vector<double> RunAll(const CallSpec& spec, uint64_t seed, Pool& pool,
                           WeightCache* cache = nullptr) {
  const Given<T> given(spec, seed);
  const Outputs<T> made = RunForward(spec, given, seed, pool, cache);
  std::vector<double> all;
  const auto add = [&](const std::vector<T>& values) {
    for (const T& value : values) all.push_back(Load(value));
  };
  add(made.y);
  add(made.hn);
  add(made.cn);
  if (!spec.training) return all;
  const Gradients<T> gradients = RunBackward(spec, given, made, pool);
  add(gradients.dx);
  add(gradients.dh);
  add(gradients.dc);
  add(gradients.dparams);
  return all;
}

void ExpectClose(const std::string& who, const std::vector<double>& found,
                 const std::vector<double>& wanted, double tolerance) {
  double scale = 0;
  for (const double value : wanted) scale = std::max(scale, std::abs(value));
  EXPECT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) {
    // The comparison is false for a NaN.
    if (std::abs(wanted[i] - found[i]) <= tolerance * scale) continue;
    testing::Fail(__FILE__, __LINE__,
                  StrCat(who, ": element ", i, " of ", found.size(), " is ",
                         testing::Print(found[i]), ", not ", testing::Print(wanted[i]),
                         "; the largest is ", testing::Print(scale)));
  }
}

CallSpec DrawCall(Random& random, int64_t round) {
  CallSpec spec;
  spec.cell = static_cast<Cell>(round % 4);
  const bool large = round % 5 == 0;
  spec.bidirectional = random.Below(2);
  spec.layers = 1 + random.Below(3);
  spec.units = 1 + random.Below(large ? 150 : 40);
  spec.skip_input = random.Below(4) == 0;
  spec.input_size = spec.skip_input ? spec.units : 1 + random.Below(80);
  if (spec.cell == Cell::kLstm && random.Below(2)) {
    spec.projection = 1 + random.Below(spec.units);
  }
  spec.time = 1 + random.Below(large ? 40 : 6);
  spec.batch = 1 + random.Below(large ? 40 : 8);
  spec.time_major = random.Below(2);
  spec.training = random.Below(4) != 0;
  spec.dropout = random.Below(2) ? 0.5f : 0.0f;
  EXPECT_OK(Validate(spec));
  return spec;
}

// Returns the number of random calls of any size. ThreadSanitizer checks every memory access of
// a product and makes it about thirty times as slow. Under ThreadSanitizer, a tenth of the
// calls run, with equal sizes.
int64_t LargeRounds(int64_t few) {
#ifdef __SANITIZE_THREAD__
  return (testing::Rounds(few) + 9) / 10;
#else
  return testing::Rounds(few);
#endif
}

template <class T>
void CheckAgreement(double tolerance) {
  Random random{testing::Seed()};
  Pool pool(3);
  WeightCache cache;  // All callers share the packed weights of inference.
  for (int64_t round = 0; round < LargeRounds(100); ++round) {
    const CallSpec spec = DrawCall(random, round);
    const uint64_t seed = testing::Seed();
    // Near zero, the sign of a ReLU's argument may differ between roundings of a 16-bit type,
    // so these results are not compared.
    const bool smooth = spec.cell != Cell::kRelu || sizeof(T) > 2;
    std::vector<double> first;
    ForEachIsa([&](const char* isa) {
      const std::vector<double> found = RunAll<T>(spec, seed, pool, &cache);
      if (first.empty()) first = found;
      ExpectClose(isa, found, first, smooth ? tolerance : 1e6);
    });
    if (round % 8 != 0) continue;
    // There are as many callers as threads, so that callers find the pool busy.
    std::vector<std::vector<double>> found(static_cast<size_t>(pool.size()));
    std::vector<std::thread> callers;
    for (std::vector<double>& mine : found) {
      callers.emplace_back([&] { mine = RunAll<T>(spec, seed, pool, &cache); });
    }
    for (std::thread& caller : callers) caller.join();
    for (const std::vector<double>& one : found) {
      ExpectClose("one of several callers", one, first, smooth ? tolerance : 1e6);
    }
  }
}
TEST(Stack, InstructionSetsAgreeInFloat) { CheckAgreement<float>(1e-3); }
TEST(Stack, InstructionSetsAgreeInDouble) { CheckAgreement<double>(1e-9); }
TEST(Stack, InstructionSetsAgreeInHalf) { CheckAgreement<Half>(0.1); }
TEST(Stack, InstructionSetsAgreeInBFloat16) { CheckAgreement<BFloat16>(0.3); }

// The parameters of a layer in Keras's layout.
struct KerasParams {
  std::vector<float> kernel, recurrent, bias;
  int64_t biases;

  KerasParams(const CallSpec& spec, const Given<float>& given, int64_t biases)
      : biases(biases) {
    const auto gates = [&](int64_t at, int64_t columns) {
      std::vector<float> made;
      for (int64_t k = 0; k < columns; ++k) {
        for (int64_t gate = 0; gate < spec.gates(); ++gate) {
          const int64_t first = at + KerasGate(spec.cell, gate) * spec.units * columns + k;
          for (int64_t unit = 0; unit < spec.units; ++unit) {
            made.push_back(given.params[static_cast<size_t>(first + unit * columns)]);
          }
        }
      }
      return made;
    };
    const LayerParams layout = ParamsLayout(spec)[0];
    kernel = gates(layout.input_weights, spec.input_size);
    recurrent = gates(layout.recurrent_weights, spec.units);
    bias = gates(layout.input_bias, 1);
    const std::vector<float> other = gates(layout.recurrent_bias, 1);
    if (biases == 2) bias.insert(bias.end(), other.begin(), other.end());
    if (biases == 0) bias.clear();
  }

  KerasWeights<float> weights() const {
    return {kernel.data(), recurrent.data(), bias.data(), biases};
  }
};

TEST(Stack, KerasWeightsGiveTheSameOutputs) {
  Random random{testing::Seed()};
  Pool pool(3);
  WeightCache cache;
  for (int64_t round = 0; round < LargeRounds(60); ++round) {
    CallSpec spec = DrawCall(random, round);
    spec.bidirectional = spec.skip_input = spec.training = false;
    spec.layers = 1;
    spec.projection = 0;
    Given<float> given(spec, testing::Seed());
    const LayerParams layout = ParamsLayout(spec)[0];
    const int64_t biases = random.Below(3);
    for (int64_t i = 0; i < spec.gates() * spec.units; ++i) {
      if (biases < 1) given.params[static_cast<size_t>(layout.input_bias + i)] = 0;
      if (biases < 2) given.params[static_cast<size_t>(layout.recurrent_bias + i)] = 0;
    }
    ForEachIsa([&](const char* isa) {
      KerasParams keras(spec, given, biases);
      const KerasWeights<float> weights = keras.weights();
      const auto agree = [&](const Given<float>& wanted_of) {
        const Outputs<float> wanted = RunForward(spec, wanted_of, 0, pool);
        const Outputs<float> found = RunForward(spec, given, 0, pool, &cache, &weights);
        const auto wide = [](const std::vector<float>& v) {
          return std::vector<double>(v.begin(), v.end());
        };
        ExpectClose(isa, wide(found.y), wide(wanted.y), 1e-5);
        ExpectClose(isa, wide(found.hn), wide(wanted.hn), 1e-5);
        ExpectClose(isa, wide(found.cn), wide(wanted.cn), 1e-5);
      };
      agree(given);
      agree(given);  // This call reads the cached weights.
      // The cache notices a change of each array in place.
      Given<float> changed = given;
      const auto change = [&](std::vector<float>& array, int64_t at, int64_t gate_size) {
        if (array.empty()) return;
        array[0] += 1;
        at += KerasGate(spec.cell, 0) * gate_size;
        changed.params[static_cast<size_t>(at)] += 1;
        agree(changed);
      };
      change(keras.kernel, layout.input_weights, spec.units * spec.input_size);
      change(keras.recurrent, layout.recurrent_weights, spec.units * spec.units);
      change(keras.bias, layout.input_bias, spec.units);
    });
  }
}

// Compares gradients with finite differences of the loss in double, along one random direction
// in all inputs at once. All calls have the same nonce and so the same dropout masks.
void CheckGradients(Cell cell) {
  Random random{testing::Seed()};
  Pool pool(2);
  for (int64_t round = 0; round < testing::Rounds(40); ++round) {
    CallSpec spec = DrawCall(random, 1 + static_cast<int64_t>(cell));
    spec.cell = cell;
    if (cell != Cell::kLstm) spec.projection = 0;
    spec.training = true;
    const Given<double> given(spec, testing::Seed());
    const Gradients<double> gradients =
        RunBackward(spec, given, RunForward(spec, given, 5, pool), pool);

    double slope = 0;
    std::vector<double> directions[4];
    const std::vector<double> Given<double>::* const reads[] = {
        &Given<double>::x, &Given<double>::h, &Given<double>::c, &Given<double>::params};
    const std::vector<double>* const of[] = {&gradients.dx, &gradients.dh, &gradients.dc,
                                             &gradients.dparams};
    for (int i = 0; i < 4; ++i) {
      directions[i] = Draw<double>(random, static_cast<int64_t>((given.*reads[i]).size()));
      for (size_t k = 0; k < directions[i].size(); ++k) slope += directions[i][k] * (*of[i])[k];
    }
    const auto loss = [&](double by) {
      Given<double> moved = given;
      std::vector<double>* const to[] = {&moved.x, &moved.h, &moved.c, &moved.params};
      for (int i = 0; i < 4; ++i) {
        for (size_t k = 0; k < to[i]->size(); ++k) (*to[i])[k] += by * directions[i][k];
      }
      const Outputs<double> made = RunForward(spec, moved, 5, pool);
      double sum = 0;
      for (size_t k = 0; k < made.y.size(); ++k) sum += made.y[k] * given.dy[k];
      for (size_t k = 0; k < made.hn.size(); ++k) sum += made.hn[k] * given.dhn[k];
      for (size_t k = 0; k < made.cn.size(); ++k) sum += made.cn[k] * given.dcn[k];
      return sum;
    };
    constexpr double kStep = 1e-5;
    const double difference =
        (8 * (loss(kStep) - loss(-kStep)) - (loss(2 * kStep) - loss(-2 * kStep))) /
        (12 * kStep);
    EXPECT_NEAR(slope, difference, 1e-6 * (1 + std::abs(slope)));
  }
}
TEST(Stack, GradientsOfLstmMatchDifferences) { CheckGradients(Cell::kLstm); }
TEST(Stack, GradientsOfGruMatchDifferences) { CheckGradients(Cell::kGru); }
TEST(Stack, GradientsOfTanhMatchDifferences) { CheckGradients(Cell::kTanh); }

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Returns the new output of one unit, from the sum over the input and the sum over the hidden
// state of each gate. Replaces the cell state.
double StepByFormulas(Cell kind, const double* of_input, const double* of_hidden, double h,
                      double* cell) {
  const auto sum = [&](int gate) { return of_input[gate] + of_hidden[gate]; };
  switch (kind) {
    case Cell::kLstm:
      *cell = Sigmoid(sum(1)) * *cell + Sigmoid(sum(0)) * std::tanh(sum(2));
      return Sigmoid(sum(3)) * std::tanh(*cell);
    case Cell::kGru: {
      const double r = Sigmoid(sum(0)), z = Sigmoid(sum(1));
      return (1 - z) * std::tanh(of_input[2] + r * of_hidden[2]) + z * h;
    }
    case Cell::kTanh: return std::tanh(sum(0));
    case Cell::kRelu: break;
  }
  return std::max(sum(0), 0.0);
}

std::vector<double> Project(const std::vector<double>& params, const CanonicalParam& weights,
                            const std::vector<double>& full) {
  std::vector<double> projected;
  for (int64_t row = 0; row < weights.rows; ++row) {
    const double* const begin = params.data() + weights.at + row * weights.columns;
    projected.push_back(std::inner_product(full.begin(), full.end(), begin, 0.0));
  }
  return projected;
}

// Returns the time-major output of a stack over complete sequences. It evaluates the formulas
// for each unit, step, sequence and direction.
std::vector<double> OutputByFormulas(const CallSpec& spec, const Given<double>& given) {
  const std::vector<CanonicalParam> weights = CanonicalWeights(spec),
                                    biases = CanonicalBiases(spec);
  const int64_t gates = spec.gates(), units = spec.units, hidden = spec.hidden();
  const auto at = [](const std::vector<double>& values, int64_t i) {
    return values[static_cast<size_t>(i)];
  };
  std::vector<double> x = given.x;
  for (int64_t layer = 0; layer < spec.layers; ++layer) {
    const int64_t in = spec.layer_input(layer);
    std::vector<double> y(static_cast<size_t>(spec.time * spec.batch * spec.width()));
    for (int64_t dir = 0; dir < spec.dirs(); ++dir) {
      const int64_t pseudo = layer * spec.dirs() + dir;
      const CanonicalParam* const w = weights.data() + pseudo * WeightsPerLayer(spec);
      const CanonicalParam* const b = biases.data() + pseudo * 2 * gates;
      for (int64_t sequence = 0; sequence < spec.batch; ++sequence) {
        const int64_t state = pseudo * spec.batch + sequence;
        std::vector<double> h, c;
        for (int64_t i = 0; i < hidden; ++i) h.push_back(at(given.h, state * hidden + i));
        for (int64_t i = 0; i < units; ++i) {
          c.push_back(given.c.empty() ? 0 : at(given.c, state * units + i));
        }
        for (int64_t step = 0; step < spec.time; ++step) {
          const int64_t t = dir == 0 ? step : spec.time - 1 - step;
          const int64_t row = t * spec.batch + sequence;
          std::vector<double> made(static_cast<size_t>(units));
          for (int64_t unit = 0; unit < units; ++unit) {
            double of_input[4], of_hidden[4];
            for (int64_t gate = 0; gate < gates; ++gate) {
              of_input[gate] = at(given.params, b[gate].at + unit);
              of_hidden[gate] = at(given.params, b[gates + gate].at + unit);
              if (!spec.has_input_weights(layer)) of_input[gate] += at(x, row * in + unit);
              for (int64_t i = 0; i < w[gate].columns; ++i) {
                of_input[gate] +=
                    at(given.params, w[gate].at + unit * in + i) * at(x, row * in + i);
              }
              for (int64_t i = 0; i < hidden; ++i) {
                of_hidden[gate] +=
                    at(given.params, w[gates + gate].at + unit * hidden + i) * at(h, i);
              }
            }
            made[static_cast<size_t>(unit)] = StepByFormulas(
                spec.cell, of_input, of_hidden, spec.cell == Cell::kGru ? at(h, unit) : 0,
                &c[static_cast<size_t>(unit)]);
          }
          h = spec.projection > 0 ? Project(given.params, w[2 * gates], made) : made;
          std::copy(h.begin(), h.end(), y.begin() + row * spec.width() + dir * hidden);
        }
      }
    }
    x = y;
  }
  return x;
}

TEST(Stack, OutputsMatchTheFormulas) {
  Random random{testing::Seed()};
  Pool pool(2);
  for (int64_t round = 0; round < testing::Rounds(40); ++round) {
    CallSpec spec = DrawCall(random, 1 + round % 4);
    spec.cell = static_cast<Cell>(round % 4);
    if (spec.cell != Cell::kLstm) spec.projection = 0;
    spec.time_major = true;
    spec.dropout = 0;
    // An odd seed makes all lengths equal to `time`.
    const Given<double> given(spec, 2 * testing::Seed() + 1);
    const std::vector<double> wanted = OutputByFormulas(spec, given);
    ForEachIsa([&](const char* isa) {
      ExpectClose(isa, RunForward(spec, given, 0, pool).y, wanted, 1e-11);
    });
  }
}

// Several threads divide the batch and the panels of a step. The results must equal those of
// one thread.
TEST(Stack, SeveralThreadsGiveTheResultsOfOne) {
  Random random{testing::Seed()};
  Pool one(1), many(5);
  for (int64_t round = 0; round < LargeRounds(24); ++round) {
    CallSpec spec = DrawCall(random, round);
    spec.batch = 2 + random.Below(11);
    spec.units = std::max<int64_t>(spec.projection, 40 + random.Below(60));
    if (spec.skip_input) spec.input_size = spec.units;
    spec.time = 20 + random.Below(20);
    const uint64_t seed = testing::Seed();
    ExpectClose("five threads", RunAll<double>(spec, seed, many),
                RunAll<double>(spec, seed, one), 1e-10);
  }
}

// With few sequences and many units, threads share the panels of each step's product.
TEST(Stack, ThreadsShareThePanelsOfAStep) {
  Pool one(1), many(5);
  for (const Cell cell : {Cell::kLstm, Cell::kGru, Cell::kTanh}) {
    for (const int64_t batch : {1, 2}) {
      CallSpec spec;
      spec.cell = cell;
      // There are enough units that even a product of one row uses several threads.
      spec.units = cell == Cell::kTanh ? 750 : 430;
      spec.input_size = 3;
      spec.time = 3;
      spec.batch = batch;
      spec.training = true;
      // An odd seed makes all lengths equal to `time`.
      const uint64_t seed = 2 * testing::Seed() + 1;
      ExpectClose("five threads", RunAll<double>(spec, seed, many),
                  RunAll<double>(spec, seed, one), 1e-10);
    }
  }
}

// Calls of one or two rows read weights without packing them. The results are the same.
TEST(Stack, UnpackedWeightsGiveTheSameOutputs) {
  Random random{testing::Seed()};
  Pool pool(2);
  for (int64_t round = 0; round < testing::Rounds(100); ++round) {
    CallSpec spec = DrawCall(random, round);
    spec.projection = 0;
    spec.training = false;
    spec.time = 1;
    spec.batch = 1 + random.Below(2);
    CallSpec wide = spec;
    wide.batch = 3;
    Given<double> given(wide, 2 * testing::Seed() + 1);
    const Outputs<double> packed = RunForward(wide, given, 0, pool);
    // Returns the first sequences of each array.
    const auto first = [&](const std::vector<double>& all, int64_t groups, int64_t size) {
      std::vector<double> some;
      for (int64_t i = 0; i < groups && !all.empty(); ++i) {
        const auto begin = all.begin() + i * wide.batch * size;
        some.insert(some.end(), begin, begin + spec.batch * size);
      }
      return some;
    };
    const int64_t stacked = spec.layers * spec.dirs();
    given.x = first(given.x, 1, spec.input_size);
    given.h = first(given.h, stacked, spec.units);
    given.c = first(given.c, stacked, spec.units);
    given.dy.resize(static_cast<size_t>(spec.batch * spec.width()));
    const Outputs<double> direct = RunForward(spec, given, 0, pool);
    ExpectClose("y", direct.y, first(packed.y, 1, spec.width()), 1e-12);
    ExpectClose("h", direct.hn, first(packed.hn, stacked, spec.units), 1e-12);
    ExpectClose("c", direct.cn, first(packed.cn, stacked, spec.units), 1e-12);
  }
}

// Steps past a length output zeros and do not change the state.
TEST(Stack, StepsPastALengthAreZeros) {
  Pool pool(2);
  for (const Cell cell : {Cell::kLstm, Cell::kGru, Cell::kTanh}) {
    CallSpec spec;
    spec.cell = cell;
    spec.units = 5;
    spec.input_size = 3;
    spec.bidirectional = true;
    spec.time = 4;
    spec.batch = 3;
    Given<float> given(spec, 2);
    given.lengths = {0, 4, 2};
    const Outputs<float> made = RunForward(spec, given, 0, pool);
    for (int64_t t = 0; t < spec.time; ++t) {
      for (int64_t b = 0; b < spec.batch; ++b) {
        for (int64_t i = 0; i < spec.width(); ++i) {
          const float y = made.y[static_cast<size_t>((t * spec.batch + b) * spec.width() + i)];
          EXPECT_EQ(y == 0, t >= given.lengths[static_cast<size_t>(b)]);
        }
      }
    }
    for (int64_t dir = 0; dir < 2; ++dir) {
      for (int64_t i = 0; i < spec.units; ++i) {
        const size_t state = static_cast<size_t>(dir * spec.batch * spec.units + i);
        EXPECT_EQ(made.hn[state], given.h[state]);
      }
    }
  }
}

// A call with the same nonce drops the same elements, and a call with another nonce drops
// others.
TEST(Stack, DropoutFollowsTheNonce) {
  Pool pool(2);
  CallSpec spec;
  spec.units = 8;
  spec.input_size = 4;
  spec.layers = 2;
  spec.time = 5;
  spec.batch = 3;
  spec.training = true;
  spec.dropout = 0.5f;
  const Given<float> given(spec, 1);
  const std::vector<float> first = RunForward(spec, given, 1, pool).y;
  EXPECT(RunForward(spec, given, 1, pool).y == first);
  EXPECT(RunForward(spec, given, 2, pool).y != first);
}

// Inference finds packed weights in the cache. If weights change in place, inference packs them
// again.
TEST(Stack, WeightsChangedInPlaceAreNoticed) {
  Pool pool(2);
  CallSpec spec;
  spec.units = 20;
  spec.input_size = 10;
  spec.time = 4;
  spec.batch = 3;
  Given<float> given(spec, 1);
  WeightCache cache;
  for (int64_t round = 0; round < testing::Rounds(20); ++round) {
    given.params[static_cast<size_t>(round * 97) % given.params.size()] += 0.5f;
    const std::vector<float> fresh = RunForward(spec, given, 0, pool).y;
    EXPECT(RunForward(spec, given, 0, pool, &cache).y == fresh);
    EXPECT(RunForward(spec, given, 0, pool, &cache).y == fresh);
  }
}

}  // namespace
}  // namespace opwright::rnn
