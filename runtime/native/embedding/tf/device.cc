// Without kernels for GPUs.
#include "embedding/tf/device.h"

#include "embedding/cpu/rows.h"

namespace opwright::embedding {

OpDevice DeviceOf(tensorflow::OpKernelContext*) { return {}; }

std::unique_ptr<TableStore> MakeTableStore(tensorflow::OpKernelContext*) {
  return MakeCpuTableStore();
}

Status FillWithBits(tensorflow::OpKernelContext*, uint32_t bits, int64_t count, float* to) {
  FillWithBits(bits, count, to);
  return {};
}

StatusOr<std::optional<Outside>> FindOutside(tensorflow::OpKernelContext*,
                                             ExecutionContext* exec, Range range, int64_t count,
                                             const float* values) {
  return FindOutside(*exec, range, count, values);
}

}  // namespace opwright::embedding
