// What tests of updates share: hyperparameters by name, numbers of any magnitude, and one
// element of a row.
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

// What a call returns that must succeed.
template <class T>
T Value(StatusOr<T> result) {
  EXPECT_OK(result);
  return *std::move(result);
}

// Runs a test with each instruction set that this processor has.
template <class Test>
void ForEachIsa(const Test& test) {
  for (const char* const isa : {"portable", "avx2", "avx512"}) {
    if (!UseIsa(isa)) continue;
    try {
      test();
    } catch (testing::Failure& failure) {
      failure.text += std::string(", with ") + isa;
      UseIsa("");
      throw;
    }
  }
  UseIsa("");
}

// Optimizers that have a rule.
inline std::vector<Optimizer> WithRules() {
  std::vector<Optimizer> all;
  for (int i = 0; i < kOptimizers; ++i) {
    if (kOptimizerRegistry[i].has_rule()) all.push_back(static_cast<Optimizer>(i));
  }
  return all;
}

// Those of them whose rules are about one element alone.
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

// Of a hyperparameter, as the optimizer's traits name it.
inline float* HyperOf(Hyper* hyper, Optimizer optimizer, const std::string& name) {
  const OptimizerTraits& traits = TraitsOf(optimizer);
  for (int i = 0; i < kMaxHyper && traits.hyper[i].name; ++i) {
    if (traits.hyper[i].name == name) return &hyper->values[i];
  }
  testing::Fail(__FILE__, __LINE__, std::string(traits.field) + " has no " + name);
}

// Hyperparameters that are in range whatever the optimizer.
inline Hyper SomeHyper(Optimizer optimizer) {
  Hyper hyper;
  hyper.learning_rate = 0.1f;
  for (float& value : hyper.values) value = 0.5f;
  if (optimizer == Optimizer::kFtrl) *HyperOf(&hyper, optimizer, "lr_power") = -0.5f;
  return hyper;
}

// A number of any magnitude, denormals and zeros among them.
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

// An update of one row of `dimension` columns: where its weights begin, and each of its slots,
// which are floats in a table.
template <class Gradient>
void UpdateRow(Optimizer optimizer, const Hyper& hyper, int64_t dimension,
               const Gradient* gradient, float* const* parts) {
  VisitRule(optimizer, [&](auto tag) {
    using Rule = typename decltype(tag)::type;
    using F = typename Rule::F;
    const Step<Rule> step(hyper);
    // Slots of the row, or of a column at a time.
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

// An update of a row of one column: the weight, then the slots.
template <class Gradient>
void UpdateElement(Optimizer optimizer, const Hyper& hyper, Gradient gradient,
                   float* const* element) {
  UpdateRow(optimizer, hyper, 1, &gradient, element);
}

// Float arithmetic in another order, and rules that amplify it.
inline bool Near(float a, float b) { return std::abs(a - b) <= 2e-3 * (1 + std::abs(a)); }

}  // namespace opwright::embedding
