// With kernels for GPUs: the stream and the memory are TensorFlow's.
#include <limits>

#include "embedding/cuda/requirements.h"
#include "embedding/cuda/store.h"
#include "embedding/tf/device.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/platform/logging.h"
#if !defined(OPWRIGHT_CPU_AS_GPU)
#include "xla/stream_executor/stream.h"
#endif
#if __has_include(<third_party/gpus/cuda/cuda_config.h>)
#include <third_party/gpus/cuda/cuda_config.h>
#endif

namespace opwright::embedding {
namespace {

using tensorflow::Allocator;
using tensorflow::OpKernelContext;

// A device's memory, which TensorFlow gives again at once: to work that it queues later, on
// the same stream.
class DeviceMemory : public cuda::Memory {
 public:
  explicit DeviceMemory(Allocator* allocator) : allocator_(allocator) {}

  void* Allocate(int64_t bytes) override {
    // Who waits decides so itself, and where: TensorFlow would wait for ten seconds right here.
    tensorflow::AllocationAttributes at_once;
    at_once.retry_on_failure = false;
    return allocator_->AllocateRaw(Allocator::kAllocatorAlignment, static_cast<size_t>(bytes),
                                   at_once);
  }
  void Free(void* data) override { allocator_->DeallocateRaw(data); }
  int64_t Left() override {
    const auto stats = allocator_->GetStats();
    if (!stats || !stats->bytes_limit) return std::numeric_limits<int64_t>::max();
    return *stats->bytes_limit - stats->bytes_in_use;
  }

 private:
  Allocator* const allocator_;  // Lives as long as the process.
};

// Whether the op runs on a GPU, and the stream that its work is queued on.
#if defined(OPWRIGHT_CPU_AS_GPU)
// For tests: every device counts as a GPU, and does its work at once.
bool IsOnGpu(OpKernelContext*, void** stream) {
  *stream = nullptr;
  return true;
}
#else
bool IsOnGpu(OpKernelContext* context, void** stream) {
  const tensorflow::DeviceContext* const device = context->op_device_context();
  if (!device || !device->stream()) return false;
  *stream = device->stream()->platform_specific_handle().stream;
  return true;
}
#endif

#if defined(TF_CUDA_VERSION)
constexpr char kTensorFlowsCuda[] = TF_CUDA_VERSION;
#else
constexpr char kTensorFlowsCuda[] = "";
#endif

}  // namespace

#if defined(OPWRIGHT_CPU_AS_GPU)
const bool kHasGpuKernels = false;
#else
const bool kHasGpuKernels = true;
#endif

OpDevice DeviceOf(OpKernelContext* context) {
  OpDevice device;
  if (IsOnGpu(context, &device.stream)) device.gpu = context->device()->name();
  return device;
}

std::unique_ptr<TableStore> MakeTableStore(OpKernelContext* context) {
  void* stream;
  if (!IsOnGpu(context, &stream)) return MakeCpuTableStore();
  cuda::Machine machine;
  machine.built_with = CUDART_VERSION;
  machine.tensorflow = cuda::VersionOf(kTensorFlowsCuda);
  const std::string other = cuda::OtherCuda(machine);
  if (!other.empty()) LOG(WARNING) << other;
  return cuda::MakeTableStore(
      static_cast<cudaStream_t>(stream),
      std::make_shared<DeviceMemory>(context->device()->GetAllocator({})));
}

}  // namespace opwright::embedding
