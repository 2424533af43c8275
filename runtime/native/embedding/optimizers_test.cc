// Compares every rule with its published formula, computed in float64. Also tests clipping and
// weight decay, the limits of float32, and the registry of traits.
#include "embedding/optimizers.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "embedding/testing/elements.h"

namespace opwright::embedding {
namespace {

// The learning rate, and the hyperparameters by the names of their fields.
struct Given {
  std::map<std::string, double> all;
  double lr = 0;
  double operator[](const char* name) const { return all.at(name); }
};
// Updates the weight `w` and the slots `s`, which are in the order of the traits.
using Formula = std::function<void(const Given& h, double g, double& w, double* s)>;

double Sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

// Compares some updates of random elements with a formula. Each update starts from the float32
// values that the update before it has left.
void Follows(Optimizer optimizer, const std::map<std::string, float>& values,
             const Formula& formula) {
  const OptimizerTraits& traits = TraitsOf(optimizer);
  const int slots = traits.slot_count();
  Random random{testing::Seed()};
  for (int64_t round = 0; round < testing::Rounds(300); ++round) {
    Hyper hyper;
    hyper.learning_rate = static_cast<float>(random.Uniform() + 0.51);
    Given given;
    given.lr = hyper.learning_rate;
    for (const auto& [name, value] : values) {
      *HyperOf(&hyper, optimizer, name) = value;
      given.all[name] = value;
    }
    float x[5];
    float* element[5];
    for (int i = 0; i <= slots; ++i) {
      const bool positive = traits.range(i - 1) == Range::kNotNegative;
      x[i] = static_cast<float>(positive ? 2 * random.Uniform() + 1.1 : 0.6 * random.Uniform());
      element[i] = &x[i];
    }
    for (int update = 0; update < 3; ++update) {
      const float g = static_cast<float>(4 * random.Uniform());
      double expected[5];
      std::copy_n(x, 5, expected);
      formula(given, g, expected[0], expected + 1);
      UpdateElement(optimizer, hyper, g, element);
      for (int i = 0; i <= slots; ++i) {
        EXPECT_NEAR(x[i], expected[i], 2e-5 * (1 + std::abs(expected[i])));
      }
    }
  }
}

TEST(Optimizers, Sgd) {
  Follows(Optimizer::kSgd, {},
          [](const Given& h, double g, double& w, double*) { w -= h.lr * g; });
}

TEST(Optimizers, Adagrad) {
  Follows(Optimizer::kAdagrad, {}, [](const Given& h, double g, double& w, double* s) {
    s[0] += g * g;
    w -= h.lr * g / std::sqrt(s[0]);
  });
}

TEST(Optimizers, AdagradMomentum) {
  const Formula formula = [](const Given& h, double g, double& w, double* s) {
    const double beta2 = h["beta2"], mu = h["momentum"];
    s[0] = beta2 == 1 ? s[0] + g * g : beta2 * s[0] + (1 - beta2) * g * g;
    const double scaled = g * std::pow(s[0] + h["epsilon"], -1 / h["exponent"]);
    s[1] = mu * s[1] + scaled;
    w -= h.lr * (h["use_nesterov"] != 0 ? mu * s[1] + scaled : s[1]);
  };
  for (const float nesterov : {0.f, 1.f}) {
    for (const float exponent : {2.f, 3.5f}) {
      for (const float beta2 : {1.f, 0.75f}) {
        Follows(Optimizer::kAdagradMomentum,
                {{"momentum", 0.8f},
                 {"use_nesterov", nesterov},
                 {"exponent", exponent},
                 {"beta2", beta2},
                 {"epsilon", 0.01f}},
                formula);
      }
    }
  }
}

TEST(Optimizers, Adam) {
  const Formula formula = [](const Given& h, double g, double& w, double* s) {
    const double beta1 = h["beta1"], beta2 = h["beta2"], epsilon = h["epsilon"];
    s[0] = beta1 * s[0] + (1 - beta1) * g;
    s[1] = beta2 * s[1] + (1 - beta2) * g * g;
    w -= h.lr * s[0] /
         (h["use_sum_inside_sqrt"] != 0 ? std::sqrt(s[1] + epsilon * epsilon)
                                        : std::sqrt(s[1]) + epsilon);
  };
  for (const float inside : {0.f, 1.f}) {
    Follows(Optimizer::kAdam,
            {{"beta1", 0.8f},
             {"beta2", 0.95f},
             {"epsilon", 0.1f},
             {"use_non_lazy_adam", 0},
             {"use_sum_inside_sqrt", inside}},
            formula);
  }
}

TEST(Optimizers, Ftrl) {
  const Formula formula = [](const Given& h, double g, double& w, double* s) {
    const double after = s[0] + g * g, power = -h["lr_power"];
    const double d = std::pow(after, power) - std::pow(s[0], power);
    const bool times_rate = h["multiply_linear_by_lr"] != 0;
    const double unit = times_rate ? h.lr : 1;  // The unit of the linears and of their limit.
    s[0] = after;
    s[1] += times_rate ? h.lr * g - d * w : g - d * w / h.lr;
    const double limit = unit * h["l1"];
    const double below =
        (std::pow(after, power) + h["beta"]) * unit / h.lr + 2 * unit * h["l2"];
    w = (std::min(std::max(s[1], -limit), limit) - s[1]) / below;
  };
  for (const float times_rate : {0.f, 1.f}) {
    for (const float power : {-0.5f, -0.7f, 0.f}) {
      Follows(Optimizer::kFtrl,
              {{"l1", 0.3f},
               {"l2", 0.2f},
               {"lr_power", power},
               {"beta", 0.4f},
               {"multiply_linear_by_lr", times_rate}},
              formula);
    }
  }
}

TEST(Optimizers, Momentum) {
  for (const float nesterov : {0.f, 1.f}) {
    Follows(Optimizer::kMomentum, {{"momentum", 0.8f}, {"use_nesterov", nesterov}},
            [](const Given& h, double g, double& w, double* s) {
              s[0] = h["momentum"] * s[0] + g;
              w -= h.lr * (h["use_nesterov"] != 0 ? g + h["momentum"] * s[0] : s[0]);
            });
  }
}

TEST(Optimizers, RmsProp) {
  Follows(Optimizer::kRmsProp, {{"rho", 0.9f}, {"momentum", 0.7f}, {"epsilon", 0.01f}},
          [](const Given& h, double g, double& w, double* s) {
            s[0] += (1 - h["rho"]) * (g * g - s[0]);
            s[1] = h["momentum"] * s[1] + h.lr * g / std::sqrt(s[0] + h["epsilon"]);
            w -= s[1];
          });
}

TEST(Optimizers, CenteredRmsProp) {
  Follows(Optimizer::kCenteredRmsProp, {{"rho", 0.9f}, {"momentum", 0.7f}, {"epsilon", 0.01f}},
          [](const Given& h, double g, double& w, double* s) {
            s[0] += (1 - h["rho"]) * (g * g - s[0]);
            s[2] += (1 - h["rho"]) * (g - s[2]);
            s[1] =
                h["momentum"] * s[1] + h.lr * g / std::sqrt(s[0] - s[2] * s[2] + h["epsilon"]);
            w -= s[1];
          });
}

TEST(Optimizers, Adadelta) {
  Follows(Optimizer::kAdadelta, {{"rho", 0.9f}, {"epsilon", 0.01f}},
          [](const Given& h, double g, double& w, double* s) {
            s[0] = h["rho"] * s[0] + (1 - h["rho"]) * g * g;
            const double u =
                g * std::sqrt(s[1] + h["epsilon"]) / std::sqrt(s[0] + h["epsilon"]);
            w -= h.lr * u;
            s[1] = h["rho"] * s[1] + (1 - h["rho"]) * u * u;
          });
}

TEST(Optimizers, ProximalAdagrad) {
  Follows(Optimizer::kProximalAdagrad, {{"l1", 0.3f}, {"l2", 0.2f}},
          [](const Given& h, double g, double& w, double* s) {
            s[0] += g * g;
            const double eta = h.lr / std::sqrt(s[0]), p = w - eta * g;
            w = Sign(p) * std::max(std::abs(p) - eta * h["l1"], 0.) / (1 + eta * h["l2"]);
          });
}

TEST(Optimizers, FrequencyEstimator) {
  for (const float outlier : {0.5f, 20.f}) {
    for (const float most : {0.1f, 100.f}) {
      Follows(Optimizer::kFrequencyEstimator,
              {{"tau", 0.3f}, {"max_delta", most}, {"outlier_threshold", outlier}},
              [](const Given& h, double, double& w, double* s) {
                const double delta = h.lr - s[0], c = std::min(delta, h["max_delta"]);
                w = delta >= h["outlier_threshold"] * w ? c : (1 - h["tau"]) * w + h["tau"] * c;
                s[0] = h.lr;
              });
    }
  }
}

TEST(Optimizers, ProximalYogi) {
  Follows(Optimizer::kProximalYogi,
          {{"l1", 0.3f}, {"l2", 0.2f}, {"beta1", 0.8f}, {"beta2", 0.9f}, {"epsilon", 0.01f}},
          [](const Given& h, double g, double& w, double* s) {
            s[0] += (1 - h["beta2"]) * Sign(g * g - s[0]) * g * g;
            s[1] = h["beta1"] * s[1] + (1 - h["beta1"]) * g;
            const double eta = h.lr / (std::sqrt(s[0]) + h["epsilon"]), p = w - eta * s[1];
            w = Sign(p) * std::max(std::abs(p) - eta * h["l1"], 0.) / (1 + eta * h["l2"]);
          });
}

TEST(Optimizers, Lion) {
  Follows(Optimizer::kLion, {{"beta1", 0.6f}, {"beta2", 0.9f}, {"use_non_lazy_lion", 0}},
          [](const Given& h, double g, double& w, double* s) {
            w -= h.lr * Sign(h["beta1"] * s[0] + (1 - h["beta1"]) * g);
            s[0] = h["beta2"] * s[0] + (1 - h["beta2"]) * g;
          });
}

float SgdOf(const Hyper& hyper, float gradient, float weight) {
  float* const element[] = {&weight};
  UpdateElement(Optimizer::kSgd, hyper, gradient, element);
  return weight;
}

TEST(Optimizers, GradientsAreClipped) {
  Hyper hyper;
  hyper.learning_rate = 1;
  hyper.clip_gradient[0] = -0.5f;
  hyper.clip_gradient[1] = 0.25f;
  EXPECT_EQ(SgdOf(hyper, 3, 1), 0.75f);
  EXPECT_EQ(SgdOf(hyper, -3, 1), 1.5f);
  EXPECT_EQ(SgdOf(hyper, 0.125f, 1), 0.875f);
  EXPECT_EQ(SgdOf(hyper, std::numeric_limits<float>::infinity(), 1), 0.75f);
}

TEST(Optimizers, WeightsAreClipped) {
  Hyper hyper;
  hyper.learning_rate = 1;
  hyper.clip_weight[0] = -0.5f;
  hyper.clip_weight[1] = 0.25f;
  EXPECT_EQ(SgdOf(hyper, -3, 0), 0.25f);
  EXPECT_EQ(SgdOf(hyper, 3, 0), -0.5f);
  EXPECT_EQ(SgdOf(hyper, 0.125f, 0), -0.125f);
}

TEST(Optimizers, WeightsDecayBeforeTheRule) {
  Hyper hyper;
  hyper.learning_rate = 0.5f;
  hyper.decay = 0.25f;
  EXPECT_EQ(SgdOf(hyper, 1, 4), 2.5f);
  // FTRL computes the new weight from the decayed one.
  *HyperOf(&hyper, Optimizer::kFtrl, "lr_power") = -0.5f;
  float weight = 4, accumulator = 1, linear = 0;
  float* const element[] = {&weight, &accumulator, &linear};
  UpdateElement(Optimizer::kFtrl, hyper, std::sqrt(3.f), element);
  EXPECT_NEAR(accumulator, 4, 1e-6);
  EXPECT_NEAR(linear, std::sqrt(3.) - 3 / 0.5, 1e-5);
  EXPECT_NEAR(weight, -(std::sqrt(3.) - 3 / 0.5) / 4, 1e-5);
}

// Updates with extreme finite numbers leave finite numbers that are within their ranges.
TEST(Optimizers, ExtremeNumbersStayInRange) {
  Random random{testing::Seed()};
  for (const Optimizer optimizer : WithRules()) {
    const OptimizerTraits& traits = TraitsOf(optimizer);
    for (int64_t round = 0; round < testing::Rounds(3000); ++round) {
      Hyper hyper;
      for (int i = 0; i < kMaxHyper && traits.hyper[i].name; ++i) {
        hyper.values[i] = Extreme(random, traits.hyper[i].range);
      }
      hyper.learning_rate = Extreme(random, Range::kFinite);
      hyper.decay = random.Below(2) ? Extreme(random, Range::kFraction) : 0.f;
      if (!WrongRate(optimizer, hyper).empty()) continue;
      float x[5];
      float* element[5];
      for (int i = 0; i <= traits.slot_count(); ++i) {
        x[i] = Extreme(random, traits.range(i - 1));
        element[i] = &x[i];
      }
      // A gradient is a product of two floats.
      const float a = Extreme(random, Range::kFinite), b = Extreme(random, Range::kFinite);
      UpdateElement(optimizer, hyper, static_cast<double>(a) * b, element);
      for (int i = 0; i <= traits.slot_count(); ++i) EXPECT(Within(traits.range(i - 1), x[i]));
    }
  }
}

// A gradient of 0 leaves weights and slots of 0 unchanged. No accumulator of 0 leads to a
// division by zero.
TEST(Optimizers, ZerosStayZeros) {
  for (const Optimizer optimizer : WithRules()) {
    if (optimizer == Optimizer::kFrequencyEstimator) continue;  // It changes without gradients.
    Hyper hyper = SomeHyper(optimizer);
    for (int i = 0; i < kMaxHyper && TraitsOf(optimizer).hyper[i].name; ++i) {
      if (TraitsOf(optimizer).hyper[i].range == Range::kNotNegative) hyper.values[i] = 0;
    }
    float x[5] = {};
    float* const element[] = {&x[0], &x[1], &x[2], &x[3], &x[4]};
    UpdateElement(optimizer, hyper, 0.f, element);
    for (const float value : x) EXPECT_EQ(value, 0.f);
  }
}

TEST(Optimizers, Ranges) {
  const float kMax = FLT_MAX, kTiny = FloatOf(1), kInfinity = HUGE_VALF;
  const struct {
    Range range;
    std::vector<float> in, out;
  } cases[] = {
      {Range::kFinite, {0, -0.f, 1, kMax, -kMax, kTiny}, {}},
      {Range::kNotNegative, {0, -0.f, 1, kMax, kTiny}, {-kTiny, -1, -kMax}},
      {Range::kPositive, {kTiny, 1, kMax}, {0, -0.f, -kTiny, -1}},
      {Range::kNotPositive, {0, -0.f, -kTiny, -kMax}, {kTiny, 1, kMax}},
      {Range::kFraction, {0, -0.f, kTiny, 0.5f, 1}, {-kTiny, std::nextafter(1.f, 2.f), -1}},
      {Range::kClear, {0, FloatOf(kClearBits)}, {FloatOf(2), 1, -1, -0.f}}};
  for (const auto& [range, in, out] : cases) {
    for (const float value : in) EXPECT(Within(range, value));
    for (const float value : out) EXPECT(!Within(range, value));
    for (const float value : {kInfinity, -kInfinity, NAN}) EXPECT(!Within(range, value));
  }
}

TEST(Optimizers, WrongRates) {
  Hyper hyper;
  EXPECT_EQ(WrongRate(Optimizer::kSgd, hyper), "");
  hyper.learning_rate = NAN;
  EXPECT_EQ(WrongRate(Optimizer::kSgd, hyper), "must be finite; is nan");
  // FTRL divides by the learning rate, except with multiply_linear_by_lr.
  hyper.learning_rate = 0;
  EXPECT(WrongRate(Optimizer::kFtrl, hyper).find("finite and above 0") != std::string::npos);
  *HyperOf(&hyper, Optimizer::kFtrl, "multiply_linear_by_lr") = 1;
  EXPECT_EQ(WrongRate(Optimizer::kFtrl, hyper), "");
  hyper.learning_rate = 2;
  hyper.decay = 1.5f;
  EXPECT_EQ(WrongRate(Optimizer::kSgd, hyper),
            "is 2, which makes the part of a weight that decays 1.5; that must be finite and "
            "from 0 to 1");
}

TEST(Optimizers, RegistryIsComplete) {
  std::set<std::string> fields;
  for (int i = 0; i < kOptimizers; ++i) {
    const OptimizerTraits& traits = kOptimizerRegistry[i];
    EXPECT_EQ(traits.optimizer, static_cast<Optimizer>(i));
    EXPECT_EQ(&TraitsOf(traits.optimizer), &traits);
    EXPECT(fields.insert(traits.field).second);
    EXPECT(RegistryAsJson().find("\"field\": \"" + std::string(traits.field)) !=
           std::string::npos);
    int slots = -1;
    const bool has_rule =
        VisitRule(traits.optimizer, [&](auto tag) { slots = decltype(tag)::type::kSlots; });
    EXPECT_EQ(has_rule, traits.has_rule());
    EXPECT_EQ(VisitElementRule(traits.optimizer, [](auto) {}), has_rule && !traits.row_wise);
    if (has_rule) EXPECT_EQ(slots, traits.slot_count());
  }
}

}  // namespace
}  // namespace opwright::embedding
