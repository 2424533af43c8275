// Without kernels for GPUs.
#include "tf/embedding_device.h"

namespace opwright {

Place PlaceOf(tensorflow::OpKernelContext*) { return {}; }

std::unique_ptr<embedding::TableStore> MakeTableStore(tensorflow::OpKernelContext*) {
  return embedding::MakeCpuTableStore();
}

}  // namespace opwright
