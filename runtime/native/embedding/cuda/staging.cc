#include "embedding/cuda/staging.h"

#include <string>

#include "embedding/cuda/check.h"

namespace opwright::embedding::cuda {

Staging::~Staging() {
  // Nobody is left to tell of an error.
  for (const auto& block : blocks_) {
    if (block->marked) static_cast<void>(cudaEventSynchronize(block->passed));
    if (block->passed) static_cast<void>(cudaEventDestroy(block->passed));
    if (block->data) static_cast<void>(cudaFreeHost(block->data));
  }
}

StatusOr<Staging::Block*> Staging::Take(int64_t bytes) {
  // The smallest that is large enough and free.
  Block* best = nullptr;
  for (const auto& one : blocks_) {
    if (one->held || one->bytes < bytes || (best && best->bytes <= one->bytes)) continue;
    if (one->marked) {
      const StatusOr<bool> passed = Passed(*one);
      OPWRIGHT_RETURN_IF_ERROR(passed.status());
      if (!*passed) continue;
    }
    best = one.get();
  }
  if (!best) {
    int64_t size = 4096;
    while (size < bytes) size *= 2;
    auto made = std::make_unique<Block>();
    made->bytes = size;
    OPWRIGHT_CUDA(cudaEventCreateWithFlags(&made->passed, cudaEventDisableTiming));
    blocks_.push_back(std::move(made));
    best = blocks_.back().get();
    const cudaError_t error = cudaMallocHost(&best->data, static_cast<size_t>(size));
    if (error != cudaSuccess) {
      Status status = Failed("cudaMallocHost", error);
      status.Prepend("no " + std::to_string(size) + " bytes of pinned memory of the host: ");
      static_cast<void>(cudaEventDestroy(best->passed));
      blocks_.pop_back();
      return status;
    }
  }
  best->held = true;
  best->marked = false;
  return best;
}

Status Staging::Mark(Block* block, cudaStream_t stream) {
  OPWRIGHT_CUDA(cudaEventRecord(block->passed, stream));
  block->marked = true;
  return {};
}

StatusOr<bool> Staging::Passed(const Block& block) const {
  const cudaError_t state = cudaEventQuery(block.passed);
  if (state == cudaSuccess) return true;
  if (state != cudaErrorNotReady) return Failed("cudaEventQuery", state);
  static_cast<void>(cudaGetLastError());  // An answer, not an error.
  return false;
}

}  // namespace opwright::embedding::cuda
