// Heartbeats between the hosts that share tables, in addition to TensorFlow's coordination
// service.
#pragma once

#include <sys/types.h>

#include <memory>

#include "embedding/tf/runtime_exchange.h"
#include "tensorflow/core/framework/collective.h"

namespace opwright::embedding {

// Ends waits in TensorFlow's collectives for hosts that do not answer, with an error that names
// them. The coordination service is part of the first host. It hears of the others that have
// ended, but not of two that cannot reach each other; of itself it says, half a timeout and a
// second after, which RPC was not answered. Heartbeats end the waits before that.
class HostHeartbeat {
 public:
  HostHeartbeat(tensorflow::CollectiveExecutor* executor, const HostTasks& hosts);
  HostHeartbeat(const HostHeartbeat&) = delete;
  // Stops the heartbeats. Waits for open replies, but not for long.
  ~HostHeartbeat();

 private:
  class HeartbeatLoop;

  const std::shared_ptr<HeartbeatLoop> loop_;
  const pid_t runs_in_;  // The thread does not come along when a process forks.
};

}  // namespace opwright::embedding
