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

// Memory for a batch's activations, by feature.
struct Room {
  std::vector<float*> outputs;
  Owner owner;
};

// A batch as a store looks it up and updates with it: on a GPU, with a copy of its ids there.
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
  virtual const Room* room() const { return nullptr; }

 private:
  const std::shared_ptr<const Batch> batch_;
};
using PreparedRef = std::shared_ptr<const PreparedBatch>;

// A core's part of a step's update: by feature, the gradient of its output.
struct CoreGradients {
  const PreparedBatch* batch;
  std::vector<const float*> gradients;
};

class TableStore {
 public:
  virtual ~TableStore() = default;

  // Makes room for the tables, all zero. Nothing else is called before, or if it refuses.
  virtual Status Allocate(const Configuration& configuration) = 0;

  // Copies a shard's rows of the weights (slot -1) or of a slot, [rows.count, dimension].
  virtual Status Write(ExecutionContext* exec, int64_t table, int64_t slot, const Shard& rows,
                       const float* from) = 0;
  virtual Status Read(ExecutionContext* exec, int64_t table, int64_t slot, const Shard& rows,
                      float* to) = 0;

  // Makes of a batch what the next two take; several may be made at once.
  virtual StatusOr<PreparedRef> Prepare(ExecutionContext* exec,
                                        std::shared_ptr<const Batch> batch) = 0;
  // The same before it is the batch's turn, if there is something to gain and room for it;
  // else null, and Prepare comes later.
  virtual PreparedRef PrepareAhead(ExecutionContext*, std::shared_ptr<const Batch>) {
    return nullptr;
  }
  // Begins with the lookup of a batch whose turn comes next, if there are threads for that;
  // else null. What a write to the tables then makes stale, Lookup looks up again.
  virtual PreparedRef LookUpAhead(ExecutionContext*, std::shared_ptr<const Batch>,
                                  const std::function<Room()>& /*make_room*/) {
    return nullptr;
  }

  // Whether other processes share the tables. They take a batch all or none, so this one says
  // that the program's next batch is refused, before it was prepared, and why;
  virtual bool shared() const { return false; }
  virtual void Refuse(const Status&) {}
  // that one which was prepared is dropped, with the step that it was part of;
  virtual void Drop(const PreparedRef&) {}
  // and takes the gradients of a core to where its rows are, unless `own` says what is wrong
  // with them here. Refused by one, they are refused by all, and the batch is over. The update
  // comes later.
  virtual Status Share(ExecutionContext*, const PreparedBatch&, const Status& own,
                       const std::vector<const float*>& /*gradients*/,
                       const std::vector<float>& /*rates*/) {
    return own;
  }

  // Fills the output of each feature: [samples, dimension]. Several lookups may be made at
  // once, as nothing else may.
  virtual Status Lookup(ExecutionContext* exec, const PreparedBatch& batch,
                        float* const* outputs) = 0;

  // The same of bags in one piece, which it checks, of any number of samples: [samples,
  // columns], those of the features side by side.
  virtual Status LookUpPacked(ExecutionContext*, const PackedBags&, float* /*activations*/) {
    return UnimplementedError(
        "only tables that one process has on the CPU can be looked up beside its steps: "
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
