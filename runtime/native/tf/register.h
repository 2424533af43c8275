// How a kernel is registered: below any that TensorFlow has itself.
#pragma once

#include "tensorflow/core/framework/op_kernel.h"
#include "tf/status.h"

#define OPWRIGHT_REGISTER_ON(DEVICE, NAME, HOST_MEMORY, ...)                             \
  REGISTER_KERNEL_BUILDER(                                                               \
      Name(NAME).Device(DEVICE) HOST_MEMORY.Priority(::opwright::kPriority), __VA_ARGS__)

#define OPWRIGHT_REGISTER_CPU(NAME, ...) \
  OPWRIGHT_REGISTER_ON(tensorflow::DEVICE_CPU, NAME, , __VA_ARGS__)

// For the CPU and, in a build for GPUs, for those as well: HOST_MEMORY are clauses that name
// the arguments which stay in the memory of the host there.
#if defined(OPWRIGHT_GPU_KERNELS)
#define OPWRIGHT_REGISTER(NAME, HOST_MEMORY, ...) \
  OPWRIGHT_REGISTER_CPU(NAME, __VA_ARGS__);       \
  OPWRIGHT_REGISTER_ON(tensorflow::DEVICE_GPU, NAME, HOST_MEMORY, __VA_ARGS__)
#else
#define OPWRIGHT_REGISTER(NAME, HOST_MEMORY, ...) OPWRIGHT_REGISTER_CPU(NAME, __VA_ARGS__)
#endif
