// The TensorFlow devices on which embedding tables can be.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/tf/register.h"
#include "embedding/store.h"
#include "tensorflow/core/framework/op_kernel.h"

// Registers a kernel for the CPU and, in a library with GPU kernels, also for GPUs. HOST_MEMORY
// lists the arguments that are in host memory when the op runs on a GPU.
#define OPWRIGHT_REGISTER(NAME, HOST_MEMORY, ...) \
  OPWRIGHT_REGISTER_BOTH(NAME, ::opwright::kPriority, HOST_MEMORY, __VA_ARGS__)
// Registers an op that TensorFlow places on the CPU by default. With equal priorities,
// TensorFlow would prefer a GPU.
#define OPWRIGHT_REGISTER_CPU_FIRST(NAME, HOST_MEMORY, ...) \
  OPWRIGHT_REGISTER_BOTH(NAME, ::opwright::kPriority - 1, HOST_MEMORY, __VA_ARGS__)
#define OPWRIGHT_REGISTER_BOTH(NAME, GPU_PRIORITY, HOST_MEMORY, ...) \
  OPWRIGHT_REGISTER_CPU(NAME, __VA_ARGS__);                          \
  OPWRIGHT_REGISTER_KERNEL_IF(                                       \
      ::opwright::embedding::kHasGpuKernels, NAME,                   \
      .Device(tensorflow::DEVICE_GPU) HOST_MEMORY.Priority(GPU_PRIORITY), __VA_ARGS__)

namespace opwright::embedding {

// Whether tables can be on GPUs. It is a constant, so that it is initialized before any static
// object.
extern const bool kHasGpuKernels;

// The device that an op runs on. Ops on equal devices can use the same tables.
struct OpDevice {
  // The name of the GPU. It is empty for the CPU. All CPU devices share one memory.
  std::string gpu;
  void* stream = nullptr;  // The stream on which the GPU's ops queue their work.

  bool operator==(const OpDevice& other) const {
    return gpu == other.gpu && stream == other.stream;
  }
};
OpDevice DeviceOf(tensorflow::OpKernelContext* context);

// Returns whether an input of the op is in GPU memory. Inputs that the kernel registered with
// HostMemory are not counted.
bool HasDeviceMemory(tensorflow::OpKernelContext* context);

// Copies tensors of an op from device memory to the host and then calls `then` from any thread.
// No thread is blocked meanwhile.
using OnHost = std::function<void(const absl::Status&, std::vector<tensorflow::Tensor>)>;
void CopyToHost(tensorflow::OpKernelContext* context, std::vector<tensorflow::Tensor> from,
                OnHost then);

// Creates a store for tables on the device of the op. The store may outlive the op.
std::unique_ptr<TableStore> MakeTableStore(tensorflow::OpKernelContext* context);

}  // namespace opwright::embedding
