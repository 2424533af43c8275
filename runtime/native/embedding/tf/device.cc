// Implements device.h for a library without GPU kernels.
#include "embedding/tf/device.h"

#include <utility>

namespace opwright::embedding {

const bool kHasGpuKernels = false;

OpDevice DeviceOf(tensorflow::OpKernelContext*) { return {}; }

bool HasDeviceMemory(tensorflow::OpKernelContext*) { return false; }

void CopyToHost(tensorflow::OpKernelContext*, std::vector<tensorflow::Tensor> from,
                OnHost then) {
  then(absl::OkStatus(), std::move(from));
}

std::unique_ptr<TableStore> MakeTableStore(tensorflow::OpKernelContext*) {
  return MakeCpuTableStore();
}

}  // namespace opwright::embedding
