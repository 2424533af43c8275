// Watches over hosts that share tables, beside TensorFlow's coordination service.
#pragma once

#include <sys/types.h>

#include <memory>

#include "embedding/tf/runtime_exchange.h"
#include "tensorflow/core/framework/collective.h"

namespace opwright::embedding {

// Ends waits in TensorFlow's collectives for hosts that do not answer, with an error that names
// them. The coordination service is part of the first host. It hears of the others that have
// ended, but not of two that cannot reach each other; of itself it says, half a patience and a
// second after, which RPC was not answered. This asks before that.
class HostWatch {
 public:
  HostWatch(tensorflow::CollectiveExecutor* executor, const HostTasks& hosts);
  HostWatch(const HostWatch&) = delete;
  // Nothing is asked any more; who is being asked is waited for, but not for long.
  ~HostWatch();

 private:
  class Questions;

  const std::shared_ptr<Questions> questions_;
  const pid_t runs_in_;  // The thread does not come along when a process forks.
};

}  // namespace opwright::embedding
