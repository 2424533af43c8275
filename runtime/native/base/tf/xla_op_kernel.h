// Includes XlaOpKernel. With OPWRIGHT_DECLARE_XLA_CLIENT, this file declares the classes of
// XLA's client and TensorFlow's compiler in place of their headers. The kernels only use
// pointers to them, and the headers take most of the compile time of a file with kernels.
#pragma once

#ifdef OPWRIGHT_DECLARE_XLA_CLIENT
#define XLA_CLIENT_CLIENT_H_
#define XLA_CLIENT_LOCAL_CLIENT_H_
#define TENSORFLOW_COMPILER_TF2XLA_XLA_COMPILER_H_
namespace xla {
class Client;
class LocalClient;
}  // namespace xla
namespace tensorflow {
class XlaCompiler;
}  // namespace tensorflow
#endif

#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
