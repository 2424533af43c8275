// Tables in the memory of a GPU. Free of TensorFlow.
//
// Calls queue work on the caller's stream and return: none waits for the GPU but Check, which
// is also how a caller learns that ids or gradients were bad. From a bad call on, no update of
// the tables that share Findings changes a row until those are cleared. Calls on one table are
// the caller's to order.
//
// The same calls on the same table leave the same bits on the same kind of GPU: ids are
// sorted stably, and sums are made in an order that the ids alone decide.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "core/embedding/config.h"
#include "cuda/kernels.h"
#include "cuda/plan.h"

namespace opwright {
namespace cuda {

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

// A verdict in the memory of the device, which tables that are updated together share.
class Findings {
 public:
  static Maybe Create(Memory* memory, cudaStream_t stream, std::unique_ptr<Findings>* findings);
  ~Findings();
  Findings(const Findings&) = delete;
  Findings& operator=(const Findings&) = delete;

  Verdict* verdict() const { return verdict_; }

  // Queues a copy to pinned memory of the host.
  Maybe Tell(Verdict* to, cudaStream_t stream) const;
  // Queues that nothing is found any more.
  Maybe Clear(cudaStream_t stream) const;
  // Waits for the stream; clears what it tells.
  Maybe Check(cudaStream_t stream, Verdict* verdict) const;

 private:
  explicit Findings(Memory* memory) : memory_(memory) {}

  Memory* const memory_;
  Verdict* verdict_ = nullptr;  // On the device,
  Verdict* seen_ = nullptr;     // and where the host reads it.
};

class Table {
 public:
  // On the current device; all rows are zero once `stream` has come so far. `verdict` is on
  // the device too, and outlives the table.
  static Maybe Create(const TableConfig& config, int64_t most_chunk_bytes, Memory* memory,
                      Verdict* verdict, cudaStream_t stream, std::unique_ptr<Table>* table);
  // Waits for the device.
  ~Table();
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  const TableConfig& config() const { return config_; }

  // Refuses if the current device is not the table's.
  Maybe CheckDevice() const;

  // Copies a shard's rows of the weights (slot -1) or of a slot, [rows.count, dimension];
  // `from` and `to` are memory that the device can reach.
  Maybe Write(int64_t slot, const embedding::Shard& rows, const float* from,
              cudaStream_t stream);
  Maybe Read(int64_t slot, const embedding::Shard& rows, float* to, cudaStream_t stream);

  // out: [samples, dimension].
  Maybe Lookup(const Source& source, float* out, cudaStream_t stream);

  // What Update works in for so many ids in all sources, in bytes.
  Maybe UpdateBytes(int64_t ids, int64_t* bytes);
  // Has the device look for gradients that are not finite, which comes before an update of
  // this table, and of those that may change only together with it.
  Maybe CheckGradients(const std::vector<Source>& sources, cudaStream_t stream) const;
  // Updates the rows that the sources looked up, which are one batch, in this order.
  Maybe Update(const std::vector<Source>& sources, float learning_rate, void* workspace,
               int64_t workspace_bytes, cudaStream_t stream);

 private:
  Table(const TableConfig& config, Memory* memory, Verdict* verdict)
      : config_(config), memory_(memory), verdict_(verdict) {}

  Maybe Allocate(int64_t most_chunk_bytes, cudaStream_t stream);
  Maybe CheckSource(const char* call, const Source& source) const;
  Maybe Copy(bool to_table, int64_t slot, const embedding::Shard& rows, float* values,
             cudaStream_t stream);
  Maybe Plan(int64_t ids, Workspace* workspace) const;
  template <bool kWide>
  Maybe UpdateRows(const Sorted& sorted, const uint32_t* touched,
                   const embedding::Hyper& hyper, cudaStream_t stream) const;

  const TableConfig config_;
  Memory* const memory_;
  Verdict* const verdict_;
  int device_ = 0;
  int64_t resident_ = 0;  // Threads that the device runs at once.
  Rows rows_ = {};
  Shape shape_ = {};
};

// Makes each float the one with these bits.
Maybe FillWithBits(uint32_t bits, int64_t count, float* to, cudaStream_t stream);
// Where the first float is whose bits, as an unsigned number, are above these: on the device,
// all ones if there is none.
Maybe FindBitsAbove(uint32_t bits, int64_t count, const float* values,
                    unsigned long long* first, cudaStream_t stream);

}  // namespace cuda
}  // namespace opwright
