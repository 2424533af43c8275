// Pinned memory of the host, through which a device copies without anybody waiting.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "embedding/spec.h"

namespace opwright::embedding::cuda {

// Blocks that are used again once the device is done with them, which is asked and never
// waited for: there are as many as are in use at once. For one thread at a time.
class Staging {
 public:
  struct Block {
    void* data = nullptr;
    int64_t bytes = 0;
    cudaEvent_t passed = nullptr;
    bool marked = false;
    bool held = false;
  };

  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  // Waits for what was marked.
  ~Staging();

  // A block of at least so many bytes, until it is given back.
  StatusOr<Block*> Take(int64_t bytes);
  // The device uses the block until the stream has done all that it was given so far.
  Status Mark(Block* block, cudaStream_t stream);
  // Whether it is done with a marked block.
  StatusOr<bool> Passed(const Block& block) const;
  void GiveBack(Block* block) { block->held = false; }

 private:
  std::vector<std::unique_ptr<Block>> blocks_;
};

}  // namespace opwright::embedding::cuda
