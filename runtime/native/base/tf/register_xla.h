// Registers kernels for XLA, which compiles them under jit_compile and for TPUs.
//
// Kernels are registered one by one and not with REGISTER_XLA_OP. In this way they can have a
// priority, and registration also works after XLA's first compilation. No kernels are
// registered for GPUs, because auto-clustering would then compile nodes that TensorFlow's GPU
// kernels run.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/tf/register.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"

// CLAUSES are calls on a KernelDefBuilder, or empty. The last argument is the class of the
// kernel.
#define OPWRIGHT_REGISTER_XLA(NAME, CLAUSES, ...)                              \
  OPWRIGHT_REGISTER_KERNEL(NAME, .Device("XLA_CPU_JIT") CLAUSES, __VA_ARGS__); \
  OPWRIGHT_REGISTER_KERNEL(NAME, .Device("XLA_TPU_JIT") CLAUSES, __VA_ARGS__)

namespace opwright {

// Makes inputs of ops compile-time constants. XLA reads which inputs these are only from
// XlaOpRegistry. The entries are for a device that does not exist, so that XLA creates no
// second kernels from them. Returns true.
inline bool RegisterXlaConstants(std::initializer_list<const char*> ops,
                                 std::initializer_list<const char*> inputs) {
  // It sorts all names, which takes too long to be repeated.
  static const std::vector<std::string> known =
      tensorflow::XlaOpRegistry::GetAllRegisteredOps();
  for (const char* name : ops) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    auto builder = tensorflow::XlaOpRegistrationBuilder::Name(name);
    builder.Device("OPWRIGHT_NONE");
    for (const char* input : inputs) builder.CompileTimeConstantInput(input);
    tensorflow::XlaOpRegistrar registrar(builder.Build(nullptr));
  }
  return true;
}

}  // namespace opwright
