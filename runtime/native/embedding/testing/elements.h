// Helpers for tests of updates: hyperparameters by name, random numbers of any magnitude, and
// reference updates of a row.
#pragma once

#include <cfloat>
#include <iterator>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/isa.h"
#include "base/testing/pool.h"
#include "base/testing/testing.h"
#include "embedding/spec.h"

namespace opwright::embedding {

// The value of a result. The test fails if the result is an error.
template <class T>
T Value(StatusOr<T> result) {
  EXPECT_OK(result);
  return *std::move(result);
}

// Runs a test with each instruction set that this processor has.
template <class Test>
void ForEachIsa(const Test& test) {
  for (const Isa isa : kIsas) {
    if (!UseIsa(NameOf(isa))) continue;
    try {
      test();
    } catch (testing::Failure& failure) {
      failure.text += std::string(", with ") + NameOf(isa);
      UseIsa("");
      throw;
    }
  }
  UseIsa("");
}

// All optimizers that have a rule.
inline std::vector<Optimizer> WithRules() {
  std::vector<Optimizer> all;
  for (int i = 0; i < kOptimizers; ++i) {
    if (kOptimizerRegistry[i].has_rule()) all.push_back(static_cast<Optimizer>(i));
  }
  return all;
}

// All optimizers that have a rule that is not row-wise.
inline std::vector<Optimizer> WithElementRules() {
  std::vector<Optimizer> all;
  for (const Optimizer optimizer : WithRules()) {
    if (!TraitsOf(optimizer).row_wise) all.push_back(optimizer);
  }
  return all;
}

inline Optimizer OneOf(Random& random, const std::vector<Optimizer>& optimizers) {
  return optimizers[static_cast<size_t>(random.Below(static_cast<int64_t>(optimizers.size())))];
}

// A pointer to a hyperparameter, by its name in the optimizer's traits.
inline float* HyperOf(Hyper* hyper, Optimizer optimizer, const std::string& name) {
  const OptimizerTraits& traits = TraitsOf(optimizer);
  for (int i = 0; i < kMaxHyper && traits.hyper[i].name; ++i) {
    if (traits.hyper[i].name == name) return &hyper->values[i];
  }
  testing::Fail(__FILE__, __LINE__, std::string(traits.field) + " has no " + name);
}

// Hyperparameters that are within their ranges for this optimizer.
inline Hyper SomeHyper(Optimizer optimizer) {
  Hyper hyper;
  hyper.learning_rate = 0.1f;
  for (float& value : hyper.values) value = 0.5f;
  if (optimizer == Optimizer::kFtrl) *HyperOf(&hyper, optimizer, "lr_power") = -0.5f;
  return hyper;
}

// A random number of any magnitude in a range. It may be 0 or a denormal.
inline float Extreme(Random& random, Range range) {
  if (range == Range::kFlag || range == Range::kNonLazyFlag) return random.Below(2) ? 1.f : 0.f;
  constexpr float kOften[] = {0.f, 1.f, 0.5f, FLT_MIN, FLT_MAX, 1.4e-45f, 1e19f, 2e19f};
  for (;;) {
    uint32_t bits = static_cast<uint32_t>(random.Below(1 << 16) << 16 | random.Below(1 << 16));
    if (random.Below(2)) {
      bits = (bits & 0x80000000u) | BitsOf(kOften[random.Below(std::size(kOften))]);
    }
    if (Within(range, bits)) return FloatOf(bits);
  }
}

// A reference update of one row of `dimension` columns. parts[0] are the weights of the row,
// and parts[i + 1] is its slot i.
template <class Gradient>
void UpdateRow(Optimizer optimizer, const Hyper& hyper, int64_t dimension,
               const Gradient* gradient, float* const* parts) {
  VisitRule(optimizer, [&](auto tag) {
    using Rule = typename decltype(tag)::type;
    using F = typename Rule::F;
    const Step<Rule> step(hyper);
    // The slots of the row if the rule is row-wise, else those of one column at a time.
    F slots[4] = {};
    const auto load = [&](int64_t k) {
      for (int i = 0; i < Rule::kSlots; ++i) slots[i] = parts[i + 1][k];
    };
    const auto store = [&](int64_t k) {
      for (int i = 0; i < Rule::kSlots; ++i) parts[i + 1][k] = static_cast<float>(slots[i]);
    };
    if constexpr (kIsRowRule<Rule>) {
      double squares = 0;
      for (int64_t k = 0; k < dimension; ++k) {
        const double clipped = step.Clipped(static_cast<F>(gradient[k]));
        squares += clipped * clipped;
      }
      load(0);
      step.rule.UpdateSlots(squares / static_cast<double>(dimension), slots);
      store(0);
      load(0);
    }
    for (int64_t k = 0; k < dimension; ++k) {
      F weight = parts[0][k];
      if constexpr (!kIsRowRule<Rule>) load(k);
      step(static_cast<F>(gradient[k]), weight, slots);
      if constexpr (!kIsRowRule<Rule>) store(k);
      parts[0][k] = static_cast<float>(weight);
    }
  });
}

// A reference update of a row of one column. `element` points to the weight and then to each
// slot.
template <class Gradient>
void UpdateElement(Optimizer optimizer, const Hyper& hyper, Gradient gradient,
                   float* const* element) {
  UpdateRow(optimizer, hyper, 1, &gradient, element);
}

// Whether two floats are as close as results of float arithmetic in different orders. The bound
// is wide, because rules amplify differences.
inline bool Near(float a, float b) { return std::abs(a - b) <= 2e-3 * (1 + std::abs(a)); }

}  // namespace opwright::embedding
