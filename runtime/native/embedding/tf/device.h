// The devices of TensorFlow that embedding tables can lie on.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "embedding/store.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::embedding {

// Where an op runs: ops on the same device can use the same tables.
struct OpDevice {
  std::string gpu;         // Its name; empty: the CPU, whose devices share a memory.
  void* stream = nullptr;  // That the GPU's ops queue their work on.

  bool operator==(const OpDevice& other) const {
    return gpu == other.gpu && stream == other.stream;
  }
};
OpDevice DeviceOf(tensorflow::OpKernelContext* context);

// For tables on the device of the op. It needs nothing of the op later.
std::unique_ptr<TableStore> MakeTableStore(tensorflow::OpKernelContext* context);

// Of values in the memory of the op's device: makes each float the one with these bits,
Status FillWithBits(tensorflow::OpKernelContext* context, uint32_t bits, int64_t count,
                    float* to);
// and finds the first one outside of a range, which it waits for.
StatusOr<std::optional<Outside>> FindOutside(tensorflow::OpKernelContext* context,
                                             ExecutionContext* exec, Range range, int64_t count,
                                             const float* values);

}  // namespace opwright::embedding
