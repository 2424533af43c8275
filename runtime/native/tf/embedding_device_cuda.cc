// With kernels for GPUs: the stream and the memory are TensorFlow's.
#include <limits>

#include "cuda/store.h"
#include "tensorflow/core/framework/allocator.h"
#include "tf/embedding_device.h"
#if !defined(OPWRIGHT_CPU_AS_GPU)
#include "xla/stream_executor/stream.h"
#endif

namespace opwright {
namespace {

using tensorflow::Allocator;
using tensorflow::OpKernelContext;

// A device's memory, which TensorFlow gives again at once: to work that it queues later, on
// the same stream.
class DeviceMemory : public cuda::Memory {
 public:
  explicit DeviceMemory(Allocator* allocator) : allocator_(allocator) {}

  void* Allocate(int64_t bytes) override {
    return allocator_->AllocateRaw(Allocator::kAllocatorAlignment,
                                   static_cast<size_t>(bytes));
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

}  // namespace

Place PlaceOf(OpKernelContext* context) {
  Place place;
  if (IsOnGpu(context, &place.stream)) place.gpu = context->device()->name();
  return place;
}

std::unique_ptr<embedding::TableStore> MakeTableStore(OpKernelContext* context) {
  void* stream;
  if (!IsOnGpu(context, &stream)) return embedding::MakeCpuTableStore();
  return cuda::MakeTableStore(
      static_cast<cudaStream_t>(stream),
      std::make_shared<DeviceMemory>(context->device()->GetAllocator({})));
}

}  // namespace opwright
