#include "cuda/opwright_cuda.h"

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "cuda/check.h"
#include "cuda/tables.h"

struct opwright_cuda_table {
  std::unique_ptr<opwright::cuda::Findings> findings;
  std::unique_ptr<opwright::cuda::Table> table;
};

namespace {

using opwright::cuda::DeviceMemory;
using opwright::cuda::Findings;
using opwright::cuda::kChunkBytes;
using opwright::cuda::Maybe;
using opwright::cuda::Source;
using opwright::cuda::Table;
using opwright::cuda::TableConfig;
using opwright::cuda::Verdict;
using opwright::embedding::Invalid;
using opwright::embedding::Refusal;

thread_local std::string last_error;

int32_t StatusOf(Refusal::Kind kind) {
  switch (kind) {
    case Refusal::Kind::kInvalidArgument: return OPWRIGHT_CUDA_INVALID_ARGUMENT;
    case Refusal::Kind::kFailedPrecondition: return OPWRIGHT_CUDA_FAILED_PRECONDITION;
    case Refusal::Kind::kUnimplemented: return OPWRIGHT_CUDA_UNIMPLEMENTED;
    case Refusal::Kind::kOutOfMemory: return OPWRIGHT_CUDA_OUT_OF_MEMORY;
    case Refusal::Kind::kInternal: return OPWRIGHT_CUDA_INTERNAL;
  }
  return OPWRIGHT_CUDA_INTERNAL;
}

// No exception leaves the library.
template <class Call>
int32_t Try(const Call& call) {
  try {
    const Maybe refusal = call();
    if (!refusal) return OPWRIGHT_CUDA_OK;
    last_error = refusal->problem;
    return StatusOf(refusal->kind);
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
  source.starts = bags.starts;
  source.ids = bags.ids;
  source.weights = bags.weights;
  source.scales = bags.scales;
  return source;
}

Maybe ConfigOf(const opwright_cuda_config& from, TableConfig* table) {
  namespace embedding = opwright::embedding;
  const std::string optimizer = from.optimizer ? from.optimizer : "";
  const embedding::OptimizerFacts* facts = nullptr;
  for (int i = 0; i < embedding::kOptimizers; ++i) {
    if (optimizer == embedding::AllFacts()[i].field) facts = &embedding::AllFacts()[i];
  }
  table->name = from.name ? from.name : "";
  if (!facts) return Invalid("table '" + table->name + "': no optimizer '" + optimizer + "'");
  table->optimizer = facts->optimizer;
  table->rows = from.rows;
  table->dimension = from.dimension;
  for (int i = 0; i < embedding::kMaxHyper; ++i) table->hyper.hyper[i] = from.hyper[i];
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
  return Try([&]() -> Maybe {
    TableConfig parsed;
    if (auto refusal = ConfigOf(*config, &parsed)) return refusal;
    auto made = std::make_unique<opwright_cuda_table>();
    OPWRIGHT_RETURN_IF(Findings::Create(DeviceMemory(), StreamOf(stream), &made->findings));
    OPWRIGHT_RETURN_IF(Table::Create(parsed,
                                     config->chunk_bytes ? config->chunk_bytes : kChunkBytes,
                                     DeviceMemory(), made->findings->verdict(),
                                     StreamOf(stream), &made->table));
    *table = made.release();
    return {};
  });
}

void opwright_cuda_destroy(opwright_cuda_table* table) { delete table; }

int32_t opwright_cuda_write(opwright_cuda_table* table, int64_t slot, int64_t first,
                            int64_t step, int64_t count, const float* from, void* stream) {
  return Try([&] {
    return table->table->Write(slot, {count, first, step}, from, StreamOf(stream));
  });
}

int32_t opwright_cuda_read(opwright_cuda_table* table, int64_t slot, int64_t first,
                           int64_t step, int64_t count, float* to, void* stream) {
  return Try([&] {
    return table->table->Read(slot, {count, first, step}, to, StreamOf(stream));
  });
}

int32_t opwright_cuda_lookup(opwright_cuda_table* table, const opwright_cuda_bags* bags,
                             float* out, void* stream) {
  return Try([&] { return table->table->Lookup(SourceOf(*bags), out, StreamOf(stream)); });
}

int32_t opwright_cuda_update_bytes(opwright_cuda_table* table, int64_t count, int64_t* bytes) {
  return Try([&] { return table->table->UpdateBytes(count, bytes); });
}

int32_t opwright_cuda_update(opwright_cuda_table* table, int64_t sources,
                             const opwright_cuda_bags* bags, const float* const* gradients,
                             float learning_rate, void* workspace, int64_t workspace_bytes,
                             void* stream) {
  return Try([&]() -> Maybe {
    std::vector<Source> all;
    for (int64_t i = 0; i < sources; ++i) {
      all.push_back(SourceOf(bags[i]));
      all.back().number = i;
      all.back().gradients = gradients[i];
    }
    OPWRIGHT_RETURN_IF(table->table->CheckGradients(all, StreamOf(stream)));
    return table->table->Update(all, learning_rate, workspace, workspace_bytes,
                                StreamOf(stream));
  });
}

int32_t opwright_cuda_check(opwright_cuda_table* table, void* stream) {
  return Try([&]() -> Maybe {
    OPWRIGHT_RETURN_IF(table->table->CheckDevice());
    Verdict verdict;
    OPWRIGHT_RETURN_IF(table->findings->Check(StreamOf(stream), &verdict));
    if (!verdict.bad()) return {};
    return Invalid(Describe(table->table->config(), verdict));
  });
}
