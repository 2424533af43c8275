// Lookups that are no part of a step, in the tables of this process: as an op, and for Python
// without one, which the library can call itself.
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

// `allocate` allocates activations of a shape, once that is known.
using Allocate = std::function<absl::Status(const tensorflow::TensorShape&, float**)>;
absl::Status LookUpPacked(PackedBags bags, int64_t weights, ExecutionContext* exec,
                          const Allocate& allocate);

// The same for vectors as Python brings them; row splits and weights may be null, and so may
// the combiners: names with commas between them. Null: not done, for a reason that the op says.
DLManagedTensor* LookUpAtOnce(const DLTensor& ids, const DLTensor* row_splits,
                              const DLTensor* weights, const char* combiners);

}  // namespace opwright::embedding
