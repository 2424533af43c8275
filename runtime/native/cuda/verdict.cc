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
    const Offence offence = static_cast<Offence>(i);
    if (verdict.first[offence] == Verdict::kNone) continue;
    all += (all.back() == 't' ? "; " : ": ") + offences[i] +
           std::to_string(verdict.position(offence)) + " of source " +
           std::to_string(verdict.source(offence)) + wrong[i];
  }
  return all;
}

}  // namespace cuda
}  // namespace opwright
