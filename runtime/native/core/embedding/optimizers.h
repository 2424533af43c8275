// The optimizers of embedding tables: a table of facts about each, and each rule, once.
//
// A rule is what an optimizer does to one element of a row: to the weight `w` and its slots
// `s`, given the gradient `g`. The CPU's loops and the CUDA kernels are compiled from these
// same lines. Before a rule comes what all optimizers share (Step, below): clipping of the
// gradient and weight decay; after it, clipping of the weight.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

// Always inlined: the linker must not merge what different instruction sets made of a rule.
#if defined(__CUDACC__)
#define OPWRIGHT_RULE __host__ __device__ __forceinline__
#else
#define OPWRIGHT_RULE __attribute__((always_inline)) inline
#endif

namespace opwright {
namespace embedding {

// One a field of OptimizationParameters' oneof, in the order of the facts.
enum class Optimizer : int32_t {
  kSgd,
  kAdagrad,
  kAdagradMomentum,
  kAdam,
  kFtrl,
  kMomentum,
  kRmsProp,
  kCenteredRmsProp,
  kAdadelta,
  kProximalAdagrad,
  kFrequencyEstimator,
  kProximalYogi,
  kLion,
  kBoundedAdagrad,
  kFrequencyAwareAdagrad,
  kMdlAdagradLight,
  kOnlineYogi,
  kUserDefinedProgram,
  kAssign,
};
constexpr int kOptimizers = 19;
// TensorFlow's own limit, which LoadAll's and RetrieveAll's arguments come from.
constexpr int kMaxSlots = 7;
constexpr int kMaxHyper = 6;

struct OptimizerFacts {
  Optimizer optimizer;
  const char* field;             // In OptimizationParameters.
  const char* op_name;           // In LoadTPUEmbedding...Parameters, or null: there is none.
  const char* slots[4];          // As those ops name them, in their order; then null.
  const char* hyper[kMaxHyper];  // Fields of the optimizer's message that a rule reads.
  const char* formula;           // Null: no rule is public, tables are only stored.
  const char* source;            // Where the rule is published.

  int slot_count() const {
    int n = 0;
    while (n < 4 && slots[n]) ++n;
    return n;
  }
  bool has_rule() const { return formula != nullptr; }
};

const OptimizerFacts& FactsOf(Optimizer optimizer);
// By position in the enumeration.
const OptimizerFacts* AllFacts();
// The same as JSON: a list of objects with the members of OptimizerFacts.
const std::string& FactsAsJson();

// What an update has besides rows and gradients. `hyper` has the values of the fields that
// the facts name, a bool as 0 or 1.
struct Hyper {
  float learning_rate = 0;
  float hyper[kMaxHyper] = {};
  float clip_gradient[2] = {-std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::infinity()};
  float clip_weight[2] = {-std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::infinity()};
  // The part of a weight that decays at each update: the learning rate is in it already
  // where it belongs there.
  float decay = 0;
};

namespace rules {

OPWRIGHT_RULE float Sqrt(float x) { return sqrtf(x); }
OPWRIGHT_RULE double Sqrt(double x) { return sqrt(x); }
template <class F>
OPWRIGHT_RULE F Max(F a, F b) {
  return a > b ? a : b;
}
template <class F>
OPWRIGHT_RULE F Min(F a, F b) {
  return a < b ? a : b;
}
template <class F>
OPWRIGHT_RULE F Abs(F x) {
  return x < F(0) ? -x : x;
}
template <class F>
OPWRIGHT_RULE F Sign(F x) {
  return x > F(0) ? F(1) : x < F(0) ? F(-1) : F(0);
}
// Under a root or a fraction: an accumulator of zero meets a gradient of zero, and the
// update is zero, not NaN.
template <class F>
OPWRIGHT_RULE F Positive(F x) {
  return Max(x, F(1.17549435e-38));
}

// A rule computes in F. It is double where float would lose the digits that a small
// difference needs: those are the rules with thresholds, powers or variances.

struct Sgd {
  using F = float;
  static constexpr int kSlots = 0;
  F lr;
  OPWRIGHT_RULE explicit Sgd(const Hyper& h) : lr(h.learning_rate) {}
  OPWRIGHT_RULE void operator()(F g, F& w, F*) const { w -= lr * g; }
};

struct Adagrad {
  using F = float;
  static constexpr int kSlots = 1;
  F lr;
  OPWRIGHT_RULE explicit Adagrad(const Hyper& h) : lr(h.learning_rate) {}
  OPWRIGHT_RULE void operator()(F g, F& w, F* s) const {
    s[0] += g * g;
    w -= lr * g / Sqrt(Positive(s[0]));
  }
};

struct AdagradMomentum {
  using F = double;
  static constexpr int kSlots = 2;
  F lr, mu, power, beta2, epsilon, keep, add;
  bool nesterov, square_root;
  OPWRIGHT_RULE explicit AdagradMomentum(const Hyper& h)
      : lr(h.learning_rate),
        mu(h.hyper[0]),
        power(-1.0 / h.hyper[2]),
        beta2(h.hyper[3]),
        epsilon(h.hyper[4]),
        keep(beta2),
        add(beta2 == 1 ? 1 : 1 - beta2),
        nesterov(h.hyper[1] != 0),
        square_root(h.hyper[2] == 2) {}
  OPWRIGHT_RULE void operator()(F g, F& w, F* s) const {
    s[0] = keep * s[0] + add * g * g;
    const F a = Positive(s[0] + epsilon);
    const F scaled = square_root ? g / Sqrt(a) : g * pow(a, power);
    s[1] = mu * s[1] + scaled;
    w -= lr * (nesterov ? mu * s[1] + scaled : s[1]);
  }
};

struct Adam {
  using F = float;
  static constexpr int kSlots = 2;
  F lr, beta1, beta2, epsilon, inside;
  OPWRIGHT_RULE explicit Adam(const Hyper& h)
      : lr(h.learning_rate),
        beta1(h.hyper[0]),
        beta2(h.hyper[1]),
        epsilon(h.hyper[4] != 0 ? 0 : h.hyper[2]),
        inside(h.hyper[4] != 0 ? h.hyper[2] * h.hyper[2] : 0) {}
  OPWRIGHT_RULE void operator()(F g, F& w, F* s) const {
    s[0] = beta1 * s[0] + (1 - beta1) * g;
    s[1] = beta2 * s[1] + (1 - beta2) * g * g;
    w -= lr * s[0] / Positive(Sqrt(s[1] + inside) + epsilon);
  }
};

struct Ftrl {
  using F = double;
  static constexpr int kSlots = 2;
  F lr, l1, l2, power, beta;
  bool multiply, square_root;
  OPWRIGHT_RULE explicit Ftrl(const Hyper& h)
      : lr(h.learning_rate),
        l1(h.hyper[0]),
        l2(h.hyper[1]),
        power(-h.hyper[2]),
        beta(h.hyper[3]),
        multiply(h.hyper[4] != 0),
        square_root(h.hyper[2] == -0.5f) {}
  OPWRIGHT_RULE void operator()(F g, F& w, F* s) const {
    const F a = s[0] + g * g;
    const F before = square_root ? Sqrt(s[0]) : pow(s[0], power);
    const F after = square_root ? Sqrt(a) : pow(a, power);
    s[0] = a;
    // Both forms are one, with z and the thresholds in units of 1 or of the rate.
    const F unit = multiply ? lr : F(1);
    const F per_rate = multiply ? F(1) : lr;
    s[1] += unit * g - (after - before) * w / per_rate;
    const F limit = unit * l1;
    const F excess = Max(-limit, Min(limit, s[1])) - s[1];
    w = excess / Positive((after + beta) / per_rate + 2 * unit * l2);
  }
};

struct Momentum {
  using F = float;
  static constexpr int kSlots = 1;
  F lr, mu;
  bool nesterov;
  OPWRIGHT_RULE explicit Momentum(const Hyper& h)
      : lr(h.learning_rate), mu(h.hyper[0]), nesterov(h.hyper[1] != 0) {}
  OPWRIGHT_RULE void operator()(F g, F& w, F* s) const {
    s[0] = mu * s[0] + g;
    w -= lr * (nesterov ? mu * s[0] + g : s[0]);
  }
};

struct RmsProp {
  using F = float;
  static constexpr int kSlots = 2;
  F lr, rho, mu, epsilon;
  OPWRIGHT_RULE explicit RmsProp(const Hyper& h)
      : lr(h.learning_rate), rho(h.hyper[0]), mu(h.hyper[1]), epsilon(h.hyper[2]) {}
  OPWRIGHT_RULE void operator()(F g, F& w, F* s) const {
    s[0] += (1 - rho) * (g * g - s[0]);
    s[1] = mu * s[1] + lr * g / Sqrt(Positive(s[0] + epsilon));
    w -= s[1];
  }
};

struct CenteredRmsProp {
  using F = double;
  static constexpr int kSlots = 3;
  F lr, rho, mu, epsilon;
  OPWRIGHT_RULE explicit CenteredRmsProp(const Hyper& h)
      : lr(h.learning_rate), rho(h.hyper[0]), mu(h.hyper[1]), epsilon(h.hyper[2]) {}
  OPWRIGHT_RULE void operator()(F g, F& w, F* s) const {
    s[0] += (1 - rho) * (g * g - s[0]);
    s[2] += (1 - rho) * (g - s[2]);
    s[1] = mu * s[1] + lr * g / Sqrt(Positive(s[0] - s[2] * s[2] + epsilon));
    w -= s[1];
  }
};

struct Adadelta {
  using F = float;
  static constexpr int kSlots = 2;
  F lr, rho, epsilon;
  OPWRIGHT_RULE explicit Adadelta(const Hyper& h)
      : lr(h.learning_rate), rho(h.hyper[0]), epsilon(h.hyper[1]) {}
  OPWRIGHT_RULE void operator()(F g, F& w, F* s) const {
    s[0] = rho * s[0] + (1 - rho) * g * g;
    const F update = Sqrt(s[1] + epsilon) / Sqrt(Positive(s[0] + epsilon)) * g;
    w -= lr * update;
    s[1] = rho * s[1] + (1 - rho) * update * update;
  }
};

struct ProximalAdagrad {
  using F = double;
  static constexpr int kSlots = 1;
  F lr, l1, l2;
  OPWRIGHT_RULE explicit ProximalAdagrad(const Hyper& h)
      : lr(h.learning_rate), l1(h.hyper[0]), l2(h.hyper[1]) {}
  OPWRIGHT_RULE void operator()(F g, F& w, F* s) const {
    s[0] += g * g;
    const F rate = lr / Sqrt(Positive(s[0]));
    const F p = w - rate * g;
    // Without a gradient ever, the rate is huge and nothing but the penalties would count.
    const F threshold = s[0] > 0 ? rate * l1 : F(0);
    const F shrink = s[0] > 0 ? 1 + rate * l2 : F(1);
    w = Sign(p) * Max(Abs(p) - threshold, F(0)) / shrink;
  }
};

// The weight is the estimate, the learning rate carries the global step.
struct FrequencyEstimator {
  using F = float;
  static constexpr int kSlots = 1;
  F step, tau, max_delta, outlier;
  OPWRIGHT_RULE explicit FrequencyEstimator(const Hyper& h)
      : step(h.learning_rate), tau(h.hyper[0]), max_delta(h.hyper[1]), outlier(h.hyper[2]) {}
  OPWRIGHT_RULE void operator()(F, F& w, F* s) const {
    const F delta = step - s[0];
    const F clipped = Min(delta, max_delta);
    w = delta >= outlier * w ? clipped : w * (1 - tau) + clipped * tau;
    s[0] = step;
  }
};

struct ProximalYogi {
  using F = double;
  static constexpr int kSlots = 2;
  F lr, l1, l2, beta1, beta2, epsilon;
  OPWRIGHT_RULE explicit ProximalYogi(const Hyper& h)
      : lr(h.learning_rate),
        l1(h.hyper[0]),
        l2(h.hyper[1]),
        beta1(h.hyper[2]),
        beta2(h.hyper[3]),
        epsilon(h.hyper[4]) {}
  OPWRIGHT_RULE void operator()(F g, F& w, F* s) const {
    const F square = g * g;
    s[0] += (1 - beta2) * Sign(square - s[0]) * square;
    s[1] = beta1 * s[1] + (1 - beta1) * g;
    const F rate = lr / Positive(Sqrt(Max(s[0], F(0))) + epsilon);
    const F p = w - rate * s[1];
    w = Sign(p) * Max(Abs(p) - rate * l1, F(0)) / (1 + rate * l2);
  }
};

struct Lion {
  using F = double;
  static constexpr int kSlots = 1;
  F lr, beta1, beta2;
  OPWRIGHT_RULE explicit Lion(const Hyper& h)
      : lr(h.learning_rate), beta1(h.hyper[0]), beta2(h.hyper[1]) {}
  OPWRIGHT_RULE void operator()(F g, F& w, F* s) const {
    w -= lr * Sign(beta1 * s[0] + (1 - beta1) * g);
    s[0] = beta2 * s[0] + (1 - beta2) * g;
  }
};

}  // namespace rules

// Calls `visit(Tag<Rule>())` with the optimizer's rule; false if it has none. What is a
// switch here is a table of functions or of kernels elsewhere.
template <class Rule>
struct Tag {
  using type = Rule;
};
template <class Visit>
constexpr bool VisitRule(Optimizer optimizer, Visit&& visit) {
  switch (optimizer) {
    case Optimizer::kSgd: visit(Tag<rules::Sgd>()); return true;
    case Optimizer::kAdagrad: visit(Tag<rules::Adagrad>()); return true;
    case Optimizer::kAdagradMomentum: visit(Tag<rules::AdagradMomentum>()); return true;
    case Optimizer::kAdam: visit(Tag<rules::Adam>()); return true;
    case Optimizer::kFtrl: visit(Tag<rules::Ftrl>()); return true;
    case Optimizer::kMomentum: visit(Tag<rules::Momentum>()); return true;
    case Optimizer::kRmsProp: visit(Tag<rules::RmsProp>()); return true;
    case Optimizer::kCenteredRmsProp: visit(Tag<rules::CenteredRmsProp>()); return true;
    case Optimizer::kAdadelta: visit(Tag<rules::Adadelta>()); return true;
    case Optimizer::kProximalAdagrad: visit(Tag<rules::ProximalAdagrad>()); return true;
    case Optimizer::kFrequencyEstimator: visit(Tag<rules::FrequencyEstimator>()); return true;
    case Optimizer::kProximalYogi: visit(Tag<rules::ProximalYogi>()); return true;
    case Optimizer::kLion: visit(Tag<rules::Lion>()); return true;
    default: return false;
  }
}

// An update of one element, from the gradient to the weight and its slots.
template <class Rule>
struct Step {
  using F = typename Rule::F;

  OPWRIGHT_RULE explicit Step(const Hyper& h)
      : rule(h),
        least_gradient(h.clip_gradient[0]),
        most_gradient(h.clip_gradient[1]),
        least_weight(h.clip_weight[0]),
        most_weight(h.clip_weight[1]),
        decay(h.decay) {}

  OPWRIGHT_RULE void operator()(F gradient, F& w, F* slots) const {
    w -= decay * w;
    rule(rules::Min(rules::Max(gradient, least_gradient), most_gradient), w, slots);
    w = rules::Min(rules::Max(w, least_weight), most_weight);
  }

  Rule rule;
  F least_gradient, most_gradient, least_weight, most_weight, decay;
};

}  // namespace embedding
}  // namespace opwright
