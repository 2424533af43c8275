#include "cuda/staging.h"

#include <string>

#include "cuda/check.h"

namespace opwright {
namespace cuda {

using embedding::Maybe;

Staging::~Staging() {
  // Nobody is left to tell of an error.
  for (const auto& block : blocks_) {
    if (block->marked) static_cast<void>(cudaEventSynchronize(block->passed));
    if (block->passed) static_cast<void>(cudaEventDestroy(block->passed));
    if (block->data) static_cast<void>(cudaFreeHost(block->data));
  }
}

Maybe Staging::Take(int64_t bytes, Block** block) {
  // The smallest that is large enough and free.
  Block* best = nullptr;
  for (const auto& one : blocks_) {
    if (one->held || one->bytes < bytes || (best && best->bytes <= one->bytes)) continue;
    bool passed = true;
    if (one->marked) OPWRIGHT_RETURN_IF(Passed(*one, &passed));
    if (passed) best = one.get();
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
      auto refusal = Failed("cudaMallocHost", error);
      refusal->problem = "no " + std::to_string(size) +
                         " bytes of pinned memory of the host: " + refusal->problem;
      static_cast<void>(cudaEventDestroy(best->passed));
      blocks_.pop_back();
      return refusal;
    }
  }
  best->held = true;
  best->marked = false;
  *block = best;
  return {};
}

Maybe Staging::Mark(Block* block, cudaStream_t stream) {
  OPWRIGHT_CUDA(cudaEventRecord(block->passed, stream));
  block->marked = true;
  return {};
}

Maybe Staging::Passed(const Block& block, bool* passed) const {
  const cudaError_t state = cudaEventQuery(block.passed);
  *passed = state == cudaSuccess;
  if (state != cudaErrorNotReady) return Failed("cudaEventQuery", state);
  static_cast<void>(cudaGetLastError());  // An answer, not an error.
  return {};
}

}  // namespace cuda
}  // namespace opwright
