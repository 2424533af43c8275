// The interface of a device that keeps the tables and slots of an engine, and computes with
// them. The engine decides when each call is made.
//
// Activations and gradients are in memory of the device, all other arguments in host memory. A
// store may queue its work and return before the work is done. It does queued work in the order
// of the calls. A caller may free the memory of an argument once the call that uses it has
// returned.
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

// Keeps the memory that it owns alive.
using Owner = std::shared_ptr<const void>;

// Memory for a batch's activations. The code that allocates the memory derives a class that
// owns it.
class OutputBuffers {
 public:
  explicit OutputBuffers(std::vector<float*> data) : data_(std::move(data)) {}
  virtual ~OutputBuffers() = default;

  // One buffer for each feature, of shape [samples, dimension].
  const std::vector<float*>& data() const { return data_; }

 private:
  const std::vector<float*> data_;
};
using OutputBuffersRef = std::shared_ptr<const OutputBuffers>;
// Allocates buffers for a batch's activations. It returns null if there is no memory for them.
using AllocateOutputs = std::function<OutputBuffersRef()>;

// A batch with all data that a store needs to look it up and to update the tables. On a GPU,
// that includes a copy of the ids in GPU memory. A store is given only batches that it prepared
// itself. Lookups and updates may change the state of a prepared batch.
class PreparedBatch {
 public:
  explicit PreparedBatch(std::shared_ptr<const Batch> batch) : batch_(std::move(batch)) {}
  PreparedBatch(const PreparedBatch&) = delete;
  PreparedBatch& operator=(const PreparedBatch&) = delete;
  virtual ~PreparedBatch() = default;

  const Batch& batch() const { return *batch_; }
  // Whether the hosts have dropped the batch, so that it must not be looked up again.
  virtual bool over() const { return false; }
  // The buffers of a lookup that has already begun. Lookup completes it if it gets these
  // buffers as outputs. Null if no lookup has begun.
  virtual OutputBuffersRef outputs() const { return nullptr; }

 private:
  const std::shared_ptr<const Batch> batch_;
};
using PreparedRef = std::shared_ptr<PreparedBatch>;

// A core's part of a step's update: the gradient of each feature's output.
struct CoreGradients {
  PreparedBatch* batch;
  std::vector<const float*> gradients;
};

class TableStore {
 public:
  virtual ~TableStore() = default;

  // Allocates the tables and fills them with zeros. It is the first call. After an error, no
  // other call is made.
  virtual Status Allocate(const Configuration& configuration) = 0;

  // Write and Read copy the rows of a shard: their weights (slot -1) or one of their slots. The
  // host array has the shape [rows.count, columns(slot)].
  virtual Status Write(ExecutionContext* exec, int64_t table, int64_t slot, const Shard& rows,
                       const float* from) = 0;
  virtual Status Read(ExecutionContext* exec, int64_t table, int64_t slot, const Shard& rows,
                      float* to) = 0;

  // Prepares a batch for lookup and update. Threads may prepare several batches concurrently.
  virtual StatusOr<PreparedRef> Prepare(ExecutionContext* exec,
                                        std::shared_ptr<const Batch> batch) = 0;
  // Prepares a batch before its lookup is due. Returns null if that would save no time or there
  // is no memory for it; Prepare is then called later.
  virtual PreparedRef PrepareAhead(ExecutionContext*, std::shared_ptr<const Batch>) {
    return nullptr;
  }
  // Begins the lookup of the batch that will be looked up next, in the background. Returns null
  // if no thread is free for that. If the tables are written before Lookup is called, Lookup
  // starts again.
  virtual PreparedRef LookUpAhead(ExecutionContext*, std::shared_ptr<const Batch>,
                                  const AllocateOutputs& /*allocate_outputs*/) {
    return nullptr;
  }

  // Fills the output of each feature, of shape [samples, dimension]. Lookups may run
  // concurrently with lookups and reads only.
  virtual Status Lookup(ExecutionContext* exec, PreparedBatch* batch,
                        float* const* outputs) = 0;

  // Checks and looks up packed bags, of any number of samples. The activations have the shape
  // [samples, columns]: each row has the columns of all features, one feature after the other.
  virtual Status LookUpPacked(ExecutionContext*, const PackedBags&, float* /*activations*/) {
    return UnimplementedError(
        "only tables that one process has on the CPU can be looked up outside its steps: "
        "enqueue the ids, and receive their activations");
  }

  // Updates all tables from the gradients of all cores. `rates` has one learning rate for each
  // table. If it returns an error, it has changed nothing.
  virtual Status Update(ExecutionContext* exec, const std::vector<CoreGradients>& cores,
                        const std::vector<float>& rates) = 0;

  // Checks the gradients of one core. A store that cannot check them without waiting for its
  // device returns success.
  virtual Status CheckGradients(ExecutionContext* exec,
                                const std::vector<const float*>& gradients) = 0;
  // Returns the errors that the device found in updates after these had returned. Each error is
  // returned once. With `wait`, it first waits for all work of earlier calls. It may be called
  // from any thread.
  virtual Status CheckUpdates(bool wait) = 0;
};

// A lookup of at most this many bytes uses one thread. It takes less time than waking another
// thread takes.
constexpr int64_t kFewLookupBytes = 256 << 10;

// Makes a store in host memory. Several threads share a lookup of more than `few_bytes` bytes.
std::unique_ptr<TableStore> MakeCpuTableStore(int64_t few_bytes = kFewLookupBytes);

}  // namespace opwright::embedding
