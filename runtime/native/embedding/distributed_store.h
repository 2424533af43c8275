// The store of an engine whose tables are distributed over several hosts.
#pragma once

#include <vector>

#include "embedding/store.h"

namespace opwright::embedding {

// Either all hosts complete a batch, or none does. If one host refuses or drops a batch, all
// hosts drop it.
class DistributedStore : public TableStore {
 public:
  // Refuses the next batch of the program, which this host failed to prepare. All hosts then
  // drop it.
  virtual void Refuse(const Status& why) = 0;
  // Drops a prepared batch. All hosts then drop it.
  virtual void Drop(const PreparedRef& batch) = 0;
  // Sends the gradients of a core to the hosts that own their rows. If `own`, the status of
  // this host, is an error, all hosts refuse the batch instead. The tables are updated later,
  // by Update.
  virtual Status Share(ExecutionContext* exec, PreparedBatch* batch, const Status& own,
                       const std::vector<const float*>& gradients,
                       const std::vector<float>& rates) = 0;
};

}  // namespace opwright::embedding
