// Lookups that are not part of a step, in the tables of this process. They are called from an
// op, or directly from Python without an op.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/execution_context.h"
#include "base/tf/dlpack.h"
#include "embedding/packed.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace opwright::embedding {

// `allocate` allocates the activations once their shape is known.
using Allocate = std::function<absl::Status(const tensorflow::TensorShape&, float**)>;
absl::Status LookUpPacked(PackedBags bags, int64_t weights, ExecutionContext* exec,
                          const Allocate& allocate);

// Does the lookup of LookUpPacked for vectors that Python passes. `row_splits`, `weights` and
// `combiners` may be null. `combiners` contains names separated by commas. Returns null if the
// lookup is impossible here. The caller then calls the op, which reports the reason.
DLManagedTensor* LookUpAtOnce(const DLTensor& ids, const DLTensor* row_splits,
                              const DLTensor* weights, const char* combiners);

}  // namespace opwright::embedding
