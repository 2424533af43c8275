#include "opwright_cuda.h"

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "embedding/cuda/check.h"
#include "embedding/cuda/tables.h"

struct opwright_cuda_table {
  std::unique_ptr<opwright::embedding::cuda::DeviceErrorBuffer> errors;
  std::unique_ptr<opwright::embedding::cuda::Table> table;
};

namespace {

using opwright::InvalidArgumentError;
using opwright::Status;
using opwright::StatusCode;
using opwright::StatusOr;
using opwright::embedding::TableConfig;
using opwright::embedding::cuda::DeviceErrorBuffer;
using opwright::embedding::cuda::DeviceErrors;
using opwright::embedding::cuda::DeviceMemory;
using opwright::embedding::cuda::kChunkBytes;
using opwright::embedding::cuda::Source;
using opwright::embedding::cuda::Table;

thread_local std::string last_error;

int32_t CodeOf(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return OPWRIGHT_CUDA_OK;
    case StatusCode::kInvalidArgument: return OPWRIGHT_CUDA_INVALID_ARGUMENT;
    case StatusCode::kFailedPrecondition: return OPWRIGHT_CUDA_FAILED_PRECONDITION;
    case StatusCode::kUnimplemented: return OPWRIGHT_CUDA_UNIMPLEMENTED;
    case StatusCode::kResourceExhausted: return OPWRIGHT_CUDA_OUT_OF_MEMORY;
    case StatusCode::kInternal: return OPWRIGHT_CUDA_INTERNAL;
  }
  return OPWRIGHT_CUDA_INTERNAL;
}

// No exception leaves the library.
template <class Call>
int32_t Try(const Call& call) {
  try {
    const Status status = call();
    if (status.ok()) return OPWRIGHT_CUDA_OK;
    last_error = status.message();
    return CodeOf(status.code());
  } catch (const std::bad_alloc&) {
    last_error = "the host is out of memory";
    return OPWRIGHT_CUDA_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    last_error = error.what();
    return OPWRIGHT_CUDA_INTERNAL;
  }
}

cudaStream_t StreamOf(void* stream) { return static_cast<cudaStream_t>(stream); }

Source SourceOf(const opwright_cuda_bags& bags) {
  Source source;
  source.samples = bags.samples;
  source.count = bags.count;
  source.offsets = bags.offsets;
  source.indices = bags.indices;
  source.per_sample_weights = bags.per_sample_weights;
  source.scales = bags.scales;
  return source;
}

Status ConfigOf(const opwright_cuda_config& from, TableConfig* table) {
  namespace embedding = opwright::embedding;
  const std::string optimizer = from.optimizer ? from.optimizer : "";
  const embedding::OptimizerFacts* facts = nullptr;
  for (int i = 0; i < embedding::kOptimizers; ++i) {
    if (optimizer == embedding::kFacts[i].field) facts = &embedding::kFacts[i];
  }
  table->name = from.name ? from.name : "";
  if (!facts)
    return InvalidArgumentError("table '" + table->name + "': no optimizer '" + optimizer +
                                "'");
  table->optimizer = facts->optimizer;
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

}  // namespace

const char* opwright_cuda_error(void) { return last_error.c_str(); }

int32_t opwright_cuda_create(const opwright_cuda_config* config, void* stream,
                             opwright_cuda_table** table) {
  return Try([&]() -> Status {
    TableConfig parsed;
    OPWRIGHT_RETURN_IF_ERROR(ConfigOf(*config, &parsed));
    auto made = std::make_unique<opwright_cuda_table>();
    auto errors = DeviceErrorBuffer::Create(DeviceMemory(), StreamOf(stream));
    OPWRIGHT_RETURN_IF_ERROR(errors.status());
    made->errors = *std::move(errors);
    auto created =
        Table::Create(parsed, config->chunk_bytes ? config->chunk_bytes : kChunkBytes,
                      DeviceMemory(), made->errors->device(), StreamOf(stream));
    OPWRIGHT_RETURN_IF_ERROR(created.status());
    made->table = *std::move(created);
    *table = made.release();
    return {};
  });
}

void opwright_cuda_destroy(opwright_cuda_table* table) { delete table; }

int32_t opwright_cuda_write(opwright_cuda_table* table, int64_t slot, int64_t first,
                            int64_t step, int64_t count, const float* from, void* stream) {
  return Try(
      [&] { return table->table->Write(slot, {count, first, step}, from, StreamOf(stream)); });
}

int32_t opwright_cuda_read(opwright_cuda_table* table, int64_t slot, int64_t first,
                           int64_t step, int64_t count, float* to, void* stream) {
  return Try(
      [&] { return table->table->Read(slot, {count, first, step}, to, StreamOf(stream)); });
}

int32_t opwright_cuda_lookup(opwright_cuda_table* table, const opwright_cuda_bags* bags,
                             float* out, void* stream) {
  return Try([&] { return table->table->Lookup(SourceOf(*bags), out, StreamOf(stream)); });
}

int32_t opwright_cuda_update_bytes(opwright_cuda_table* table, int64_t count, int64_t* bytes) {
  return Try([&]() -> Status {
    const StatusOr<int64_t> needed = table->table->UpdateBytes(count);
    if (needed.ok()) *bytes = *needed;
    return needed.status();
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
    OPWRIGHT_RETURN_IF_ERROR(table->table->CheckGradients(all, StreamOf(stream)));
    return table->table->Update(all, learning_rate, workspace, workspace_bytes,
                                StreamOf(stream));
  });
}

int32_t opwright_cuda_check(opwright_cuda_table* table, void* stream) {
  return Try([&]() -> Status {
    OPWRIGHT_RETURN_IF_ERROR(table->table->CheckDevice());
    const StatusOr<DeviceErrors> errors = table->errors->Check(StreamOf(stream));
    OPWRIGHT_RETURN_IF_ERROR(errors.status());
    if (!errors->any()) return {};
    return InvalidArgumentError(Describe(table->table->config(), *errors));
  });
}
