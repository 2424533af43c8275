// Functions that ops with lookups share.
#pragma once

#include <string>
#include <vector>

#include "base/tf/status.h"
#include "embedding/batch.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::embedding {

inline Ints IntsOf(const tensorflow::Tensor& tensor) {
  return {tensor.data(), tensor.dtype() == tensorflow::DT_INT64, tensor.NumElements()};
}

// Returns one combiner for each table, or none if there are no names.
inline absl::Status CombinersOf(const std::vector<std::string>& names,
                                std::vector<Combiner>* combiners) {
  for (const std::string& name : names) {
    if (name != "sum" && name != "mean" && name != "sqrtn") {
      return Invalid("combiners",
                     "each must be 'sum', 'mean' or 'sqrtn', one is '" + name + "'");
    }
    combiners->push_back(name == "sum"    ? Combiner::kSum
                         : name == "mean" ? Combiner::kMean
                                          : Combiner::kSqrtN);
  }
  return absl::OkStatus();
}

// Reads the attr `combiners`.
inline absl::Status ReadCombiners(tensorflow::OpKernelConstruction* context,
                                  std::vector<Combiner>* combiners) {
  std::vector<std::string> names;
  TF_RETURN_IF_ERROR(context->GetAttr("combiners", &names));
  return CombinersOf(names, combiners);
}

}  // namespace opwright::embedding
