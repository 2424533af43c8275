// XLA's kernels of ops. With OPWRIGHT_DECLARE_XLA_CLIENT they come without the headers of XLA's
// client: the kernels only point to a client, and its headers take most of the time that a file
// with such kernels compiles.
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
