// The optimizers of embedding tables: a registry of their traits, and their update rules.
//
// A rule updates one element of a row: the weight `w` and its slots `s`, given the gradient
// `g`. The loops of the CPU and the CUDA kernels are compiled from the same rules. Step (below)
// does what all optimizers share. It clips the gradient and decays the weight before the rule,
// and clips the weight after it. A row-wise rule (RowRule, below) has one value of each slot
// for all elements of a row. It updates this value before the elements.
//
// All numbers in a table are finite. Inputs are checked against the ranges of the traits before
// they are used. Results of an update are clamped to the range of float32. The bounds within
// the rules exclude divisions by zero or infinity, differences of infinities, and products of
// infinity and zero. There is therefore no NaN.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <type_traits>

// Rules are always inlined. Otherwise the linker would keep one copy of a function for all
// instruction sets that it was compiled for.
#if defined(__CUDACC__)
#define OPWRIGHT_RULE __host__ __device__ __forceinline__
#else
#define OPWRIGHT_RULE __attribute__((always_inline)) inline
#endif

namespace opwright::embedding {

// In the order of kOptimizerRegistry.
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
  kRowWiseAdagrad,
};
// TensorFlow's limit of slots: LoadAllTPUEmbeddingParameters has arguments for so many slots.
constexpr int kMaxSlots = 7;
constexpr int kMaxHyper = 6;

// The numbers that a slot or a hyperparameter may be. All of them are finite.
enum class Range : int32_t {
  kFinite,
  kNotNegative,
  kPositive,
  kNotPositive,
  kFraction,  // 0 to 1.
  kFlag,
  kNonLazyFlag,  // Whether rows without a gradient are updated too, with a gradient of zero.
  kClear,        // 0, or kClearBits, which TPUs put into accumulators without gradients.
};
// The bits of the smallest denormal.
constexpr uint32_t kClearBits = 1;

// Whether a value is in a range. It compares bits, because processors may be set to treat
// denormals as zeros.
OPWRIGHT_RULE bool Within(Range range, uint32_t bits) {
  constexpr uint32_t kSign = 0x80000000u, kMax = 0x7f7fffffu, kOne = 0x3f800000u;
  switch (range) {
    case Range::kNotNegative: return bits <= kMax || bits == kSign;
    case Range::kPositive: return bits - 1 < kMax;
    case Range::kNotPositive: return bits == 0 || bits - kSign <= kMax;
    case Range::kFraction: return bits <= kOne || bits == kSign;
    case Range::kClear: return bits <= kClearBits;
    default: return (bits & ~kSign) <= kMax;
  }
}
bool Within(Range range, float value);
// The first value of an array that is outside of a range, and its index.
struct Outside {
  int64_t at;
  float value;
};
// Describes a range as text, such as "finite and at least 0".
std::string Words(Range range);
// A number as text, with enough digits to identify the float.
std::string Number(float value);

// A slot or a hyperparameter.
struct Named {
  const char* name = nullptr;
  Range range = Range::kFinite;
};

struct OptimizerTraits {
  Optimizer optimizer;
  // The field in OptimizationParameters, or the name of a program (tf/config.cc).
  const char* field;
  // The optimizer's part of the op names LoadTPUEmbedding...Parameters and
  // RetrieveTPUEmbedding...Parameters. Null if there are no such ops.
  const char* op_name;
  Named slots[4];          // The slots in the order of these ops' arguments, with their names.
  Named hyper[kMaxHyper];  // The fields of the optimizer's message that the rule reads.
  const char* formula;     // Null if no rule is public. Tables can then only be stored.
  const char* source;      // The publication of the rule.
  bool row_wise = false;   // Whether a slot has one value for each row, not for each weight.

  int slot_count() const {
    int n = 0;
    while (n < 4 && slots[n].name) ++n;
    return n;
  }
  bool has_rule() const { return formula != nullptr; }
  // The index in `hyper` of the flag to update rows without a gradient, or -1.
  int non_lazy() const {
    int i = kMaxHyper - 1;
    while (i >= 0 && !(hyper[i].name && hyper[i].range == Range::kNonLazyFlag)) --i;
    return i;
  }
  // The range of the weights (slot -1) or of a slot.
  Range range(int64_t slot) const {
    return slot < 0 || slot >= slot_count() ? Range::kFinite : slots[slot].range;
  }
};

// Indexed by Optimizer.
inline constexpr OptimizerTraits kOptimizerRegistry[] = {
    {Optimizer::kSgd,
     "stochastic_gradient_descent",
     "StochasticGradientDescent",
     {},
     {},
     "w -= lr*g",
     "TensorFlow, ApplyGradientDescent"},
    {Optimizer::kAdagrad,
     "adagrad",
     "Adagrad",
     {{"accumulators", Range::kNotNegative}},
     {},
     "a += g^2; w -= lr*g/sqrt(a)",
     "Duchi et al. 2011; TensorFlow, ApplyAdagrad"},
    {Optimizer::kAdagradMomentum,
     "adagrad_momentum",
     "AdagradMomentum",
     {{"accumulators", Range::kNotNegative}, {"momenta"}},
     {{"momentum", Range::kFraction},
      {"use_nesterov", Range::kFlag},
      {"exponent", Range::kPositive},
      {"beta2", Range::kFraction},
      {"epsilon", Range::kNotNegative}},
     "a = beta2 == 1 ? a + g^2 : beta2*a + (1-beta2)*g^2; s = g*(a+epsilon)^(-1/exponent); "
     "m = momentum*m + s; w -= lr*(use_nesterov ? momentum*m + s : m)",
     "TensorFlow, tf.tpu.experimental.embedding.AdagradMomentum"},
    {Optimizer::kAdam,
     "adam",
     "ADAM",
     {{"momenta"}, {"velocities", Range::kNotNegative}},
     {{"beta1", Range::kFraction},
      {"beta2", Range::kFraction},
      {"epsilon", Range::kNotNegative},
      {"use_non_lazy_adam", Range::kNonLazyFlag},
      {"use_sum_inside_sqrt", Range::kFlag}},
     "m = beta1*m + (1-beta1)*g; v = beta2*v + (1-beta2)*g^2; w -= lr*m/(use_sum_inside_sqrt "
     "? sqrt(v + epsilon^2) : sqrt(v) + epsilon)",
     "Kingma and Ba 2015, bias correction left to lr; TensorFlow, LazyAdam"},
    {Optimizer::kFtrl,
     "ftrl",
     "FTRL",
     {{"accumulators", Range::kNotNegative}, {"linears"}},
     {{"l1", Range::kNotNegative},
      {"l2", Range::kNotNegative},
      {"lr_power", Range::kNotPositive},
      {"beta", Range::kNotNegative},
      {"multiply_linear_by_lr", Range::kFlag}},
     "a' = a + g^2; d = a'^(-lr_power) - a^(-lr_power); without multiply_linear_by_lr: "
     "z += g - d*w/lr; w = (clip(z, -l1, l1) - z)/((a'^(-lr_power) + beta)/lr + 2*l2); with "
     "it: z += lr*g - d*w; w = (clip(z, -lr*l1, lr*l1) - z)/(a'^(-lr_power) + beta + 2*lr*l2)",
     "McMahan et al. 2013; TensorFlow, ApplyFtrl"},
    {Optimizer::kMomentum,
     "momentum",
     "Momentum",
     {{"momenta"}},
     {{"momentum", Range::kFraction}, {"use_nesterov", Range::kFlag}},
     "m = momentum*m + g; w -= lr*(use_nesterov ? g + momentum*m : m)",
     "TensorFlow, ApplyMomentum"},
    {Optimizer::kRmsProp,
     "rms_prop",
     "RMSProp",
     {{"ms", Range::kNotNegative}, {"mom"}},
     {{"rho", Range::kFraction},
      {"momentum", Range::kFraction},
      {"epsilon", Range::kNotNegative}},
     "ms += (1-rho)*(g^2 - ms); mom = momentum*mom + lr*g/sqrt(ms + epsilon); w -= mom",
     "TensorFlow, ApplyRMSProp"},
    {Optimizer::kCenteredRmsProp,
     "centered_rms_prop",
     "CenteredRMSProp",
     {{"ms", Range::kNotNegative}, {"mom"}, {"mg"}},
     {{"rho", Range::kFraction},
      {"momentum", Range::kFraction},
      {"epsilon", Range::kNotNegative}},
     "ms += (1-rho)*(g^2 - ms); mg += (1-rho)*(g - mg); mom = momentum*mom + "
     "lr*g/sqrt(ms - mg^2 + epsilon); w -= mom",
     "TensorFlow, ApplyCenteredRMSProp"},
    {Optimizer::kAdadelta,
     "adadelta",
     "Adadelta",
     {{"accumulators", Range::kNotNegative}, {"updates", Range::kNotNegative}},
     {{"rho", Range::kFraction}, {"epsilon", Range::kNotNegative}},
     "a = rho*a + (1-rho)*g^2; u = g*sqrt(d + epsilon)/sqrt(a + epsilon); w -= lr*u; "
     "d = rho*d + (1-rho)*u^2",
     "Zeiler 2012; TensorFlow, ApplyAdadelta"},
    {Optimizer::kProximalAdagrad,
     "proximal_adagrad",
     "ProximalAdagrad",
     {{"accumulators", Range::kNotNegative}},
     {{"l1", Range::kNotNegative}, {"l2", Range::kNotNegative}},
     "a += g^2; eta = lr/sqrt(a); p = w - eta*g; w = sign(p)*max(|p| - eta*l1, 0)/(1 + eta*l2)",
     "Duchi and Singer 2009; TensorFlow, ApplyProximalAdagrad"},
    {Optimizer::kFrequencyEstimator,
     "frequency_estimator",
     "FrequencyEstimator",
     {{"last_hit_step"}},
     {{"tau", Range::kFraction}, {"max_delta"}, {"outlier_threshold"}, {"weight_exponent"}},
     "delta = step - last_hit_step; c = min(delta, max_delta); w = delta >= "
     "outlier_threshold*w ? c : (1-tau)*w + tau*c; last_hit_step = step; the learning rate, "
     "which must be dynamic, carries step",
     "TensorFlow, FrequencyEstimatorParameters"},
    {Optimizer::kProximalYogi,
     "proximal_yogi",
     "ProximalYogi",
     {{"v", Range::kNotNegative}, {"m"}},
     {{"l1", Range::kNotNegative},
      {"l2", Range::kNotNegative},
      {"beta1", Range::kFraction},
      {"beta2", Range::kFraction},
      {"epsilon", Range::kNotNegative}},
     "v += (1-beta2)*sign(g^2 - v)*g^2; m = beta1*m + (1-beta1)*g; eta = lr/(sqrt(v) + "
     "epsilon); p = w - eta*m; w = sign(p)*max(|p| - eta*l1, 0)/(1 + eta*l2)",
     "Zaheer et al. 2018, bias correction left to lr; TensorFlow Addons, Yogi"},
    {Optimizer::kLion,
     "lion",
     nullptr,
     {{"momenta"}},
     {{"beta1", Range::kFraction},
      {"beta2", Range::kFraction},
      {"use_non_lazy_lion", Range::kNonLazyFlag}},
     "w -= lr*sign(beta1*m + (1-beta1)*g); m = beta2*m + (1-beta2)*g",
     "Chen et al. 2023"},
    {Optimizer::kBoundedAdagrad,
     "bounded_adagrad",
     nullptr,
     {{"accumulators"}},
     {},
     nullptr,
     nullptr},
    {Optimizer::kFrequencyAwareAdagrad,
     "frequency_aware_adagrad",
     nullptr,
     {{"accumulators"}, {"counters"}},
     {},
     nullptr,
     nullptr},
    {Optimizer::kMdlAdagradLight,
     "mdl_adagrad_light",
     "MDLAdagradLight",
     {{"accumulators"}, {"weights"}, {"benefits"}},
     {},
     nullptr,
     nullptr},
    {Optimizer::kOnlineYogi,
     "online_yogi",
     nullptr,
     {{"vs"}, {"linears"}},
     {},
     nullptr,
     nullptr},
    {Optimizer::kUserDefinedProgram, "user_defined_program", nullptr, {}, {}, nullptr, nullptr},
    {Optimizer::kAssign, "assign", nullptr, {}, {}, nullptr, nullptr},
    {Optimizer::kRowWiseAdagrad,
     "row_wise_adagrad",
     nullptr,
     {{"accumulators", Range::kNotNegative}},
     {{"epsilon", Range::kNotNegative}},
     "a += mean(g^2) over the row; w -= lr*g/(sqrt(a) + epsilon)",
     "FBGEMM, EXACT_ROWWISE_ADAGRAD; TorchRec, RowWiseAdagrad",
     /*row_wise=*/true},
};
constexpr int kOptimizers = static_cast<int>(std::size(kOptimizerRegistry));

constexpr const OptimizerTraits& TraitsOf(Optimizer optimizer) {
  return kOptimizerRegistry[static_cast<int>(optimizer)];
}
// Returns the index in Hyper::values of an optimizer's field, as in
// HyperIndex<Optimizer::kAdam>("beta1"). In the initializer of a constexpr variable, a name
// that is no field is a compile error.
template <Optimizer kOptimizer>
constexpr int HyperIndex(const char* field) {
  for (int i = 0; i < kMaxHyper && TraitsOf(kOptimizer).hyper[i].name; ++i) {
    const char* a = TraitsOf(kOptimizer).hyper[i].name;
    const char* b = field;
    while (*a && *a == *b) ++a, ++b;
    if (*a == *b) return i;
  }
  throw field;
}

// kOptimizerRegistry as JSON: a list of objects with the members of OptimizerTraits.
const std::string& RegistryAsJson();

// The parameters of an update.
struct Hyper {
  float learning_rate = 0;
  // The values of the fields that the optimizer's traits list, in their order. A bool is 0 or
  // 1.
  float values[kMaxHyper] = {};
  float clip_gradient[2] = {-std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::infinity()};
  float clip_weight[2] = {-std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::infinity()};
  // The fraction of a weight that each update subtracts from the weight, from 0 to 1. If the
  // decay depends on the learning rate, HyperAt has already multiplied it by that rate.
  float decay = 0;

  // Whether there are finite numbers between the two limits.
  static bool AreLimits(const float (&limits)[2]) {
    return limits[0] <= limits[1] && limits[0] <= FLT_MAX && limits[1] >= -FLT_MAX;
  }
};

// Describes what is wrong with the learning rate of a step, or with the decay that results from
// it. For example, "must be positive, is 0". Empty if nothing is wrong.
std::string WrongRate(Optimizer optimizer, const Hyper& hyper);

namespace rules {

OPWRIGHT_RULE float Sqrt(float x) { return sqrtf(x); }
OPWRIGHT_RULE double Sqrt(double x) { return sqrt(x); }
// The bound is the first argument, because of NaN: if x is NaN, the result is x.
template <class F>
OPWRIGHT_RULE F Max(F bound, F x) {
  return bound > x ? bound : x;
}
template <class F>
OPWRIGHT_RULE F Min(F bound, F x) {
  return bound < x ? bound : x;
}
template <class F>
OPWRIGHT_RULE F Between(F least, F most, F x) {
  return Min(most, Max(least, x));
}
template <class F>
OPWRIGHT_RULE F Abs(F x) {
  return x < F(0) ? -x : x;
}
template <class F>
OPWRIGHT_RULE F Sign(F x) {
  return x > F(0) ? F(1) : x < F(0) ? F(-1) : F(0);
}
// Held and Capped clamp x to numbers that are finite in float32. Capped is for numbers that are
// not negative.
template <class F>
OPWRIGHT_RULE F Held(F x) {
  return Between(F(-FLT_MAX), F(FLT_MAX), x);
}
template <class F>
OPWRIGHT_RULE F Capped(F x) {
  return Min(F(FLT_MAX), x);
}
// A positive number, for divisors. If the accumulator in a divisor is 0, the gradient is 0 too.
// The update is then 0, not NaN.
template <class F>
OPWRIGHT_RULE F Positive(F x) {
  return Max(F(FLT_MIN), x);
}
// Bounds epsilon in rules that compute in float. With a larger one, a sum could be infinite.
OPWRIGHT_RULE float Epsilon(float x) { return Min(1e30f, x); }
// A power that stays finite if it is multiplied or divided by a few floats. The bound only
// changes powers that would lead to results beyond float32 anyway.
OPWRIGHT_RULE double Power(double x, double exponent) { return Min(1e200, pow(x, exponent)); }

// A rule computes with numbers of type F. F is double in rules with thresholds, powers or
// variances, because their small differences need more digits than a float has. The inputs are
// floats and the powers are bounded, so these rules do not overflow before their results become
// floats. Each rule leaves slots that are finite in float32, and a weight that is not NaN. (A
// slot that is a mean of two floats is not clamped: in double, the mean cannot overflow.)

// The base of rules whose slots have one value for each row. They have two functions:
//   void UpdateSlots(double mean_square, F* s)  updates the slots of a row. mean_square is the
//                                               mean of the squared gradient over the columns.
//   void operator()(F g, F& w, const F* s)      updates an element, with the row's new slots.
struct RowRule {};

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
    s[0] = Capped(s[0] + g * g);
    w -= lr * g / Sqrt(Positive(s[0]));
  }
};

struct AdagradMomentum {
  using F = double;
  static constexpr int kSlots = 2;
  static constexpr int kMomentum = HyperIndex<Optimizer::kAdagradMomentum>("momentum");
  static constexpr int kUseNesterov = HyperIndex<Optimizer::kAdagradMomentum>("use_nesterov");
  static constexpr int kExponent = HyperIndex<Optimizer::kAdagradMomentum>("exponent");
  static constexpr int kBeta2 = HyperIndex<Optimizer::kAdagradMomentum>("beta2");
  static constexpr int kEpsilon = HyperIndex<Optimizer::kAdagradMomentum>("epsilon");
  F lr, mu, power, beta2, epsilon, keep, add;
  bool nesterov, square_root;
  OPWRIGHT_RULE explicit AdagradMomentum(const Hyper& h)
      : lr(h.learning_rate),
        mu(h.values[kMomentum]),
        power(-1.0 / h.values[kExponent]),
        beta2(h.values[kBeta2]),
        epsilon(h.values[kEpsilon]),
        keep(beta2),
        add(beta2 == 1 ? 1 : 1 - beta2),
        nesterov(h.values[kUseNesterov] != 0),
        square_root(h.values[kExponent] == 2) {}
  OPWRIGHT_RULE void operator()(F g, F& w, F* s) const {
    s[0] = Capped(keep * s[0] + add * g * g);
    const F a = Positive(s[0] + epsilon);
    const F scaled = square_root ? g / Sqrt(a) : g * Power(a, power);
    s[1] = Held(mu * s[1] + scaled);
    w -= lr * (nesterov ? mu * s[1] + scaled : s[1]);
  }
};

struct Adam {
  using F = float;
  static constexpr int kSlots = 2;
  static constexpr int kBeta1 = HyperIndex<Optimizer::kAdam>("beta1");
  static constexpr int kBeta2 = HyperIndex<Optimizer::kAdam>("beta2");
  static constexpr int kEpsilon = HyperIndex<Optimizer::kAdam>("epsilon");
  static constexpr int kUseSumInsideSqrt = HyperIndex<Optimizer::kAdam>("use_sum_inside_sqrt");
  F lr, beta1, beta2, epsilon, inside;
  OPWRIGHT_RULE explicit Adam(const Hyper& h)
      : lr(h.learning_rate),
        beta1(h.values[kBeta1]),
        beta2(h.values[kBeta2]),
        epsilon(h.values[kUseSumInsideSqrt] != 0 ? 0 : Epsilon(h.values[kEpsilon])),
        inside(h.values[kUseSumInsideSqrt] != 0
                   ? Epsilon(h.values[kEpsilon] * h.values[kEpsilon])
                   : 0) {}
  OPWRIGHT_RULE void operator()(F g, F& w, F* s) const {
    s[0] = Held(beta1 * s[0] + (1 - beta1) * g);
    s[1] = Capped(beta2 * s[1] + (1 - beta2) * g * g);
    w -= lr * s[0] / Positive(Sqrt(s[1] + inside) + epsilon);
  }
};

struct Ftrl {
  using F = double;
  static constexpr int kSlots = 2;
  static constexpr int kL1 = HyperIndex<Optimizer::kFtrl>("l1");
  static constexpr int kL2 = HyperIndex<Optimizer::kFtrl>("l2");
  static constexpr int kLrPower = HyperIndex<Optimizer::kFtrl>("lr_power");
  static constexpr int kBeta = HyperIndex<Optimizer::kFtrl>("beta");
  static constexpr int kMultiplyLinearByLr =
      HyperIndex<Optimizer::kFtrl>("multiply_linear_by_lr");
  // One formula serves with and without multiply_linear_by_lr. With it, the linears and the
  // thresholds are in units of the learning rate; without it, in units of 1. The divisor
  // `per_rate` is positive even if the processor treats denormals as zeros.
  F unit, per_rate, limit, l2, power, beta;
  bool square_root;
  OPWRIGHT_RULE explicit Ftrl(const Hyper& h)
      : unit(h.values[kMultiplyLinearByLr] != 0 ? h.learning_rate : 1.f),
        per_rate(h.values[kMultiplyLinearByLr] != 0 ? 1 : Max<F>(1e-45, h.learning_rate)),
        limit(unit * h.values[kL1]),
        l2(2 * unit * h.values[kL2]),
        power(-h.values[kLrPower]),
        beta(h.values[kBeta]),
        square_root(h.values[kLrPower] == -0.5f) {}
  OPWRIGHT_RULE void operator()(F g, F& w, F* s) const {
    const F a = Capped(s[0] + g * g);
    const F before = square_root ? Sqrt(s[0]) : Power(s[0], power);
    const F after = square_root ? Sqrt(a) : Power(a, power);
    s[0] = a;
    s[1] = Held(s[1] + (unit * g - (after - before) * w / per_rate));
    const F excess = Between(-limit, limit, s[1]) - s[1];
    w = excess / Positive((after + beta) / per_rate + l2);
  }
};

struct Momentum {
  using F = float;
  static constexpr int kSlots = 1;
  static constexpr int kMomentum = HyperIndex<Optimizer::kMomentum>("momentum");
  static constexpr int kUseNesterov = HyperIndex<Optimizer::kMomentum>("use_nesterov");
  F lr, mu;
  bool nesterov;
  OPWRIGHT_RULE explicit Momentum(const Hyper& h)
      : lr(h.learning_rate), mu(h.values[kMomentum]), nesterov(h.values[kUseNesterov] != 0) {}
  OPWRIGHT_RULE void operator()(F g, F& w, F* s) const {
    s[0] = Held(mu * s[0] + g);
    w -= lr * (nesterov ? Held(mu * s[0] + g) : s[0]);
  }
};

struct RmsProp {
  using F = float;
  static constexpr int kSlots = 2;
  static constexpr int kRho = HyperIndex<Optimizer::kRmsProp>("rho");
  static constexpr int kMomentum = HyperIndex<Optimizer::kRmsProp>("momentum");
  static constexpr int kEpsilon = HyperIndex<Optimizer::kRmsProp>("epsilon");
  F lr, rho, mu, epsilon;
  OPWRIGHT_RULE explicit RmsProp(const Hyper& h)
      : lr(h.learning_rate),
        rho(h.values[kRho]),
        mu(h.values[kMomentum]),
        epsilon(Epsilon(h.values[kEpsilon])) {}
  OPWRIGHT_RULE void operator()(F g, F& w, F* s) const {
    s[0] = Capped(s[0] + (1 - rho) * (Capped(g * g) - s[0]));
    s[1] = Held(mu * s[1] + lr * g / Sqrt(Positive(s[0] + epsilon)));
    w -= s[1];
  }
};

struct CenteredRmsProp {
  using F = double;
  static constexpr int kSlots = 3;
  static constexpr int kRho = HyperIndex<Optimizer::kCenteredRmsProp>("rho");
  static constexpr int kMomentum = HyperIndex<Optimizer::kCenteredRmsProp>("momentum");
  static constexpr int kEpsilon = HyperIndex<Optimizer::kCenteredRmsProp>("epsilon");
  F lr, rho, mu, epsilon;
  OPWRIGHT_RULE explicit CenteredRmsProp(const Hyper& h)
      : lr(h.learning_rate),
        rho(h.values[kRho]),
        mu(h.values[kMomentum]),
        epsilon(h.values[kEpsilon]) {}
  OPWRIGHT_RULE void operator()(F g, F& w, F* s) const {
    s[0] = Capped(s[0] + (1 - rho) * (g * g - s[0]));
    s[2] += (1 - rho) * (g - s[2]);
    s[1] = Held(mu * s[1] + lr * g / Sqrt(Positive(s[0] - s[2] * s[2] + epsilon)));
    w -= s[1];
  }
};

struct Adadelta {
  using F = float;
  static constexpr int kSlots = 2;
  static constexpr int kRho = HyperIndex<Optimizer::kAdadelta>("rho");
  static constexpr int kEpsilon = HyperIndex<Optimizer::kAdadelta>("epsilon");
  F lr, rho, epsilon;
  OPWRIGHT_RULE explicit Adadelta(const Hyper& h)
      : lr(h.learning_rate), rho(h.values[kRho]), epsilon(Epsilon(h.values[kEpsilon])) {}
  OPWRIGHT_RULE void operator()(F g, F& w, F* s) const {
    s[0] = Capped(rho * s[0] + (1 - rho) * g * g);
    const F update = Held(Sqrt(s[1] + epsilon) / Sqrt(Positive(s[0] + epsilon)) * g);
    w -= lr * update;
    s[1] = Capped(rho * s[1] + (1 - rho) * update * update);
  }
};

struct ProximalAdagrad {
  using F = double;
  static constexpr int kSlots = 1;
  static constexpr int kL1 = HyperIndex<Optimizer::kProximalAdagrad>("l1");
  static constexpr int kL2 = HyperIndex<Optimizer::kProximalAdagrad>("l2");
  F lr, l1, l2;
  OPWRIGHT_RULE explicit ProximalAdagrad(const Hyper& h)
      : lr(h.learning_rate), l1(h.values[kL1]), l2(h.values[kL2]) {}
  OPWRIGHT_RULE void operator()(F g, F& w, F* s) const {
    s[0] = Capped(s[0] + g * g);
    const F rate = lr / Sqrt(Positive(s[0]));
    const F p = w - rate * g;
    // If the element has never had a gradient, the rate is huge. The penalties are left out
    // then, because they alone would determine the weight.
    const F threshold = s[0] > 0 ? rate * l1 : F(0);
    const F shrink = s[0] > 0 ? Positive(1 + rate * l2) : F(1);
    w = Sign(p) * Max(F(0), Abs(p) - threshold) / shrink;
  }
};

// The weight is the estimated number of steps between two lookups of the row. Callers pass the
// number of the global step as the learning rate.
struct FrequencyEstimator {
  using F = float;
  static constexpr int kSlots = 1;
  static constexpr int kTau = HyperIndex<Optimizer::kFrequencyEstimator>("tau");
  static constexpr int kMaxDelta = HyperIndex<Optimizer::kFrequencyEstimator>("max_delta");
  static constexpr int kOutlierThreshold =
      HyperIndex<Optimizer::kFrequencyEstimator>("outlier_threshold");
  F step, tau, max_delta, outlier;
  OPWRIGHT_RULE explicit FrequencyEstimator(const Hyper& h)
      : step(h.learning_rate),
        tau(h.values[kTau]),
        max_delta(h.values[kMaxDelta]),
        outlier(h.values[kOutlierThreshold]) {}
  OPWRIGHT_RULE void operator()(F, F& w, F* s) const {
    const F delta = Max(-FLT_MAX, step - s[0]);
    const F clipped = Min(max_delta, delta);
    w = delta >= outlier * w ? clipped : w * (1 - tau) + clipped * tau;
    s[0] = step;
  }
};

struct ProximalYogi {
  using F = double;
  static constexpr int kSlots = 2;
  static constexpr int kL1 = HyperIndex<Optimizer::kProximalYogi>("l1");
  static constexpr int kL2 = HyperIndex<Optimizer::kProximalYogi>("l2");
  static constexpr int kBeta1 = HyperIndex<Optimizer::kProximalYogi>("beta1");
  static constexpr int kBeta2 = HyperIndex<Optimizer::kProximalYogi>("beta2");
  static constexpr int kEpsilon = HyperIndex<Optimizer::kProximalYogi>("epsilon");
  F lr, l1, l2, beta1, beta2, epsilon;
  OPWRIGHT_RULE explicit ProximalYogi(const Hyper& h)
      : lr(h.learning_rate),
        l1(h.values[kL1]),
        l2(h.values[kL2]),
        beta1(h.values[kBeta1]),
        beta2(h.values[kBeta2]),
        epsilon(h.values[kEpsilon]) {}
  OPWRIGHT_RULE void operator()(F g, F& w, F* s) const {
    const F square = g * g;
    s[0] = Capped(s[0] + (1 - beta2) * Sign(square - s[0]) * square);
    s[1] = beta1 * s[1] + (1 - beta1) * g;
    const F rate = lr / Positive(Sqrt(s[0]) + epsilon);
    const F p = w - rate * s[1];
    w = Sign(p) * Max(F(0), Abs(p) - rate * l1) / Positive(1 + rate * l2);
  }
};

struct Lion {
  using F = double;
  static constexpr int kSlots = 1;
  static constexpr int kBeta1 = HyperIndex<Optimizer::kLion>("beta1");
  static constexpr int kBeta2 = HyperIndex<Optimizer::kLion>("beta2");
  F lr, beta1, beta2;
  OPWRIGHT_RULE explicit Lion(const Hyper& h)
      : lr(h.learning_rate), beta1(h.values[kBeta1]), beta2(h.values[kBeta2]) {}
  OPWRIGHT_RULE void operator()(F g, F& w, F* s) const {
    w -= lr * Sign(beta1 * s[0] + (1 - beta1) * g);
    s[0] = beta2 * s[0] + (1 - beta2) * g;
  }
};

struct RowWiseAdagrad : RowRule {
  using F = float;
  static constexpr int kSlots = 1;
  static constexpr int kEpsilon = HyperIndex<Optimizer::kRowWiseAdagrad>("epsilon");
  F lr, epsilon;
  OPWRIGHT_RULE explicit RowWiseAdagrad(const Hyper& h)
      : lr(h.learning_rate), epsilon(Epsilon(h.values[kEpsilon])) {}
  OPWRIGHT_RULE void UpdateSlots(double mean_square, F* s) const {
    s[0] = static_cast<F>(Capped(s[0] + mean_square));
  }
  OPWRIGHT_RULE void operator()(F g, F& w, const F* s) const {
    w -= lr * g / (Sqrt(Positive(s[0])) + epsilon);
  }
};

}  // namespace rules

// A value that stands for a rule, so that VisitRule can pass the rule as an argument.
template <class Rule>
struct Tag {
  using type = Rule;
};
// Calls `visit(Tag<Rule>())` with the optimizer's rule, and returns true. Returns false if the
// optimizer has no rule. Callers build tables of functions or of kernels by it.
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
    case Optimizer::kRowWiseAdagrad: visit(Tag<rules::RowWiseAdagrad>()); return true;
    default: return false;
  }
}

template <class Rule>
constexpr bool kIsRowRule = std::is_base_of_v<rules::RowRule, Rule>;

// Like VisitRule, but only for rules that are not row-wise. It returns false for the others.
template <class Visit>
constexpr bool VisitElementRule(Optimizer optimizer, Visit&& visit) {
  bool visited = false;
  VisitRule(optimizer, [&](auto tag) {
    if constexpr (!kIsRowRule<typename decltype(tag)::type>) {
      visit(tag);
      visited = true;
    }
  });
  return visited;
}

// The complete update of one element, with clipping and weight decay.
template <class Rule>
struct Step {
  using F = typename Rule::F;

  OPWRIGHT_RULE explicit Step(const Hyper& h)
      : rule(h),
        least_gradient(rules::Held(h.clip_gradient[0])),
        most_gradient(rules::Held(h.clip_gradient[1])),
        least_weight(rules::Held(h.clip_weight[0])),
        most_weight(rules::Held(h.clip_weight[1])),
        decay(h.decay) {}

  // The gradient may be infinite, as a product of floats can be.
  OPWRIGHT_RULE F Clipped(F gradient) const {
    return rules::Between(least_gradient, most_gradient, gradient);
  }
  OPWRIGHT_RULE void operator()(F gradient, F& w, F* slots) const {
    w -= decay * w;
    rule(Clipped(gradient), w, slots);
    w = rules::Between(least_weight, most_weight, w);
  }

  Rule rule;
  F least_gradient, most_gradient, least_weight, most_weight, decay;
};

}  // namespace opwright::embedding
