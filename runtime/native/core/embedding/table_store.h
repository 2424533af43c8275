// Where the tables of an engine and their slots are kept and computed with: what a device
// has to do. The engine decides when.
//
// Pointers to numbers are to the store's own memory. A store may queue work and return before
// it is done, in the order of the calls; ids and gradients may be let go once a call that uses
// them has returned.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/embedding/batch.h"
#include "core/host.h"

namespace opwright {
namespace embedding {

// A core's part of a step's update: by feature, the gradient of its output.
struct CoreGradients {
  const Batch* batch;
  std::vector<const float*> gradients;
};

class TableStore {
 public:
  virtual ~TableStore() = default;

  // Makes room for the tables, all zero. Nothing else is called before, or if it refuses.
  virtual Maybe Allocate(const Configuration& configuration) = 0;

  // Copies a shard's rows of the weights (slot -1) or of a slot, [rows.count, dimension].
  virtual Maybe Write(Host* host, int64_t table, int64_t slot, const Shard& rows,
                      const float* from) = 0;
  virtual Maybe Read(Host* host, int64_t table, int64_t slot, const Shard& rows,
                     float* to) = 0;

  // Fills the output of each feature: [samples, dimension]. Several lookups may be made at
  // once, as nothing else may.
  virtual Maybe Lookup(Host* host, const Batch& batch, float* const* outputs) = 0;

  // Updates all tables from the gradients of all cores; `rates` has one learning rate a
  // table. Refused, nothing has changed.
  virtual Maybe Update(Host* host, const std::vector<CoreGradients>& cores,
                       const std::vector<float>& rates) = 0;

  // Refuses what is wrong with the gradients of one core, if that can be said at once.
  virtual Maybe CheckGradients(Host* host, const std::vector<const float*>& gradients) = 0;
  // Refuses what a device found wrong with an update after that had returned: once, and all
  // that it knows by now or, with `wait`, after the calls that were made. From any thread.
  virtual Maybe CheckUpdates(bool wait) = 0;

  // Makes each float the one with these bits; finds the first one whose bits, as an unsigned
  // number, are above those, and waits to say where.
  virtual Maybe Fill(Host* host, uint32_t bits, int64_t count, float* to) = 0;
  struct Found {
    int64_t at = -1;  // -1: none.
    float value = 0;
  };
  virtual Maybe FindAbove(Host* host, uint32_t bits, int64_t count, const float* values,
                          Found* found) = 0;
};

std::unique_ptr<TableStore> MakeCpuTableStore();

}  // namespace embedding
}  // namespace opwright
