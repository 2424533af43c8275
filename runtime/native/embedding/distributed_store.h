// Tables that several hosts share, as an engine sees them.
#pragma once

#include <vector>

#include "embedding/store.h"

namespace opwright::embedding {

// The hosts take each batch all or none: one that a host refuses or drops is over on all of
// them.
class DistributedStore : public TableStore {
 public:
  // Refuses this program's next batch, which this host has not prepared.
  virtual void Refuse(const Status& why) = 0;
  // Drops a prepared batch, together with its step.
  virtual void Drop(const PreparedRef& batch) = 0;
  // Sends the gradients of a core to the hosts that own their rows. With an error in `own`, it
  // refuses the batch instead. The update comes later.
  virtual Status Share(ExecutionContext* exec, PreparedBatch* batch, const Status& own,
                       const std::vector<const float*>& gradients,
                       const std::vector<float>& rates) = 0;
};

}  // namespace opwright::embedding
