// The devices of TensorFlow that embedding tables can lie on.
#pragma once

#include <memory>
#include <string>

#include "core/embedding/table_store.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright {

// Where an op runs: ops of the same place can use the same tables.
struct Place {
  std::string gpu;         // Its name; empty: the CPU, whose devices share a memory.
  void* stream = nullptr;  // That the GPU's ops queue their work on.

  bool operator==(const Place& other) const {
    return gpu == other.gpu && stream == other.stream;
  }
};
Place PlaceOf(tensorflow::OpKernelContext* context);

// For tables at the place of the op. It needs nothing of the op later.
std::unique_ptr<embedding::TableStore> MakeTableStore(tensorflow::OpKernelContext* context);

}  // namespace opwright
