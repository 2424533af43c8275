#include "opwright_cuda.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "c/try.h"
#include "embedding/cuda/check.h"
#include "embedding/cuda/staging.h"
#include "embedding/cuda/tables.h"

struct opwright_cuda_table {
  ~opwright_cuda_table() {
    tables.reset();  // Waits for the device.
    if (image) opwright::embedding::cuda::DeviceMemory()->Free(image);
  }

  std::unique_ptr<opwright::embedding::cuda::DeviceErrorBuffer> errors;
  std::unique_ptr<opwright::embedding::cuda::Tables> tables;
  opwright::embedding::cuda::Staging staging;
  char* image = nullptr;  // On the device: what the lookup has that is under way.
};

namespace {

using opwright::InvalidArgumentError;
using opwright::ResourceExhaustedError;
using opwright::Status;
using opwright::StatusOr;
using opwright::Try;
using opwright::embedding::TableConfig;
using opwright::embedding::cuda::DeviceErrorBuffer;
using opwright::embedding::cuda::DeviceErrors;
using opwright::embedding::cuda::DeviceMemory;
using opwright::embedding::cuda::Fence;
using opwright::embedding::cuda::kChunkBytes;
using opwright::embedding::cuda::LookupCall;
using opwright::embedding::cuda::Source;
using opwright::embedding::cuda::Staging;
using opwright::embedding::cuda::Tables;
using opwright::embedding::cuda::UpdateSizes;

cudaStream_t StreamOf(void* stream) { return static_cast<cudaStream_t>(stream); }

Source SourceOf(const opwright_cuda_bags& bags) {
  Source source;
  source.samples = bags.samples;
  source.count = bags.count;
  source.offsets = {bags.offsets, true};
  source.indices = {bags.indices, true};
  source.per_sample_weights = bags.per_sample_weights;
  source.scales = bags.scales;
  return source;
}

Status ConfigOf(const opwright_cuda_config& from, TableConfig* table) {
  namespace embedding = opwright::embedding;
  const std::string optimizer = from.optimizer ? from.optimizer : "";
  const embedding::OptimizerTraits* traits = nullptr;
  for (int i = 0; i < embedding::kOptimizers; ++i) {
    if (optimizer == embedding::kOptimizerRegistry[i].field)
      traits = &embedding::kOptimizerRegistry[i];
  }
  table->name = from.name ? from.name : "";
  if (!traits)
    return InvalidArgumentError("table '" + table->name + "': no optimizer '" + optimizer +
                                "'");
  table->optimizer = traits->optimizer;
  table->dynamic_rate = true;  // Each update brings it.
  table->rows = from.rows;
  table->dimension = from.dimension;
  for (int i = 0; i < embedding::kMaxHyper; ++i) table->hyper.values[i] = from.hyper[i];
  for (int i = 0; i < 2; ++i) {
    table->hyper.clip_gradient[i] = from.clip_gradient[i];
    table->hyper.clip_weight[i] = from.clip_weight[i];
  }
  table->hyper.decay = from.decay;
  table->decay_times_rate = from.decay_times_rate != 0;
  table->accumulate = from.accumulate != 0;
  table->every_row = from.every_row != 0;
  table->quantization = {from.quantized != 0, from.lower, from.upper, from.buckets};
  return {};
}

// When the stream has come so far; what became of the call.
Status GiveBack(Staging::Lease block, const Status& status, void* stream) {
  const auto fence = Fence::At(StreamOf(stream));
  block.GiveBack(fence.ok() ? *fence : nullptr);
  return status.ok() ? fence.status() : status;
}

}  // namespace

const char* opwright_cuda_error(void) { return opwright::LastError().c_str(); }

int32_t opwright_cuda_create(const opwright_cuda_config* config, void* stream,
                             opwright_cuda_table** table) {
  return Try([&]() -> Status {
    TableConfig parsed;
    OPWRIGHT_RETURN_IF_ERROR(ConfigOf(*config, &parsed));
    OPWRIGHT_RETURN_IF_ERROR(opwright::embedding::cuda::CheckThisMachine());
    auto made = std::make_unique<opwright_cuda_table>();
    auto errors = DeviceErrorBuffer::Create(DeviceMemory(), StreamOf(stream));
    OPWRIGHT_RETURN_IF_ERROR(errors.status());
    made->errors = *std::move(errors);
    auto created =
        Tables::Create({parsed}, config->chunk_bytes ? config->chunk_bytes : kChunkBytes,
                       DeviceMemory(), made->errors->device(), StreamOf(stream));
    OPWRIGHT_RETURN_IF_ERROR(created.status());
    made->tables = *std::move(created);
    const int64_t bytes = opwright::embedding::cuda::LookupImageBytes(1);
    made->image = static_cast<char*>(DeviceMemory()->Allocate(bytes));
    if (!made->image) return ResourceExhaustedError("no device memory for a lookup");
    *table = made.release();
    return {};
  });
}

void opwright_cuda_destroy(opwright_cuda_table* table) { delete table; }

int32_t opwright_cuda_write(opwright_cuda_table* table, int64_t slot, int64_t first,
                            int64_t step, int64_t count, const float* from, void* stream) {
  return Try([&] {
    return table->tables->Write(0, slot, {count, first, step}, from, StreamOf(stream));
  });
}

int32_t opwright_cuda_read(opwright_cuda_table* table, int64_t slot, int64_t first,
                           int64_t step, int64_t count, float* to, void* stream) {
  return Try(
      [&] { return table->tables->Read(0, slot, {count, first, step}, to, StreamOf(stream)); });
}

int32_t opwright_cuda_lookup(opwright_cuda_table* table, const opwright_cuda_bags* bags,
                             float* out, void* stream) {
  return Try([&]() -> Status {
    OPWRIGHT_RETURN_IF_ERROR(table->tables->CheckDevice());
    const Source source = SourceOf(*bags);
    OPWRIGHT_RETURN_IF_ERROR(table->tables->CheckSource("a lookup", source));
    const LookupCall call = MakeLookup(table->tables->views(), {source});
    const std::vector<char>& bytes = call.image.bytes();
    StatusOr<Staging::Lease> block = table->staging.Take(bytes.size());
    OPWRIGHT_RETURN_IF_ERROR(block.status());
    std::copy(bytes.begin(), bytes.end(), block->data());
    const auto status = [&]() -> Status {
      OPWRIGHT_CUDA(cudaMemcpyAsync(table->image, block->data(), bytes.size(),
                                    cudaMemcpyHostToDevice, StreamOf(stream)));
      return table->tables->Lookup(call, table->image, &out, nullptr, StreamOf(stream));
    }();
    return GiveBack(*std::move(block), status, stream);
  });
}

int32_t opwright_cuda_update_bytes(opwright_cuda_table* table, int64_t sources, int64_t count,
                                   int64_t* bytes) {
  return Try([&]() -> Status {
    const StatusOr<UpdateSizes> sizes = table->tables->MeasureUpdate({count}, sources);
    if (sizes.ok()) *bytes = sizes->workspace;
    return sizes.status();
  });
}

int32_t opwright_cuda_update(opwright_cuda_table* table, int64_t sources,
                             const opwright_cuda_bags* bags, const float* const* gradients,
                             float learning_rate, void* workspace, int64_t workspace_bytes,
                             void* stream) {
  return Try([&]() -> Status {
    std::vector<Source> all;
    for (int64_t i = 0; i < sources; ++i) {
      all.push_back(SourceOf(bags[i]));
      all.back().number = i;
      all.back().gradients = gradients[i];
    }
    StatusOr<UpdateSizes> sizes = table->tables->MeasureUpdate(IdsOf(1, all), sources);
    OPWRIGHT_RETURN_IF_ERROR(sizes.status());
    StatusOr<Staging::Lease> block = table->staging.Take(sizes->image);
    OPWRIGHT_RETURN_IF_ERROR(block.status());
    sizes->workspace = workspace_bytes;
    const Status status = table->tables->Update(all, {learning_rate}, *sizes, workspace,
                                                block->data(), StreamOf(stream));
    return GiveBack(*std::move(block), status, stream);
  });
}

int32_t opwright_cuda_check(opwright_cuda_table* table, void* stream) {
  return Try([&]() -> Status {
    OPWRIGHT_RETURN_IF_ERROR(table->tables->CheckDevice());
    const StatusOr<DeviceErrors> errors = table->errors->Check(StreamOf(stream));
    OPWRIGHT_RETURN_IF_ERROR(errors.status());
    if (!errors->any()) return {};
    return InvalidArgumentError(Describe(table->tables->configs()[0], *errors));
  });
}
