// How a kernel for the CPU is registered: below any that TensorFlow has itself.
#pragma once

#include "tensorflow/core/framework/op_kernel.h"
#include "tf/status.h"

#define OPWRIGHT_REGISTER_CPU(NAME, ...) \
  REGISTER_KERNEL_BUILDER(               \
      Name(NAME).Device(tensorflow::DEVICE_CPU).Priority(::opwright::kPriority), __VA_ARGS__)
