// Without kernels for GPUs.
#include "embedding/tf/device.h"

namespace opwright::embedding {

const bool kHasGpuKernels = false;

OpDevice DeviceOf(tensorflow::OpKernelContext*) { return {}; }

std::unique_ptr<TableStore> MakeTableStore(tensorflow::OpKernelContext*) {
  return MakeCpuTableStore();
}

}  // namespace opwright::embedding
