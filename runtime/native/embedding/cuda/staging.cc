#include "embedding/cuda/staging.h"

#include <algorithm>
#include <string>
#include <utility>

#include "embedding/cuda/check.h"

namespace opwright::embedding::cuda {
namespace {

// Returns the size of a block for `bytes` bytes. Few different sizes exist, so that blocks can
// be reused.
int64_t SizeOf(int64_t bytes) {
  int64_t size = 4096;
  while (size < bytes) size *= 2;
  // At most a quarter of a large block is unused.
  while (size >= 65536 && size / 4 * 3 >= bytes && size / 4 * 3 % 4096 == 0)
    size = size / 4 * 3;
  return size;
}

}  // namespace

StatusOr<std::shared_ptr<Fence>> Fence::Create() {
  const std::shared_ptr<Fence> made(new Fence);
  OPWRIGHT_CUDA(cudaEventCreateWithFlags(&made->event_, cudaEventDisableTiming));
  return made;
}

Status Fence::Record(cudaStream_t stream) {
  OPWRIGHT_CUDA(cudaEventRecord(event_, stream));
  return {};
}

StatusOr<std::shared_ptr<Fence>> Fence::At(cudaStream_t stream) {
  StatusOr<std::shared_ptr<Fence>> made = Create();
  OPWRIGHT_RETURN_IF_ERROR(made.status());
  OPWRIGHT_RETURN_IF_ERROR((*made)->Record(stream));
  return made;
}

Fence::~Fence() {
  // The error is ignored, because there is no caller to report it to.
  if (event_) static_cast<void>(cudaEventDestroy(event_));
}

StatusOr<bool> Fence::Passed() const {
  const cudaError_t state = cudaEventQuery(event_);
  if (state == cudaSuccess) return true;
  if (state != cudaErrorNotReady) return Failed("cudaEventQuery", state);
  // Clears the error, because cudaErrorNotReady is an answer and not a failure.
  static_cast<void>(cudaGetLastError());
  return false;
}

Status Fence::Before(cudaStream_t stream) const {
  OPWRIGHT_CUDA(cudaStreamWaitEvent(stream, event_, 0));
  return {};
}

Status Fence::Wait() const {
  OPWRIGHT_CUDA(cudaEventSynchronize(event_));
  return {};
}

Staging::Lease& Staging::Lease::operator=(Lease&& other) noexcept {
  std::swap(staging_, other.staging_);
  std::swap(block_, other.block_);
  return *this;
}

char* Staging::Lease::data() const { return block_->data; }

void Staging::Lease::GiveBack(FenceRef used) {
  if (!block_) return;
  const std::lock_guard<std::mutex> lock(staging_->mutex_);
  block_->used = std::move(used);
  block_->held = false;
  Blocks& blocks = staging_->blocks_;
  const auto own = std::find_if(blocks.begin(), blocks.end(),
                                [this](const auto& one) { return one.get() == block_; });
  std::rotate(own, own + 1, blocks.end());
  block_ = nullptr;
}

// Errors are ignored, because there is no caller to report them to.
Staging::~Staging() {
  for (const auto& block : blocks_) {
    if (block->used) static_cast<void>(block->used->Wait());
  }
  Free(blocks_);
}
void Staging::Free(const Blocks& blocks) {
  for (const auto& block : blocks) {
    if (block->data) static_cast<void>(cudaFreeHost(block->data));
  }
}

// Removes unused blocks from the pool until at most `most` bytes are left.
void Staging::TakeOut(int64_t most, Blocks* out) {
  for (auto one = blocks_.begin(); one != blocks_.end() && bytes_ > most;) {
    if ((*one)->held || (*one)->used) {
      ++one;
      continue;
    }
    bytes_ -= (*one)->bytes;
    out->push_back(std::move(*one));
    one = blocks_.erase(one);
  }
}

StatusOr<Staging::Found> Staging::Find(int64_t bytes) {
  const int64_t size = SizeOf(bytes);
  Found found;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& one : blocks_) {
    if (one->held) continue;
    if (one->used) {
      const StatusOr<bool> passed = one->used->Passed();
      OPWRIGHT_RETURN_IF_ERROR(passed.status());
      if (!*passed) {
        if (!found.oldest) found.oldest = one->used;
        continue;
      }
      one->used.reset();
    }
    if (one->bytes < bytes || (found.block && found.block->bytes <= one->bytes)) continue;
    found.block = one.get();
  }
  if (!found.block) {
    TakeOut(kMost - size, &found.too_small);
    if (found.oldest && bytes_ + size > kMost) return found;
    // The size is counted before the memory is allocated, so that other threads do not exceed
    // the limit.
    blocks_.push_back(std::make_unique<Block>());
    found.block = blocks_.back().get();
    found.block->bytes = size;
    bytes_ += size;
  }
  found.oldest.reset();
  found.block->held = true;
  return found;
}

StatusOr<Staging::Lease> Staging::Take(int64_t bytes) {
  while (true) {
    const StatusOr<Found> found = Find(bytes);
    OPWRIGHT_RETURN_IF_ERROR(found.status());
    Free(found->too_small);
    if (found->oldest) {
      OPWRIGHT_RETURN_IF_ERROR(found->oldest->Wait());
      continue;
    }
    Block* const block = found->block;
    if (block->data) return Lease(this, block);
    void* data = nullptr;
    Status status =
        Failed("cudaMallocHost", cudaMallocHost(&data, static_cast<size_t>(block->bytes)));
    if (status.ok()) {
      block->data = static_cast<char*>(data);
      return Lease(this, block);
    }
    status.Prepend("no " + std::to_string(block->bytes) +
                   " bytes of pinned memory of the host: ");
    const std::lock_guard<std::mutex> lock(mutex_);
    bytes_ -= block->bytes;
    blocks_.erase(std::find_if(blocks_.begin(), blocks_.end(),
                               [=](const auto& one) { return one.get() == block; }));
    return status;
  }
}

void Staging::Trim() {
  Blocks out;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    TakeOut(kKept, &out);
  }
  Free(out);
}

Pieces::~Pieces() {
  for (const Piece& piece : free_) memory_->Free(piece.data);
}

// Takes the smallest free piece that is large enough. Without `wait`, its readers must have
// finished. With `wait`, the writers' stream waits for its readers.
StatusOr<Pieces::Piece> Pieces::TakeFree(int64_t bytes, bool wait) {
  auto best = free_.end();
  for (auto one = free_.begin(); one != free_.end(); ++one) {
    if (one->bytes < bytes || (best != free_.end() && best->bytes <= one->bytes)) continue;
    if (!wait) {
      if (!one->read) continue;
      const StatusOr<bool> passed = one->read->Passed();
      OPWRIGHT_RETURN_IF_ERROR(passed.status());
      if (!*passed) continue;
    }
    best = one;
  }
  if (best == free_.end()) return Piece();
  if (wait) OPWRIGHT_RETURN_IF_ERROR(best->read->Before(writers_));
  const Piece taken = *best;
  free_.erase(best);
  taken_ += taken.bytes;
  return taken;
}

StatusOr<Pieces::Piece> Pieces::Take(int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  StatusOr<Piece> found = TakeFree(bytes, /*wait=*/false);
  OPWRIGHT_RETURN_IF_ERROR(found.status());
  if (found->data) return found;
  // Records a fence on the readers' stream for free pieces that have none yet.
  const auto pass = [this]() -> StatusOr<FenceRef> {
    const StatusOr<std::shared_ptr<Fence>> fence = Fence::At(readers_);
    OPWRIGHT_RETURN_IF_ERROR(fence.status());
    for (Piece& piece : free_) {
      if (!piece.read) piece.read = *fence;
    }
    return FenceRef(*fence);
  };
  const int64_t size = SizeOf(bytes);
  Piece made;
  made.bytes = size;
  if (bytes_ + size <= kMost) made.data = static_cast<char*>(memory_->Allocate(size));
  if (!made.data) {
    OPWRIGHT_RETURN_IF_ERROR(pass().status());
    found = TakeFree(bytes, /*wait=*/true);
    OPWRIGHT_RETURN_IF_ERROR(found.status());
    if (found->data) return found;
    // No free piece is large enough, so all are freed. The allocator may reuse their memory
    // only for later work on the readers' stream.
    for (const Piece& piece : free_) {
      bytes_ -= piece.bytes;
      memory_->Free(piece.data);
    }
    free_.clear();
    made.data = static_cast<char*>(memory_->Allocate(size));
    if (!made.data) return Piece();
  }
  // The allocator may return memory that earlier work on the readers' stream still uses. All of
  // that work is queued by now. The writers' stream therefore waits for everything that is
  // queued on the readers' stream.
  const StatusOr<FenceRef> fence = pass();
  Status status = fence.status();
  if (status.ok()) status = (*fence)->Before(writers_);
  if (!status.ok()) {
    memory_->Free(made.data);
    return status;
  }
  bytes_ += size;
  taken_ += size;
  return made;
}

void Pieces::GiveBack(const Piece& piece) {
  const std::lock_guard<std::mutex> lock(mutex_);
  taken_ -= piece.bytes;
  free_.push_back({piece.data, piece.bytes, nullptr});
}

void Pieces::Passes(const FenceRef& fence) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Piece& piece : free_) {
    if (!piece.read) piece.read = fence;
  }
}

int64_t Pieces::taken() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return taken_;
}

}  // namespace opwright::embedding::cuda
