// Fences in streams, and memory that is reused after a device has passed a fence.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "embedding/cuda/tables.h"
#include "embedding/spec.h"

namespace opwright::embedding::cuda {

// A point in a stream. The device passes it when it has executed all work that was queued
// before it.
class Fence {
 public:
  // Creates a fence without a point in a stream. This step may fail if memory is short, so
  // callers do it before they queue work.
  static StatusOr<std::shared_ptr<Fence>> Create();
  // Records the current end of the stream's work as the point of the fence.
  Status Record(cudaStream_t stream);
  // Calls Create and Record.
  static StatusOr<std::shared_ptr<Fence>> At(cudaStream_t stream);
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;
  ~Fence();

  // Returns whether the device has passed the fence. It does not wait.
  StatusOr<bool> Passed() const;
  // Makes all work that is queued on `stream` later wait for the fence.
  Status Before(cudaStream_t stream) const;
  // Blocks until the device has passed the fence.
  Status Wait() const;

 private:
  Fence() = default;
  cudaEvent_t event_ = nullptr;
};
using FenceRef = std::shared_ptr<const Fence>;

// Pinned host memory, through which a device copies asynchronously. The pool grows with the
// number of bytes that are in use at the same time. It has at most kMost bytes, unless current
// leases need more. All functions may be called from any thread.
class Staging {
  struct Block;

 public:
  static constexpr int64_t kMost = int64_t{256} << 20;
  // The number of bytes that Trim keeps.
  static constexpr int64_t kKept = int64_t{64} << 20;

  // A block that belongs to the caller. It returns to the pool when the lease is destroyed.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept { *this = std::move(other); }
    Lease& operator=(Lease&& other) noexcept;
    ~Lease() { GiveBack(nullptr); }

    char* data() const;
    // Returns the block to the pool. If there is a fence, the block is reused only after the
    // device has passed it.
    void GiveBack(FenceRef used);

   private:
    friend class Staging;
    Lease(Staging* staging, Block* block) : staging_(staging), block_(block) {}
    Staging* staging_ = nullptr;
    Block* block_ = nullptr;
  };

  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  // Waits until the device uses no block.
  ~Staging();

  // Returns a block of at least `bytes` bytes. If a new block would exceed kMost, waits until
  // the device has finished with a returned block.
  StatusOr<Lease> Take(int64_t bytes);
  // Frees unused memory, except kKept bytes.
  void Trim();

 private:
  struct Block {
    char* data = nullptr;
    int64_t bytes = 0;
    // The fence after the last use. Null if the device does not use the block.
    FenceRef used;
    bool held = false;
  };
  using Blocks = std::vector<std::unique_ptr<Block>>;

  // The result of Find: a block with or without memory, or a fence to wait for.
  struct Found {
    Block* block = nullptr;
    FenceRef oldest;
    Blocks too_small;  // Blocks that the caller must free without holding the lock.
  };
  StatusOr<Found> Find(int64_t bytes);
  void TakeOut(int64_t most, Blocks* out);
  static void Free(const Blocks& blocks);

  std::mutex mutex_;
  Blocks blocks_;  // The blocks in the order in which they were last returned.
  int64_t bytes_ = 0;
};

// Device memory that is written on one stream and read on another. A piece is written again
// only after its last reader has finished. All functions may be called from any thread.
class Pieces {
 public:
  // The limit for all pieces. If a new piece would exceed it, Take reuses a free piece, and the
  // writers' stream waits for that piece's readers.
  static constexpr int64_t kMost = int64_t{256} << 20;

  struct Piece {
    char* data = nullptr;
    int64_t bytes = 0;
    // The fence after the last reader. GiveBack sets it to null. Then Take or Passes sets it to
    // a fence that was recorded on the readers' stream later.
    FenceRef read;
  };

  Pieces(std::shared_ptr<Memory> memory, cudaStream_t writers, cudaStream_t readers)
      : memory_(std::move(memory)), writers_(writers), readers_(readers) {}
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;
  // No work may use the pieces any more.
  ~Pieces();

  // Returns a piece for work that is queued on the writers' stream from now on. Its data is
  // null if there is no memory.
  StatusOr<Piece> Take(int64_t bytes);
  // Work that was queued on the readers' stream before this call may still use the piece.
  void GiveBack(const Piece& piece);
  // Call this when a fence was recorded on the readers' stream.
  void Passes(const FenceRef& fence);

  // Returns the number of bytes in pieces that are in use.
  int64_t taken() const;

 private:
  StatusOr<Piece> TakeFree(int64_t bytes, bool wait);

  const std::shared_ptr<Memory> memory_;
  const cudaStream_t writers_, readers_;
  mutable std::mutex mutex_;
  std::vector<Piece> free_;
  int64_t bytes_ = 0, taken_ = 0;
};

}  // namespace opwright::embedding::cuda
