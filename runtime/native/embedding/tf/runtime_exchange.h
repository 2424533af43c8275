// An exchange over TensorFlow's runtime. It uses the transport with which collectives send
// buffers: gRPC between the servers of a cluster.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "embedding/exchange.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::embedding {

// The processes that share tables, as tasks of the cluster such as
// "/job:worker/replica:0/task:1".
struct HostTasks {
  std::vector<std::string> tasks;
  int64_t own = 0;
  // The number of seconds after which a host that does not answer counts as failed.
  double timeout = 60;
};

// Creates an exchange over the runtime of the op. `generation` distinguishes the exchanges of
// one process. It must be the same on all hosts.
absl::StatusOr<std::shared_ptr<Exchange>> MakeRuntimeExchange(
    tensorflow::OpKernelContext* context, const HostTasks& hosts, int64_t generation);

}  // namespace opwright::embedding
