#include "cuda/verdict.h"

#include "cuda/plan.h"

namespace opwright {
namespace cuda {

std::string Describe(const embedding::TableConfig& table, const Verdict& verdict) {
  const std::string offences[kOffences] = {
      "starts must begin with 0, end with the number of ids and never fall; those of sample ",
      "ids must be between 0 and " + std::to_string(table.rows - 1) + "; the one at ",
      "weights and scales must be finite; the product at ",
      "gradients must be finite; the value at "};
  const char* const wrong[kOffences] = {" do not", " is not", " is not", " is not"};
  std::string all = Describe(table);
  for (int i = 0; i < kOffences; ++i) {
    const unsigned long long first = verdict.first[i];
    if (first == Verdict::kNone) continue;
    all += (all.back() == 't' ? "; " : ": ") + offences[i] +
           std::to_string(first & ((1ull << 48) - 1)) + " of source " +
           std::to_string(first >> 48) + wrong[i];
  }
  return all;
}

}  // namespace cuda
}  // namespace opwright
