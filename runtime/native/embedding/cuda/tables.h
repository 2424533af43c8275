// Tables in the memory of a GPU. This code does not use TensorFlow.
//
// Calls queue work on the caller's stream and return. Only Tables::Create, ~Tables and
// DeviceErrorBuffer::Check wait for the GPU. Check also reports bad ids and gradients. After a
// call with such arguments, updates change no row of the tables that share the
// DeviceErrorBuffer, until the buffer is cleared. The caller must order calls on the same
// tables.
//
// One kernel looks up as many as kMaxOutputs features. In each phase of an update, one kernel
// processes all tables, or all tables with the same rule and settings. The number of tables
// therefore hardly changes the number of kernels.
//
// The same calls on the same tables give the same bits on GPUs of the same kind. The reason is
// that ids are sorted stably and that only the ids determine the order of sums.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "embedding/cuda/batched.h"
#include "embedding/cuda/kernels.h"
#include "embedding/cuda/plan.h"
#include "embedding/spec.h"

namespace opwright::embedding::cuda {

// The allocator of tables. A caller that shares the GPU with other code provides its own.
class Memory {
 public:
  virtual ~Memory() = default;
  // Returns memory that is aligned to 16 bytes, or null if there is not enough.
  virtual void* Allocate(int64_t bytes) = 0;
  virtual void Free(void* data) = 0;
  // Returns the number of free bytes, as far as the allocator can determine it.
  virtual int64_t Left() = 0;
};
// Returns an allocator that calls cudaMalloc on the current device.
Memory* DeviceMemory();

// Refuses a driver or a current device that cannot run the kernels.
Status CheckThisMachine();

// A DeviceErrors in device memory. Tables that are updated together share it.
class DeviceErrorBuffer {
 public:
  static StatusOr<std::unique_ptr<DeviceErrorBuffer>> Create(Memory* memory,
                                                             cudaStream_t stream);
  ~DeviceErrorBuffer();
  DeviceErrorBuffer(const DeviceErrorBuffer&) = delete;
  DeviceErrorBuffer& operator=(const DeviceErrorBuffer&) = delete;

  DeviceErrors* device() const { return errors_; }

  // Queues a copy of the errors to pinned host memory.
  Status CopyTo(DeviceErrors* to, cudaStream_t stream) const;
  // Queues the removal of all errors.
  Status Clear(cudaStream_t stream) const;
  // Waits for the stream, returns the errors, and clears them.
  StatusOr<DeviceErrors> Check(cudaStream_t stream) const;

 private:
  explicit DeviceErrorBuffer(Memory* memory) : memory_(memory) {}

  Memory* const memory_;
  DeviceErrors* errors_ = nullptr;  // The errors in device memory.
  DeviceErrors* seen_ = nullptr;    // The copy of the errors that the host reads.
};

// The memory that an update needs, in bytes. `workspace` is device memory for intermediate
// results. `image` is host memory from which the device copies. Both must exist until the
// update has been executed.
struct UpdateSizes {
  int64_t workspace, image;
};

class Tables {
 public:
  // Creates tables on the current device and waits for `stream`. All rows are zero. `errors` is
  // in device memory, and must outlive the tables.
  static StatusOr<std::unique_ptr<Tables>> Create(const std::vector<TableConfig>& configs,
                                                  int64_t most_chunk_bytes, Memory* memory,
                                                  DeviceErrors* errors, cudaStream_t stream);
  // Waits for the device.
  ~Tables();
  Tables(const Tables&) = delete;
  Tables& operator=(const Tables&) = delete;

  const std::vector<TableConfig>& configs() const { return configs_; }
  const std::vector<TableView>& views() const { return views_; }

  // Refuses the call if the current device is not the device of the tables.
  Status CheckDevice() const;

  // Copies a shard's rows of the weights (slot -1) or of a slot, [rows.count, dimension].
  // `from` and `to` are memory that the device can access.
  Status Write(int64_t table, int64_t slot, const Shard& rows, const float* from,
               cudaStream_t stream);
  Status Read(int64_t table, int64_t slot, const Shard& rows, float* to, cudaStream_t stream);

  // Checks that a source is valid for a lookup or, with its gradients, for an update.
  Status CheckSource(const char* call, const Source& source) const;
  // Computes the missing offsets and scales for ids that were in device memory when they were
  // enqueued. `image` is the device address of call.image. Errors in these ids are written into
  // that image.
  Status Arrive(const ArrivalCall& call, char* image, cudaStream_t stream);
  // Writes the activations of call.sources[i] to outputs[i], [samples, dimension]. `image` is
  // the device address of call.image. Errors are recorded in `errors` or, if that is null, in
  // the tables' own errors. While the tables' own contain an error, updates change nothing.
  Status Lookup(const LookupCall& call, const char* image, float* const* outputs,
                DeviceErrors* errors, cudaStream_t stream);
  // Adds the errors of a batch to the tables' own, which stop updates. In the update, source 0
  // of the batch has the number `first`.
  Status TakeOver(const DeviceErrors* found, int64_t first, cudaStream_t stream);

  // `ids` has the number of ids of each table. `sources` is the number of sources of all
  // tables.
  StatusOr<UpdateSizes> MeasureUpdate(const std::vector<int64_t>& ids, int64_t sources) const;
  // Updates the rows of all sources, which form one batch, in the order of the sources. `rates`
  // has one learning rate for each table. All gradients are checked before the first row
  // changes.
  Status Update(const std::vector<Source>& sources, const std::vector<float>& rates,
                const UpdateSizes& sizes, void* workspace, void* image, cudaStream_t stream);

 private:
  Tables(const std::vector<TableConfig>& configs, Memory* memory, DeviceErrors* errors)
      : configs_(configs), memory_(memory), errors_(errors) {}

  Status Allocate(int64_t most_chunk_bytes, cudaStream_t stream);
  Status AllocateTable(const TableConfig& config, const Chunks& chunks, float** addresses,
                       cudaStream_t stream);
  Status Copy(bool to_table, int64_t table, int64_t slot, const Shard& rows, float* values,
              cudaStream_t stream);
  StatusOr<Workspace> Plan(const std::vector<int64_t>& ids, int64_t sources) const;
  template <class Rule, bool kWide>
  Status UpdateRows(const UpdateCall::GroupPlan& plan, const Group<Rule>& group,
                    cudaStream_t stream) const;

  const std::vector<TableConfig> configs_;
  Memory* const memory_;
  DeviceErrors* const errors_;
  int device_ = 0;
  int64_t resident_ = 0;  // The number of threads that the device can run at the same time.
  std::vector<void*> pieces_;  // All allocated memory.
  std::vector<TableView> views_;
  const TableView* device_views_ = nullptr;
};

}  // namespace opwright::embedding::cuda
