// Points in streams, and memory that is used again once a device has passed them.
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

// What a stream was given up to some point.
class Fence {
 public:
  // Nothing as yet: what may fail for want of memory comes first,
  static StatusOr<std::shared_ptr<Fence>> Create();
  // and then all that the stream was given so far.
  Status Record(cudaStream_t stream);
  // Both.
  static StatusOr<std::shared_ptr<Fence>> At(cudaStream_t stream);
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;
  ~Fence();

  // Whether all of it is done, which is asked and not waited for.
  StatusOr<bool> Passed() const;
  // What the stream is given later comes after it.
  Status Before(cudaStream_t stream) const;
  // Waits.
  Status Wait() const;

 private:
  Fence() = default;
  cudaEvent_t event_ = nullptr;
};
using FenceRef = std::shared_ptr<const Fence>;

// Pinned memory of the host, through which a device copies asynchronously. There is as much as
// is in use at once, but at most kMost in addition to what single callers hold. For all
// threads.
class Staging {
  struct Block;

 public:
  static constexpr int64_t kMost = int64_t{256} << 20;
  // What stays when a burst is over.
  static constexpr int64_t kKept = int64_t{64} << 20;

  // A block that is the caller's; others may have it once this is gone.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept { *this = std::move(other); }
    Lease& operator=(Lease&& other) noexcept;
    ~Lease() { GiveBack(nullptr); }

    char* data() const;
    // Gone: others may have it once the device has passed the fence, if there is one.
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
  // Waits for what is used.
  ~Staging();

  // A block of at least so many bytes. Where there are kMost, it waits for the device to be
  // done with one.
  StatusOr<Lease> Take(int64_t bytes);
  // Releases unused memory to the host, except kKept.
  void Trim();

 private:
  struct Block {
    char* data = nullptr;
    int64_t bytes = 0;
    FenceRef used;  // Null: the device does not use it.
    bool held = false;
  };
  using Blocks = std::vector<std::unique_ptr<Block>>;

  // One of these: a block; what to wait for; or a block that is still to be allocated.
  struct Found {
    Block* block = nullptr;
    FenceRef oldest;
    Blocks too_small;  // To be freed, with no lock held.
  };
  StatusOr<Found> Find(int64_t bytes);
  void TakeOut(int64_t most, Blocks* out);
  static void Free(const Blocks& blocks);

  std::mutex mutex_;
  Blocks blocks_;  // In the order in which they were last given back.
  int64_t bytes_ = 0;
};

// Memory of the device that is written on one stream and read on another: the next to write
// it does so when the last reader is done. For all threads.
class Pieces {
 public:
  // If they are not enough, and readers are late, writers are kept for them.
  static constexpr int64_t kMost = int64_t{256} << 20;

  struct Piece {
    char* data = nullptr;
    int64_t bytes = 0;
    FenceRef read;  // Null where it is free: after the next fence of the readers' stream.
  };

  Pieces(std::shared_ptr<Memory> memory, cudaStream_t writers, cudaStream_t readers)
      : memory_(std::move(memory)), writers_(writers), readers_(readers) {}
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;
  // Nothing must use them any more.
  ~Pieces();

  // What the writers' stream is given from now on may use it. Null data: there is no memory.
  StatusOr<Piece> Take(int64_t bytes);
  // What the readers' stream was given so far may use it.
  void GiveBack(const Piece& piece);
  // The readers' stream has come to a fence.
  void Passes(const FenceRef& fence);

  // Bytes that somebody has.
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
