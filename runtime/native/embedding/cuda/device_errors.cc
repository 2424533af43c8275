#include "embedding/cuda/device_errors.h"

#include "embedding/cuda/plan.h"

namespace opwright::embedding::cuda {

std::string Describe(const TableConfig& table, const DeviceErrors& errors) {
  const std::string problems[kErrorKinds] = {
      "samples must be there and not descend; that of id ",
      "starts must begin with 0, end with the number of ids and never fall; those of sample ",
      "ids must be between 0 and " + std::to_string(table.rows - 1) + "; the one at ",
      "weights and scales must be finite; the product at ",
      "gradients must be finite; the value at "};
  const char* const wrong[kErrorKinds] = {" is not", " do not", " is not", " is not",
                                          " is not"};
  std::string all = Describe(table);
  for (int i = 0; i < kErrorKinds; ++i) {
    const ErrorKind kind = static_cast<ErrorKind>(i);
    if (errors.first[kind] == DeviceErrors::kNone) continue;
    all += (all.back() == 't' ? "; " : ": ") + problems[i] +
           std::to_string(errors.position(kind)) + " of source " +
           std::to_string(errors.source(kind)) + wrong[i];
  }
  return all;
}

}  // namespace opwright::embedding::cuda
