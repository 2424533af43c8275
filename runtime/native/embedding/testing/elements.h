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
  if (range == Range::kFlag) return random.Below(2) ? 1.f : 0.f;
  constexpr float kOften[] = {0.f, 1.f, 0.5f, FLT_MIN, FLT_MAX, 1.4e-45f, 1e19f, 2e19f};
  for (;;) {
    uint32_t bits = static_cast<uint32_t>(random.Below(1 << 16) << 16 | random.Below(1 << 16));
    if (random.Below(2)) {
      bits = (bits & 0x80000000u) | BitsOf(kOften[random.Below(std::size(kOften))]);
    }
    if (Within(range, bits)) return FloatOf(bits);
  }
}

// An update of one element: the weight, then the slots, which are floats in a table.
template <class Gradient>
void UpdateElement(Optimizer optimizer, const Hyper& hyper, Gradient gradient,
                   float* const* element) {
  VisitRule(optimizer, [&](auto tag) {
    using Rule = typename decltype(tag)::type;
    using F = typename Rule::F;
    const Step<Rule> step(hyper);
    F weight = *element[0], slots[4] = {};
    for (int i = 0; i < Rule::kSlots; ++i) slots[i] = *element[i + 1];
    step(static_cast<F>(gradient), weight, slots);
    *element[0] = static_cast<float>(weight);
    for (int i = 0; i < Rule::kSlots; ++i) *element[i + 1] = static_cast<float>(slots[i]);
  });
}

// Float arithmetic in another order, and rules that amplify it.
inline bool Near(float a, float b) { return std::abs(a - b) <= 2e-3 * (1 + std::abs(a)); }

}  // namespace opwright::embedding
