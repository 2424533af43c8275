// Heartbeats between the hosts that share tables. They complement TensorFlow's coordination
// service.
#pragma once

#include <sys/types.h>

#include <memory>

#include "embedding/tf/runtime_exchange.h"
#include "tensorflow/core/framework/collective.h"

namespace opwright::embedding {

// If a host does not answer, aborts the waits in TensorFlow's collectives with an error that
// names the host. The coordination service runs in the first host. It detects that another host
// has ended. It does not detect that two other hosts cannot reach each other. If the first host
// itself fails, the service's error names only an RPC. It comes half a timeout and a second
// after the failure. The heartbeats abort the waits earlier.
class HostHeartbeat {
 public:
  HostHeartbeat(tensorflow::CollectiveExecutor* executor, const HostTasks& hosts);
  HostHeartbeat(const HostHeartbeat&) = delete;
  // Stops the heartbeats. Waits for outstanding replies for at most a second.
  ~HostHeartbeat();

 private:
  class HeartbeatLoop;

  const std::shared_ptr<HeartbeatLoop> loop_;
  // The process that the thread belongs to. A fork does not copy the thread to the child.
  const pid_t runs_in_;
};

}  // namespace opwright::embedding
