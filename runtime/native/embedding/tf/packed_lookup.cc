#include "embedding/tf/packed_lookup.h"

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_split.h"
#include "base/checked.h"
#include "base/tf/device_context.h"
#include "base/tf/status.h"
#include "base/tf/workers.h"
#include "embedding/tf/lookup_args.h"
#include "embedding/tf/runs.h"
#include "embedding/tf/system.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/tensor.h"
#include "tsl/profiler/lib/traceme.h"

namespace opwright::embedding {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

// Allocates the activations of lookups without an op. free() returns large blocks to the
// system, so the next lookup would get new pages. Faulting these pages in takes longer than
// reading the rows. The last released tensor is therefore kept for the next lookup of the same
// shape.
class Activations {
 public:
  static Tensor Make(const TensorShape& shape) {
    {
      std::lock_guard<std::mutex> lock(mutex());
      if (spare().shape() == shape && spare().TotalBytes() > 0) {
        return std::exchange(spare(), Tensor());
      }
    }
    return Tensor(tensorflow::cpu_allocator(), tensorflow::DT_FLOAT, shape);
  }

  static void LetGo(Tensor tensor) {
    if (tensor.TotalBytes() < kLeast || tensor.TotalBytes() > kMost) return;
    std::lock_guard<std::mutex> lock(mutex());
    std::swap(spare(), tensor);
  }

 private:
  // malloc itself keeps blocks that are smaller than kLeast. Tensors larger than kMost are not
  // kept, because they occupy too much memory.
  static constexpr size_t kLeast = 16 << 20, kMost = 256 << 20;

  // Never destroyed, because tensors may outlive static objects.
  static std::mutex& mutex() {
    static std::mutex* const mutex = new std::mutex;
    return *mutex;
  }
  static Tensor& spare() {
    static Tensor* const spare = new Tensor;
    return *spare;
  }
};

// Activations that another library refers to through DLPack.
struct Lent {
  Tensor tensor;
  int64_t shape[2];
  DLManagedTensor managed;
};

DLManagedTensor* Lend(const Tensor& tensor) {
  auto lent = std::make_unique<Lent>();
  lent->tensor = tensor;
  for (int i = 0; i < 2; ++i) lent->shape[i] = tensor.dim_size(i);
  DLTensor& described = lent->managed.dl_tensor;
  described = {};
  described.data = tensor.data();
  described.device.device_type = kDLCPU;
  described.ndim = 2;
  described.dtype.code = kDLFloat;
  described.dtype.bits = 32;
  described.dtype.lanes = 1;
  described.shape = lent->shape;
  lent->managed.manager_ctx = lent.get();
  lent->managed.deleter = [](DLManagedTensor* self) {
    const std::unique_ptr<Lent> lent(static_cast<Lent*>(self->manager_ctx));
    Activations::LetGo(std::move(lent->tensor));
  };
  return &lent.release()->managed;
}

std::optional<Ints> IntsOf(const DLTensor& tensor) {
  if (!IsVector(tensor, kDLInt, 32) && !IsVector(tensor, kDLInt, 64)) {
    return std::nullopt;
  }
  return Ints{DataOf(tensor), tensor.dtype.bits == 64, tensor.shape[0]};
}

}  // namespace

absl::Status LookUpPacked(PackedBags bags, int64_t weights, ExecutionContext* exec,
                          const Allocate& allocate) {
  FindEndedRuns();
  const auto found = System::Get().Find();
  TF_RETURN_IF_ERROR(found.status());
  const Configuration& configuration = (*found)->configuration();
  TF_RETURN_IF_ERROR(ToAbsl(CountSamples(configuration, weights, &bags)));
  Checked columns(0);
  for (const FeatureConfig& feature : configuration.features) {
    columns += At(configuration.tables, feature.table).dimension;
  }
  if (!columns.fits()) {
    return absl::InvalidArgumentError("the features have more columns than there can be");
  }
  TensorShape shape;
  TF_RETURN_IF_ERROR(TensorShape::BuildTensorShape({bags.samples, columns.value()}, &shape));
  float* activations;
  TF_RETURN_IF_ERROR(allocate(shape, &activations));
  return ToAbsl((*found)->Read(
      exec, [&](TableStore* store) { return store->LookUpPacked(exec, bags, activations); }));
}

DLManagedTensor* LookUpAtOnce(const DLTensor& ids, const DLTensor* row_splits,
                              const DLTensor* weights, const char* combiners) {
  const tsl::profiler::TraceMe trace("OpwrightEmbeddingLookup");
  PackedBags bags;
  const std::optional<Ints> rows = IntsOf(ids);
  const std::optional<Ints> splits = row_splits ? IntsOf(*row_splits) : Ints{};
  if (!rows || !splits) return nullptr;
  bags.ids = *rows;
  bags.row_splits = *splits;
  int64_t of_ids = 0;
  if (weights) {
    if (!IsVector(*weights, kDLFloat, 32)) return nullptr;
    of_ids = weights->shape[0];
    if (of_ids > 0) bags.weights = static_cast<const float*>(DataOf(*weights));
  }
  if (combiners && !CombinersOf(absl::StrSplit(combiners, ','), &bags.combiners).ok()) {
    return nullptr;
  }
  Tensor activations;
  HostContext exec(DirectCallPool(System::Get().Threads()));
  const absl::Status done =
      LookUpPacked(std::move(bags), of_ids, &exec, [&](const TensorShape& shape, float** data) {
        activations = Activations::Make(shape);
        if (!activations.IsInitialized()) {
          return absl::ResourceExhaustedError("no memory for activations");
        }
        *data = activations.flat<float>().data();
        return absl::OkStatus();
      });
  return done.ok() ? Lend(activations) : nullptr;
}

}  // namespace opwright::embedding
