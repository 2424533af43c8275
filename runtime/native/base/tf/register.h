// How a kernel is registered: below any that TensorFlow has itself, and guarded.
#pragma once

#include "base/tf/guard.h"
#include "base/tf/status.h"
#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/op_kernel.h"

// As REGISTER_KERNEL_BUILDER, which has no place for MakeGuarded: CLAUSES are those of a
// KernelDefBuilder, the last argument is the kernel's class.
#define OPWRIGHT_REGISTER_KERNEL(NAME, CLAUSES, ...) \
  OPWRIGHT_REGISTER_NUMBERED(__COUNTER__, NAME, CLAUSES, __VA_ARGS__)
#define OPWRIGHT_REGISTER_NUMBERED(NUMBER, NAME, CLAUSES, ...) \
  OPWRIGHT_REGISTER_AS(NUMBER, NAME, CLAUSES, __VA_ARGS__)
#define OPWRIGHT_REGISTER_AS(NUMBER, NAME, CLAUSES, ...)                                    \
  static const ::tensorflow::kernel_factory::OpKernelRegistrar opwright_kernel_##NUMBER(    \
      ::tensorflow::KernelDefBuilder(NAME) CLAUSES.Priority(::opwright::kPriority).Build(), \
      #__VA_ARGS__, &::opwright::MakeGuarded<__VA_ARGS__>)

#define OPWRIGHT_REGISTER_ON(DEVICE, NAME, HOST_MEMORY, ...) \
  OPWRIGHT_REGISTER_KERNEL(NAME, .Device(DEVICE) HOST_MEMORY, __VA_ARGS__)

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
