// Includes XlaOpKernel. With OPWRIGHT_DECLARE_XLA_CLIENT, this file declares the classes of
// XLA's client in place of their headers. The kernels only use pointers to a client, and the
// client's headers take most of the compile time of a file with kernels.
#pragma once

#ifdef OPWRIGHT_DECLARE_XLA_CLIENT
#define XLA_CLIENT_CLIENT_H_
#define XLA_CLIENT_LOCAL_CLIENT_H_
namespace xla {
class Client;
class LocalClient;
}  // namespace xla
#endif

#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
