// An exchange that TensorFlow's own runtime carries: what its collectives send each other their
// buffers with, over gRPC between the servers of a cluster.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "embedding/exchange.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::embedding {

// The processes that share tables, as tasks of the cluster: "/job:worker/replica:0/task:1".
struct HostTasks {
  std::vector<std::string> tasks;
  int64_t own = 0;
  double timeout = 60;  // Seconds until one that does not answer is given up.
};

// Of the runtime that the op runs in; `generation` tells exchanges of one process apart, and
// is the same on all hosts.
absl::StatusOr<std::shared_ptr<Exchange>> MakeRuntimeExchange(
    tensorflow::OpKernelContext* context, const HostTasks& hosts, int64_t generation);

}  // namespace opwright::embedding
