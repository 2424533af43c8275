#include "core/embedding/optimizers.h"

#include <string>

namespace opwright {
namespace embedding {
namespace {

constexpr OptimizerFacts kFacts[] = {
    {Optimizer::kSgd, "stochastic_gradient_descent", "StochasticGradientDescent",
     {}, {},
     "w -= lr*g",
     "TensorFlow, ApplyGradientDescent"},
    {Optimizer::kAdagrad, "adagrad", "Adagrad",
     {"accumulators"}, {},
     "a += g^2; w -= lr*g/sqrt(a)",
     "Duchi et al. 2011; TensorFlow, ApplyAdagrad"},
    {Optimizer::kAdagradMomentum, "adagrad_momentum", "AdagradMomentum",
     {"accumulators", "momenta"},
     {"momentum", "use_nesterov", "exponent", "beta2", "epsilon"},
     "a = beta2 == 1 ? a + g^2 : beta2*a + (1-beta2)*g^2; s = g*(a+epsilon)^(-1/exponent); "
     "m = momentum*m + s; w -= lr*(use_nesterov ? momentum*m + s : m)",
     "TensorFlow, tf.tpu.experimental.embedding.AdagradMomentum"},
    {Optimizer::kAdam, "adam", "ADAM",
     {"momenta", "velocities"},
     {"beta1", "beta2", "epsilon", "use_non_lazy_adam", "use_sum_inside_sqrt"},
     "m = beta1*m + (1-beta1)*g; v = beta2*v + (1-beta2)*g^2; w -= lr*m/(use_sum_inside_sqrt "
     "? sqrt(v + epsilon^2) : sqrt(v) + epsilon)",
     "Kingma and Ba 2015, bias correction left to lr; TensorFlow, LazyAdam"},
    {Optimizer::kFtrl, "ftrl", "FTRL",
     {"accumulators", "linears"},
     {"l1", "l2", "lr_power", "beta", "multiply_linear_by_lr"},
     "a' = a + g^2; d = a'^(-lr_power) - a^(-lr_power); without multiply_linear_by_lr: "
     "z += g - d*w/lr; w = (clip(z, -l1, l1) - z)/((a'^(-lr_power) + beta)/lr + 2*l2); with "
     "it: z += lr*g - d*w; w = (clip(z, -lr*l1, lr*l1) - z)/(a'^(-lr_power) + beta + 2*lr*l2)",
     "McMahan et al. 2013; TensorFlow, ApplyFtrl"},
    {Optimizer::kMomentum, "momentum", "Momentum",
     {"momenta"}, {"momentum", "use_nesterov"},
     "m = momentum*m + g; w -= lr*(use_nesterov ? g + momentum*m : m)",
     "TensorFlow, ApplyMomentum"},
    {Optimizer::kRmsProp, "rms_prop", "RMSProp",
     {"ms", "mom"}, {"rho", "momentum", "epsilon"},
     "ms += (1-rho)*(g^2 - ms); mom = momentum*mom + lr*g/sqrt(ms + epsilon); w -= mom",
     "TensorFlow, ApplyRMSProp"},
    {Optimizer::kCenteredRmsProp, "centered_rms_prop", "CenteredRMSProp",
     {"ms", "mom", "mg"}, {"rho", "momentum", "epsilon"},
     "ms += (1-rho)*(g^2 - ms); mg += (1-rho)*(g - mg); mom = momentum*mom + "
     "lr*g/sqrt(ms - mg^2 + epsilon); w -= mom",
     "TensorFlow, ApplyCenteredRMSProp"},
    {Optimizer::kAdadelta, "adadelta", "Adadelta",
     {"accumulators", "updates"}, {"rho", "epsilon"},
     "a = rho*a + (1-rho)*g^2; u = g*sqrt(d + epsilon)/sqrt(a + epsilon); w -= lr*u; "
     "d = rho*d + (1-rho)*u^2",
     "Zeiler 2012; TensorFlow, ApplyAdadelta"},
    {Optimizer::kProximalAdagrad, "proximal_adagrad", "ProximalAdagrad",
     {"accumulators"}, {"l1", "l2"},
     "a += g^2; eta = lr/sqrt(a); p = w - eta*g; w = sign(p)*max(|p| - eta*l1, 0)/(1 + eta*l2)",
     "Duchi and Singer 2009; TensorFlow, ApplyProximalAdagrad"},
    {Optimizer::kFrequencyEstimator, "frequency_estimator", "FrequencyEstimator",
     {"last_hit_step"}, {"tau", "max_delta", "outlier_threshold", "weight_exponent"},
     "delta = step - last_hit_step; c = min(delta, max_delta); w = delta >= "
     "outlier_threshold*w ? c : (1-tau)*w + tau*c; last_hit_step = step; the learning rate, "
     "which must be dynamic, carries step",
     "TensorFlow, FrequencyEstimatorParameters"},
    {Optimizer::kProximalYogi, "proximal_yogi", "ProximalYogi",
     {"v", "m"}, {"l1", "l2", "beta1", "beta2", "epsilon"},
     "v += (1-beta2)*sign(g^2 - v)*g^2; m = beta1*m + (1-beta1)*g; eta = lr/(sqrt(v) + "
     "epsilon); p = w - eta*m; w = sign(p)*max(|p| - eta*l1, 0)/(1 + eta*l2)",
     "Zaheer et al. 2018, bias correction left to lr; TensorFlow Addons, Yogi"},
    {Optimizer::kLion, "lion", nullptr,
     {"momenta"}, {"beta1", "beta2", "use_non_lazy_lion"},
     "w -= lr*sign(beta1*m + (1-beta1)*g); m = beta2*m + (1-beta2)*g",
     "Chen et al. 2023"},
    {Optimizer::kBoundedAdagrad, "bounded_adagrad", nullptr,
     {"accumulators"}, {}, nullptr, nullptr},
    {Optimizer::kFrequencyAwareAdagrad, "frequency_aware_adagrad", nullptr,
     {"accumulators", "counters"}, {}, nullptr, nullptr},
    {Optimizer::kMdlAdagradLight, "mdl_adagrad_light", "MDLAdagradLight",
     {"accumulators", "weights", "benefits"}, {}, nullptr, nullptr},
    {Optimizer::kOnlineYogi, "online_yogi", nullptr,
     {"vs", "linears"}, {}, nullptr, nullptr},
    {Optimizer::kUserDefinedProgram, "user_defined_program", nullptr, {}, {}, nullptr, nullptr},
    {Optimizer::kAssign, "assign", nullptr, {}, {}, nullptr, nullptr},
};
static_assert(sizeof kFacts / sizeof *kFacts == kOptimizers);

std::string Quoted(const char* text) {
  return text ? "\"" + std::string(text) + "\"" : std::string("null");
}

template <int N>
std::string List(const char* const (&names)[N]) {
  std::string list;
  for (int i = 0; i < N && names[i]; ++i) list += (i ? ", " : "") + Quoted(names[i]);
  return "[" + list + "]";
}

}  // namespace

const OptimizerFacts* AllFacts() { return kFacts; }

const OptimizerFacts& FactsOf(Optimizer optimizer) {
  return kFacts[static_cast<int>(optimizer)];
}

const std::string& FactsAsJson() {
  static const std::string json = [] {
    std::string all;
    for (const OptimizerFacts& facts : kFacts) {
      all += all.empty() ? "[" : ",\n ";
      all += "{\"field\": " + Quoted(facts.field) + ", \"op_name\": " + Quoted(facts.op_name) +
             ", \"slots\": " + List(facts.slots) + ", \"hyper\": " + List(facts.hyper) +
             ", \"formula\": " + Quoted(facts.formula) + ", \"source\": " +
             Quoted(facts.source) + "}";
    }
    return all + "]";
  }();
  return json;
}

}  // namespace embedding
}  // namespace opwright
