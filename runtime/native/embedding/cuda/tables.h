// Tables in the memory of a GPU. Free of TensorFlow.
//
// Calls queue work on the caller's stream and return: none waits for the GPU but Check, which
// is also how a caller learns that ids or gradients were bad. From a bad call on, no update of
// the tables that share a DeviceErrorBuffer changes a row until that is cleared. Calls on the
// same tables are the caller's to order.
//
// A lookup of many features is one kernel, and an update is one for each thing that is done:
// how many tables there are makes no difference.
//
// The same calls on the same tables leave the same bits on the same kind of GPU: ids are
// sorted stably, and sums are made in an order that the ids alone decide.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "embedding/cuda/batched.h"
#include "embedding/cuda/kernels.h"
#include "embedding/cuda/plan.h"
#include "embedding/spec.h"

namespace opwright::embedding::cuda {

// The allocator of tables: a caller that shares the GPU with others brings its own.
class Memory {
 public:
  virtual ~Memory() = default;
  // Aligned to 16 bytes; null if there is not as much.
  virtual void* Allocate(int64_t bytes) = 0;
  virtual void Free(void* data) = 0;
  // Bytes that are left, as far as it knows.
  virtual int64_t Left() = 0;
};
// cudaMalloc of the current device.
Memory* DeviceMemory();

// Refuses a driver or a current device that cannot run the kernels.
Status CheckThisMachine();

// DeviceErrors in the memory of the device, which tables that are updated together share.
class DeviceErrorBuffer {
 public:
  static StatusOr<std::unique_ptr<DeviceErrorBuffer>> Create(Memory* memory,
                                                             cudaStream_t stream);
  ~DeviceErrorBuffer();
  DeviceErrorBuffer(const DeviceErrorBuffer&) = delete;
  DeviceErrorBuffer& operator=(const DeviceErrorBuffer&) = delete;

  DeviceErrors* device() const { return errors_; }

  // Queues a copy to pinned memory of the host.
  Status CopyTo(DeviceErrors* to, cudaStream_t stream) const;
  // Queues that there are none any more.
  Status Clear(cudaStream_t stream) const;
  // Waits for the stream; clears what it returns.
  StatusOr<DeviceErrors> Check(cudaStream_t stream) const;

 private:
  explicit DeviceErrorBuffer(Memory* memory) : memory_(memory) {}

  Memory* const memory_;
  DeviceErrors* errors_ = nullptr;  // On the device,
  DeviceErrors* seen_ = nullptr;    // and where the host reads it.
};

// What an update takes: memory of the device that it works in, and memory of the host that
// the device copies from: both until it has been made. In bytes.
struct UpdateSizes {
  int64_t workspace, image;
};

class Tables {
 public:
  // On the current device; all rows are zero once `stream` has come so far. `errors` is on
  // the device too, and outlives the tables.
  static StatusOr<std::unique_ptr<Tables>> Create(const std::vector<TableConfig>& configs,
                                                  int64_t most_chunk_bytes, Memory* memory,
                                                  DeviceErrors* errors, cudaStream_t stream);
  // Waits for the device.
  ~Tables();
  Tables(const Tables&) = delete;
  Tables& operator=(const Tables&) = delete;

  const std::vector<TableConfig>& configs() const { return configs_; }
  const std::vector<TableView>& views() const { return views_; }

  // Refuses if the current device is not the tables'.
  Status CheckDevice() const;

  // Copies a shard's rows of the weights (slot -1) or of a slot, [rows.count, dimension];
  // `from` and `to` are memory that the device can reach.
  Status Write(int64_t table, int64_t slot, const Shard& rows, const float* from,
               cudaStream_t stream);
  Status Read(int64_t table, int64_t slot, const Shard& rows, float* to, cudaStream_t stream);

  // What a source must be for a lookup or, with its gradients, for an update.
  Status CheckSource(const char* call, const Source& source) const;
  // Makes what is still to be made of ids that lie on the device; `image` is where call.image
  // does, which says then what is wrong with them.
  Status Arrive(const ArrivalCall& call, char* image, cudaStream_t stream);
  // `image` is where on the device call.image lies; outputs[i]: [samples, dimension]. What is
  // found wrong goes to `errors`, or if that is null, to those that updates look at.
  Status Lookup(const LookupCall& call, const char* image, float* const* outputs,
                DeviceErrors* errors, cudaStream_t stream);
  // What was found wrong with a batch whose sources an update will number from `first` on.
  Status TakeOver(const DeviceErrors* found, int64_t first, cudaStream_t stream);

  // For so many ids of each table, in so many sources of all.
  StatusOr<UpdateSizes> MeasureUpdate(const std::vector<int64_t>& ids, int64_t sources) const;
  // Updates the rows that the sources looked up, which are one batch, in this order, with a
  // learning rate for each table. All gradients are looked at before the first row changes.
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
  int64_t resident_ = 0;       // Threads that the device runs at once.
  std::vector<void*> pieces_;  // All that was allocated.
  std::vector<TableView> views_;
  const TableView* device_views_ = nullptr;
};

}  // namespace opwright::embedding::cuda
