// The tables of an engine in the memory of a GPU. This code does not use TensorFlow.
//
// Work is queued on one stream, in the order of the calls. Only ids are copied to the device on
// another stream. After Allocate, three calls wait for the stream: CheckUpdates(wait), and Read
// and Write, whose values are in host memory. Other calls wait only if they fail or if pinned
// memory is short. Activations and gradients are in device memory. Work on the same stream
// writes and reads them.
#pragma once

#include <memory>

#include "embedding/cuda/tables.h"
#include "embedding/store.h"

namespace opwright::embedding::cuda {

// `memory` allocates tables, the ids of batches and the scratch memory of updates. `memory` may
// hand out freed memory although earlier work on `stream` still uses it. The new user's work is
// queued on `stream` too, so it runs later. Tables are on the device that is current when
// Allocate is called. Any thread may call the store.
std::unique_ptr<TableStore> MakeTableStore(cudaStream_t stream, std::shared_ptr<Memory> memory);

}  // namespace opwright::embedding::cuda
