// Where the tables of an engine and their slots are kept and computed with: what a device
// has to do. The engine decides when.
//
// Activations and gradients are in the store's own memory, all else in the host's. A store may
// queue work and return before it is done, in the order of the calls; what callers bring may be
// let go once a call that uses it has returned.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/execution_context.h"
#include "embedding/batch.h"
#include "embedding/packed.h"

namespace opwright::embedding {

// Keeps memory alive.
using Owner = std::shared_ptr<const void>;

// Memory for a batch's activations. A derived class of its allocator keeps it alive.
class OutputBuffers {
 public:
  explicit OutputBuffers(std::vector<float*> data) : data_(std::move(data)) {}
  virtual ~OutputBuffers() = default;

  // By feature: [samples, dimension].
  const std::vector<float*>& data() const { return data_; }

 private:
  const std::vector<float*> data_;
};
using OutputBuffersRef = std::shared_ptr<const OutputBuffers>;
// Null: there is no memory for them.
using AllocateOutputs = std::function<OutputBuffersRef()>;

// A batch as a store looks it up and updates with it: on a GPU, with a copy of its ids there.
// A store gets only batches that it prepared itself. Lookups and updates change their state.
class PreparedBatch {
 public:
  explicit PreparedBatch(std::shared_ptr<const Batch> batch) : batch_(std::move(batch)) {}
  PreparedBatch(const PreparedBatch&) = delete;
  PreparedBatch& operator=(const PreparedBatch&) = delete;
  virtual ~PreparedBatch() = default;

  const Batch& batch() const { return *batch_; }
  // Whether it was refused for good: nothing will come of it.
  virtual bool over() const { return false; }
  // Where its activations go already, for a lookup to go on with; null: nowhere yet.
  virtual OutputBuffersRef outputs() const { return nullptr; }

 private:
  const std::shared_ptr<const Batch> batch_;
};
using PreparedRef = std::shared_ptr<PreparedBatch>;

// A core's part of a step's update: by feature, the gradient of its output.
struct CoreGradients {
  PreparedBatch* batch;
  std::vector<const float*> gradients;
};

class TableStore {
 public:
  virtual ~TableStore() = default;

  // Allocates the tables, all zero. Nothing else is called before, or if it refuses.
  virtual Status Allocate(const Configuration& configuration) = 0;

  // Copies a shard's rows of the weights (slot -1) or of a slot, [rows.count, columns(slot)].
  virtual Status Write(ExecutionContext* exec, int64_t table, int64_t slot, const Shard& rows,
                       const float* from) = 0;
  virtual Status Read(ExecutionContext* exec, int64_t table, int64_t slot, const Shard& rows,
                      float* to) = 0;

  // Prepares a batch for lookup and update. Several may be prepared at once.
  virtual StatusOr<PreparedRef> Prepare(ExecutionContext* exec,
                                        std::shared_ptr<const Batch> batch) = 0;
  // The same before it is the batch's turn, if that saves time and there is memory for it;
  // else null, and Prepare comes later.
  virtual PreparedRef PrepareAhead(ExecutionContext*, std::shared_ptr<const Batch>) {
    return nullptr;
  }
  // Begins with the lookup of a batch whose turn comes next, if there are threads for that;
  // else null. What a write to the tables then makes stale, Lookup looks up again.
  virtual PreparedRef LookUpAhead(ExecutionContext*, std::shared_ptr<const Batch>,
                                  const AllocateOutputs& /*allocate_outputs*/) {
    return nullptr;
  }

  // Fills the output of each feature: [samples, dimension]. Several lookups may be made at
  // once, as nothing else may.
  virtual Status Lookup(ExecutionContext* exec, PreparedBatch* batch,
                        float* const* outputs) = 0;

  // The same of bags in one piece, which it checks, of any number of samples: [samples,
  // columns], those of the features side by side.
  virtual Status LookUpPacked(ExecutionContext*, const PackedBags&, float* /*activations*/) {
    return UnimplementedError(
        "only tables that one process has on the CPU can be looked up outside its steps: "
        "enqueue the ids, and receive their activations");
  }

  // Updates all tables from the gradients of all cores; `rates` has one learning rate a
  // table. Refused, nothing has changed.
  virtual Status Update(ExecutionContext* exec, const std::vector<CoreGradients>& cores,
                        const std::vector<float>& rates) = 0;

  // Refuses what is wrong with the gradients of one core, if that can be said at once.
  virtual Status CheckGradients(ExecutionContext* exec,
                                const std::vector<const float*>& gradients) = 0;
  // Refuses what a device found wrong with an update after that had returned: once, and all
  // that it knows by now or, with `wait`, after the calls that were made. From any thread.
  virtual Status CheckUpdates(bool wait) = 0;
};

// To wake a thread takes as long as to look up so many bytes.
constexpr int64_t kFewLookupBytes = 256 << 10;

// Threads share what takes more than `few_bytes`.
std::unique_ptr<TableStore> MakeCpuTableStore(int64_t few_bytes = kFewLookupBytes);

}  // namespace opwright::embedding
