// The tables of an engine in the memory of a GPU. Free of TensorFlow.
//
// All work goes to one stream, in the order of the calls. Only CheckUpdates(wait) waits for it,
// and Read and Write, whose values are the host's. Activations and gradients are in device
// memory, written and read by work of the same stream.
#pragma once

#include <memory>

#include "embedding/cuda/tables.h"
#include "embedding/store.h"

namespace opwright::embedding::cuda {

// `memory` has tables, the ids of batches and what updates work in; it may give memory again
// that is used by work queued before it was freed. Tables come to lie on the device that is
// the current one when they are made, and later calls may come from any thread.
std::unique_ptr<TableStore> MakeTableStore(cudaStream_t stream, std::shared_ptr<Memory> memory);

}  // namespace opwright::embedding::cuda
