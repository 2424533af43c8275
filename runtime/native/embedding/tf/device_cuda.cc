// Implements device.h for a library with GPU kernels. The stream and the memory are
// TensorFlow's.
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <utility>

#include "embedding/cuda/requirements.h"
#include "embedding/cuda/store.h"
#include "embedding/tf/device.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/device.h"
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
using tensorflow::Tensor;

// The memory of a device. It may be freed while kernels still use it: TensorFlow reuses it only
// for work that is queued later on the same stream as these kernels.
class DeviceMemory : public cuda::Memory {
 public:
  explicit DeviceMemory(Allocator* allocator) : allocator_(allocator) {}

  void* Allocate(int64_t bytes) override {
    // Allocation fails at once if memory is short, because the caller decides whether and where
    // to wait. Otherwise TensorFlow would wait for ten seconds here.
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
  Allocator* const allocator_;  // The allocator exists until the process ends.
};

// Returns whether the op runs on a GPU, and the stream on which its work is queued.
#if defined(OPWRIGHT_CPU_AS_GPU)
// In tests, every device counts as a GPU and executes its work immediately.
bool IsOnGpu(OpKernelContext*, void** stream) {
  *stream = nullptr;
  return true;
}
bool InDeviceMemory(OpKernelContext*) { return std::getenv("OPWRIGHT_IDS_ON_DEVICE"); }

void StartCopy(OpKernelContext*, const Tensor* from, Tensor* to,
               tensorflow::StatusCallback done) {
  if (from->TotalBytes() > 0) std::memcpy(to->data(), from->data(), from->TotalBytes());
  done(absl::OkStatus());
}
#else
bool IsOnGpu(OpKernelContext* context, void** stream) {
  const tensorflow::DeviceContext* const device = context->op_device_context();
  if (!device || !device->stream()) return false;
  *stream = device->stream()->platform_specific_handle().stream;
  return true;
}
bool InDeviceMemory(OpKernelContext* context) {
  void* stream;
  return IsOnGpu(context, &stream);
}

// `from` and `to` must stay valid until the copy calls `done`.
void StartCopy(OpKernelContext* context, const Tensor* from, Tensor* to,
               tensorflow::StatusCallback done) {
  auto* const device = static_cast<tensorflow::Device*>(context->device());
  context->op_device_context()->CopyDeviceTensorToCPU(from, "ids", device, to, std::move(done));
}
#endif

// A group of copies. The callback is called once, after all of them have ended with or without
// an error.
struct Copies {
  std::vector<Tensor> from, to;
  OnHost then;
  std::mutex mutex;
  size_t left = 0;
  absl::Status status;

  void Done(const absl::Status& one) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      status.Update(one);
      if (--left > 0) return;
    }
    then(status, std::move(to));
  }
};

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

bool HasDeviceMemory(OpKernelContext* context) { return InDeviceMemory(context); }

void CopyToHost(OpKernelContext* context, std::vector<Tensor> from, OnHost then) {
  const auto copies = std::make_shared<Copies>();
  copies->to.resize(from.size());
  tensorflow::AllocatorAttributes pinned;
  pinned.set_on_host(true);
  pinned.set_gpu_compatible(true);
  for (size_t i = 0; i < from.size(); ++i) {
    const absl::Status status =
        context->allocate_temp(from[i].dtype(), from[i].shape(), &copies->to[i], pinned);
    if (!status.ok()) return then(status, {});
  }
  copies->from = std::move(from);
  copies->then = std::move(then);
  const size_t count = copies->left = copies->from.size();
  for (size_t i = 0; i < count; ++i) {
    StartCopy(context, &copies->from[i], &copies->to[i],
              [copies](const absl::Status& status) { copies->Done(status); });
  }
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
