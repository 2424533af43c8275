// Where the tables of an engine and their slots are kept and computed with: what a device
// has to do. The engine decides when.
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
  virtual void Write(Host* host, int64_t table, int64_t slot, const Shard& rows,
                     const float* from) = 0;
  virtual void Read(Host* host, int64_t table, int64_t slot, const Shard& rows,
                    float* to) const = 0;

  // Fills the output of each feature: [samples, dimension].
  virtual void Lookup(Host* host, const Batch& batch, float* const* outputs) const = 0;

  // Updates all tables from the gradients of all cores; `rates` has one learning rate a
  // table. Throws std::bad_alloc before anything has changed.
  virtual void Update(Host* host, const std::vector<CoreGradients>& cores,
                      const std::vector<float>& rates) = 0;

  // Whether all of them are finite.
  virtual bool Finite(Host* host, int64_t count, const float* values) const = 0;
};

std::unique_ptr<TableStore> MakeCpuTableStore();

}  // namespace embedding
}  // namespace opwright
