// Tables in the memory of a GPU. Free of TensorFlow.
//
// Calls queue work on the caller's stream and return: none waits for the GPU but FindOutside
// and Check, which is also how a caller learns that ids, gradients or numbers that it wrote
// were bad. From a bad call on, no update or write of the tables that share a DeviceErrorBuffer
// changes a row until that is cleared. Calls on one table are the caller's to order.
//
// The same calls on the same table leave the same bits on the same kind of GPU: ids are
// sorted stably, and sums are made in an order that the ids alone decide.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <optional>
#include <vector>

#include "embedding/cuda/kernels.h"
#include "embedding/cuda/plan.h"
#include "embedding/spec.h"

namespace opwright::embedding::cuda {

// Where tables come from: whoever shares the GPU with others brings its own.
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

class Table {
 public:
  // On the current device; all rows are zero once `stream` has come so far. `errors` is on
  // the device too, and outlives the table.
  static StatusOr<std::unique_ptr<Table>> Create(const TableConfig& config,
                                                 int64_t most_chunk_bytes, Memory* memory,
                                                 DeviceErrors* errors, cudaStream_t stream);
  // Waits for the device.
  ~Table();
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  const TableConfig& config() const { return config_; }

  // Refuses if the current device is not the table's.
  Status CheckDevice() const;

  // Copies a shard's rows of the weights (slot -1) or of a slot, [rows.count, dimension];
  // `from` and `to` are memory that the device can reach.
  Status Write(int64_t slot, const Shard& rows, const float* from, cudaStream_t stream);
  Status Read(int64_t slot, const Shard& rows, float* to, cudaStream_t stream);

  // out: [samples, dimension].
  Status Lookup(const Source& source, float* out, cudaStream_t stream);

  // What Update works in for so many ids in all sources, in bytes.
  StatusOr<int64_t> UpdateBytes(int64_t ids);
  // Has the device look for gradients that are not finite, which comes before an update of
  // this table, and of those that may change only together with it.
  Status CheckGradients(const std::vector<Source>& sources, cudaStream_t stream) const;
  // Updates the rows that the sources looked up, which are one batch, in this order.
  Status Update(const std::vector<Source>& sources, float learning_rate, void* workspace,
                int64_t workspace_bytes, cudaStream_t stream);

 private:
  Table(const TableConfig& config, Memory* memory, DeviceErrors* errors)
      : config_(config), memory_(memory), errors_(errors) {}

  Status Allocate(int64_t most_chunk_bytes, cudaStream_t stream);
  Status CheckSource(const char* call, const Source& source) const;
  Status Copy(bool to_table, int64_t slot, const Shard& rows, float* values,
              cudaStream_t stream);
  StatusOr<Workspace> Plan(int64_t ids) const;
  template <bool kWide>
  Status UpdateRows(const Sorted& sorted, const uint32_t* touched, const Hyper& hyper,
                    cudaStream_t stream) const;

  const TableConfig config_;
  Memory* const memory_;
  DeviceErrors* const errors_;
  int device_ = 0;
  int64_t resident_ = 0;  // Threads that the device runs at once.
  Rows rows_ = {};
  Shape shape_ = {};
};

// Makes each float the one with these bits.
Status FillWithBits(uint32_t bits, int64_t count, float* to, cudaStream_t stream);
// The first float that is outside of a range; waits for the stream.
StatusOr<std::optional<Outside>> FindOutside(Range range, int64_t count, const float* values,
                                             Memory* memory, cudaStream_t stream);

}  // namespace opwright::embedding::cuda
