// Macros that register a kernel. The kernel is wrapped in Guarded, and its priority is lower
// than that of TensorFlow's own kernels.
#pragma once

#include <optional>

#include "base/tf/guard.h"
#include "base/tf/status.h"
#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/op_kernel.h"

// Registers like REGISTER_KERNEL_BUILDER, which cannot use MakeGuarded. CLAUSES are calls on a
// KernelDefBuilder. The last argument is the class of the kernel.
#define OPWRIGHT_REGISTER_KERNEL(NAME, CLAUSES, ...) \
  OPWRIGHT_REGISTER_KERNEL_IF(true, NAME, CLAUSES.Priority(::opwright::kPriority), __VA_ARGS__)
// Registers only if CONDITION is true. CLAUSES must set the priority.
#define OPWRIGHT_REGISTER_KERNEL_IF(CONDITION, NAME, CLAUSES, ...) \
  OPWRIGHT_REGISTER_NUMBERED(__COUNTER__, CONDITION, NAME, CLAUSES, __VA_ARGS__)
#define OPWRIGHT_REGISTER_NUMBERED(NUMBER, CONDITION, NAME, CLAUSES, ...) \
  OPWRIGHT_REGISTER_AS(NUMBER, CONDITION, NAME, CLAUSES, __VA_ARGS__)
#define OPWRIGHT_REGISTER_AS(NUMBER, CONDITION, NAME, CLAUSES, ...)                         \
  static const auto opwright_kernel_##NUMBER =                                              \
      (CONDITION) ? std::make_optional<::tensorflow::kernel_factory::OpKernelRegistrar>(    \
                        ::tensorflow::KernelDefBuilder(NAME) CLAUSES.Build(), #__VA_ARGS__, \
                        &::opwright::MakeGuarded<__VA_ARGS__>)                              \
                  : std::nullopt

#define OPWRIGHT_REGISTER_CPU(NAME, ...) \
  OPWRIGHT_REGISTER_KERNEL(NAME, .Device(tensorflow::DEVICE_CPU), __VA_ARGS__)
