#include "embedding/optimizers.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

namespace opwright::embedding {
namespace {

std::string Quoted(const char* text) {
  return text ? "\"" + std::string(text) + "\"" : std::string("null");
}

// The bounds of a range, as text. Empty if it has all finite numbers.
const char* Bounds(Range range) {
  switch (range) {
    case Range::kNotNegative: return "at least 0";
    case Range::kPositive: return "above 0";
    case Range::kNotPositive: return "at most 0";
    case Range::kFraction: return "from 0 to 1";
    default: return "";
  }
}

template <int N>
std::string List(const Named (&all)[N], const char* (*text)(const Named&)) {
  std::string list;
  for (int i = 0; i < N && all[i].name; ++i) list += (i ? ", " : "") + Quoted(text(all[i]));
  return "[" + list + "]";
}

const char* NameOf(const Named& one) { return one.name; }
const char* BoundsOf(const Named& one) { return Bounds(one.range); }

}  // namespace

bool Within(Range range, float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return Within(range, bits);
}

std::string Words(Range range) {
  if (range == Range::kClear) return "clear";
  const std::string bounds = Bounds(range);
  return bounds.empty() ? "finite" : "finite and " + bounds;
}

std::string Number(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  double exact = static_cast<double>(value);
  if ((bits & 0x7f800000u) == 0) {  // A conversion may turn a denormal into zero.
    exact = std::copysign(std::ldexp(static_cast<double>(bits & 0x7fffffu), -149), exact);
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", exact);
  return text;
}

std::string WrongRate(Optimizer optimizer, const Hyper& hyper) {
  const float rate = hyper.learning_rate;
  const bool divides =
      optimizer == Optimizer::kFtrl && hyper.values[rules::Ftrl::kMultiplyLinearByLr] == 0;
  if (!Within(divides ? Range::kPositive : Range::kFinite, rate)) {
    const char* const why =
        divides ? ", as ftrl divides by it where it does not multiply linears by it" : "";
    return "must be " + Words(divides ? Range::kPositive : Range::kFinite) + why + "; is " +
           Number(rate);
  }
  if (!Within(Range::kFraction, hyper.decay)) {
    return "is " + Number(rate) + ", which makes the part of a weight that decays " +
           Number(hyper.decay) + "; that must be " + Words(Range::kFraction);
  }
  return "";
}

const std::string& RegistryAsJson() {
  static const std::string json = [] {
    std::string all;
    for (const OptimizerTraits& traits : kOptimizerRegistry) {
      all += all.empty() ? "[" : ",\n ";
      all += "{\"field\": " + Quoted(traits.field) +
             ", \"op_name\": " + Quoted(traits.op_name) +
             ", \"slots\": " + List(traits.slots, NameOf) +
             ", \"slot_bounds\": " + List(traits.slots, BoundsOf) +
             ", \"hyper\": " + List(traits.hyper, NameOf) +
             ", \"hyper_bounds\": " + List(traits.hyper, BoundsOf) +
             ", \"formula\": " + Quoted(traits.formula) +
             ", \"source\": " + Quoted(traits.source) +
             ", \"row_wise\": " + (traits.row_wise ? "true" : "false") + "}";
    }
    return all + "]";
  }();
  return json;
}

}  // namespace opwright::embedding
