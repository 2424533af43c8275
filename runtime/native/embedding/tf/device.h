// The devices of TensorFlow that embedding tables can lie on.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/tf/register.h"
#include "embedding/store.h"
#include "tensorflow/core/framework/op_kernel.h"

// For the CPU and, in a library with kernels for GPUs, for those as well: HOST_MEMORY are
// clauses that name the arguments which stay in the memory of the host there.
#define OPWRIGHT_REGISTER(NAME, HOST_MEMORY, ...) \
  OPWRIGHT_REGISTER_BOTH(NAME, ::opwright::kPriority, HOST_MEMORY, __VA_ARGS__)
// The same of an op that TensorFlow shall put on the CPU by default: it prefers a GPU
// otherwise.
#define OPWRIGHT_REGISTER_CPU_FIRST(NAME, HOST_MEMORY, ...) \
  OPWRIGHT_REGISTER_BOTH(NAME, ::opwright::kPriority - 1, HOST_MEMORY, __VA_ARGS__)
#define OPWRIGHT_REGISTER_BOTH(NAME, GPU_PRIORITY, HOST_MEMORY, ...) \
  OPWRIGHT_REGISTER_CPU(NAME, __VA_ARGS__);                          \
  OPWRIGHT_REGISTER_KERNEL_IF(                                       \
      ::opwright::embedding::kHasGpuKernels, NAME,                   \
      .Device(tensorflow::DEVICE_GPU) HOST_MEMORY.Priority(GPU_PRIORITY), __VA_ARGS__)

namespace opwright::embedding {

// Whether tables can lie on GPUs. A constant, so that it is known before any static is made.
extern const bool kHasGpuKernels;

// Where an op runs: ops on the same device can use the same tables.
struct OpDevice {
  std::string gpu;         // Its name; empty: the CPU, whose devices share a memory.
  void* stream = nullptr;  // That the GPU's ops queue their work on.

  bool operator==(const OpDevice& other) const {
    return gpu == other.gpu && stream == other.stream;
  }
};
OpDevice DeviceOf(tensorflow::OpKernelContext* context);

// Whether the op has in the memory of a GPU what its kernel is not registered to have in the
// host's.
bool HasDeviceMemory(tensorflow::OpKernelContext* context);

// Copies such tensors to the host, and then calls `then`, from any thread. No thread waits.
using OnHost = std::function<void(const absl::Status&, std::vector<tensorflow::Tensor>)>;
void CopyToHost(tensorflow::OpKernelContext* context, std::vector<tensorflow::Tensor> from,
                OnHost then);

// For tables on the device of the op. It needs nothing of the op later.
std::unique_ptr<TableStore> MakeTableStore(tensorflow::OpKernelContext* context);

}  // namespace opwright::embedding
