#include "cuda/tables.h"

#include <algorithm>
#include <string>

#include "cuda/check.h"
#include "cuda/launch.h"

namespace opwright {
namespace cuda {
namespace {

using embedding::Hyper;
using embedding::Invalid;
using embedding::OutOfMemory;
using embedding::Refusal;
using embedding::Shard;
using embedding::VisitRule;

std::string Text(int64_t value) { return std::to_string(value); }

// A kernel of at most `threads` threads at each of `blocks` blocks of columns.
template <class Kernel>
Maybe Queue(const char* what, const Kernel& kernel, int64_t threads, int blocks,
            cudaStream_t stream) {
  if (threads == 0) return {};
  return Failed(what, Launch(kernel, GridOf(threads), blocks, stream));
}

bool Aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

class CudaMalloc : public Memory {
 public:
  void* Allocate(int64_t bytes) override {
    void* data = nullptr;
    if (cudaMalloc(&data, static_cast<size_t>(bytes)) == cudaSuccess) return data;
    cudaGetLastError();
    return nullptr;
  }
  // Nobody is left to tell of an error.
  void Free(void* data) override { static_cast<void>(cudaFree(data)); }
  int64_t Left() override {
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) cudaGetLastError();
    return static_cast<int64_t>(free);
  }
};

}  // namespace

Memory* DeviceMemory() {
  static CudaMalloc memory;
  return &memory;
}

Maybe Findings::Create(Memory* memory, cudaStream_t stream,
                       std::unique_ptr<Findings>* findings) {
  std::unique_ptr<Findings> made(new Findings(memory));
  OPWRIGHT_CUDA(cudaMallocHost(reinterpret_cast<void**>(&made->seen_), sizeof(Verdict)));
  made->verdict_ = static_cast<Verdict*>(memory->Allocate(sizeof(Verdict)));
  if (!made->verdict_) {
    return OutOfMemory("device memory has no " + Text(sizeof(Verdict)) + " bytes left");
  }
  OPWRIGHT_RETURN_IF(made->Clear(stream));
  *findings = std::move(made);
  return {};
}

Findings::~Findings() {
  // Nobody is left to tell of an error.
  if (verdict_) memory_->Free(verdict_);
  if (seen_) static_cast<void>(cudaFreeHost(seen_));
}

Maybe Findings::Tell(Verdict* to, cudaStream_t stream) const {
  OPWRIGHT_CUDA(cudaMemcpyAsync(to, verdict_, sizeof(Verdict), cudaMemcpyDeviceToHost, stream));
  return {};
}

Maybe Findings::Clear(cudaStream_t stream) const {
  OPWRIGHT_CUDA(cudaMemsetAsync(verdict_, 0xFF, sizeof(Verdict), stream));
  return {};
}

Maybe Findings::Check(cudaStream_t stream, Verdict* verdict) const {
  OPWRIGHT_RETURN_IF(Tell(seen_, stream));
  OPWRIGHT_CUDA(cudaStreamSynchronize(stream));
  *verdict = *seen_;
  if (!seen_->bad()) return {};
  return Clear(stream);
}

Maybe Table::Create(const TableConfig& config, int64_t most_chunk_bytes, Memory* memory,
                    Verdict* verdict, cudaStream_t stream, std::unique_ptr<Table>* table) {
  std::unique_ptr<Table> made(new Table(config, memory, verdict));
  OPWRIGHT_RETURN_IF(made->Allocate(most_chunk_bytes, stream));
  *table = std::move(made);
  return {};
}

Maybe Table::Allocate(int64_t most_chunk_bytes, cudaStream_t stream) {
  if (config_.quantization.enabled && config_.quantization.buckets < 2) {
    return Invalid(Describe(config_) + ", quantized to " +
                   Text(config_.quantization.buckets) + " buckets; there must be at least 2");
  }
  Chunks chunks;
  OPWRIGHT_RETURN_IF(PlanChunks(config_, most_chunk_bytes, &chunks));
  Workspace none;
  OPWRIGHT_RETURN_IF(PlanUpdate(config_, 0, 1, 0, &none));
  OPWRIGHT_CUDA(cudaGetDevice(&device_));
  int processors = 0, threads = 0;
  OPWRIGHT_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device_));
  OPWRIGHT_CUDA(
      cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, device_));
  resident_ = static_cast<int64_t>(processors) * threads;
  shape_ = PlanShape(config_.dimension);
  rows_.rows = chunks.rows;
  rows_.stride = chunks.stride;
  rows_.shift = chunks.shift;
  const int64_t left = memory_->Left();
  for (int i = 0; i < chunks.count; ++i) {
    rows_.chunks[i] = static_cast<float*>(memory_->Allocate(chunks.bytes_of(i)));
    if (rows_.chunks[i]) continue;
    const auto gib = [](double bytes) { return std::to_string(bytes / (1 << 30)) + " GiB"; };
    return OutOfMemory(Describe(config_) + " take " +
                       gib(4. * static_cast<double>(chunks.rows) * chunks.stride) + " in " +
                       Text(chunks.count) + " allocations, more than device " + Text(device_) +
                       " gives: " + gib(static_cast<double>(left)) + " were left");
  }
  for (int i = 0; i < chunks.count; ++i) {
    OPWRIGHT_CUDA(cudaMemsetAsync(rows_.chunks[i], 0,
                                  static_cast<size_t>(chunks.bytes_of(i)), stream));
  }
  return {};
}

Table::~Table() {
  // Nobody is left to tell of an error.
  static_cast<void>(cudaDeviceSynchronize());
  for (float* const chunk : rows_.chunks) {
    if (chunk) memory_->Free(chunk);
  }
}

Maybe Table::CheckDevice() const {
  int device = 0;
  OPWRIGHT_CUDA(cudaGetDevice(&device));
  if (device == device_) return {};
  return embedding::Precondition(Describe(config_) + " lie on device " + Text(device_) +
                                 "; the current device is " + Text(device));
}

Maybe Table::CheckSource(const char* call, const Source& source) const {
  if (source.samples < 0 || source.samples >= int64_t{1} << 48 || source.count < 0 ||
      source.count >= int64_t{1} << 48 || (source.samples == 0 && source.count > 0)) {
    return Invalid(std::string(call) + " of " + Describe(config_) + " has " +
                   Text(source.samples) + " samples with " + Text(source.count) + " ids");
  }
  if ((source.samples > 0 && !source.starts) || (source.count > 0 && !source.ids)) {
    return Invalid(std::string(call) + " of " + Describe(config_) + " with " +
                   Text(source.count) + " ids lacks its starts or ids");
  }
  return {};
}

Maybe Table::Copy(bool to_table, int64_t slot, const Shard& rows, float* values,
                  cudaStream_t stream) {
  OPWRIGHT_RETURN_IF(CheckDevice());
  const char* const call = to_table ? "a write" : "a read";
  if (slot < -1 || slot >= config_.slots()) {
    return Invalid(std::string(call) + " of slot " + Text(slot) + " of " + Describe(config_) +
                   "; -1 are the weights");
  }
  if ((rows.count > 0 && !values) || rows.count < 0 || rows.first < 0 || rows.step < 1 ||
      (rows.count > 0 && (rows.first >= config_.rows ||
                          rows.count - 1 > (config_.rows - 1 - rows.first) / rows.step))) {
    return Invalid(std::string(call) + " of " + Text(rows.count) + " rows, from row " +
                   Text(rows.first) + " on and " + Text(rows.step) + " apart, of " +
                   Describe(config_));
  }
  const int64_t offset = (slot + 1) * config_.dimension;
  const auto copy = [&](auto kernel) {
    return Queue(call, kernel, kernel.threads(), shape_.blocks, stream);
  };
  const bool wide = config_.dimension % kFloats == 0 && Aligned(values);
  if (to_table) {
    return wide ? copy(CopyRows<true, true>{rows_, shape_, rows.count, rows.first, rows.step,
                                            offset, values})
                : copy(CopyRows<false, true>{rows_, shape_, rows.count, rows.first, rows.step,
                                             offset, values});
  }
  return wide ? copy(CopyRows<true, false>{rows_, shape_, rows.count, rows.first, rows.step,
                                           offset, values})
              : copy(CopyRows<false, false>{rows_, shape_, rows.count, rows.first, rows.step,
                                            offset, values});
}

Maybe Table::Write(int64_t slot, const Shard& rows, const float* from, cudaStream_t stream) {
  return Copy(true, slot, rows, const_cast<float*>(from), stream);
}

Maybe Table::Read(int64_t slot, const Shard& rows, float* to, cudaStream_t stream) {
  return Copy(false, slot, rows, to, stream);
}

Maybe Table::Lookup(const Source& source, float* out, cudaStream_t stream) {
  OPWRIGHT_RETURN_IF(CheckDevice());
  OPWRIGHT_RETURN_IF(CheckSource("a lookup", source));
  if (source.samples > 0 && !out) {
    return Invalid("a lookup of " + Describe(config_) + " lacks its output");
  }
  const embedding::Quantization& q = config_.quantization;
  const float size = q.enabled ? (q.upper - q.lower) / static_cast<float>(q.buckets - 1) : 0;
  const auto look_up = [&](auto kernel) {
    return Queue("a lookup", kernel, kernel.threads(), shape_.blocks, stream);
  };
  const bool wide = config_.dimension % kFloats == 0 && Aligned(out);
  if (q.enabled) {
    return wide ? look_up(cuda::Lookup<true, true>{rows_, shape_, source, q.lower, q.upper,
                                                   size, out, verdict_})
                : look_up(cuda::Lookup<false, true>{rows_, shape_, source, q.lower, q.upper,
                                                    size, out, verdict_});
  }
  return wide ? look_up(cuda::Lookup<true, false>{rows_, shape_, source, 0, 0, 0, out,
                                                  verdict_})
              : look_up(cuda::Lookup<false, false>{rows_, shape_, source, 0, 0, 0, out,
                                                   verdict_});
}

Maybe Table::Plan(int64_t ids, Workspace* workspace) const {
  size_t sort_bytes = 0;
  // Before CUB is asked: what it cannot count is refused.
  OPWRIGHT_RETURN_IF(PlanUpdate(config_, ids, resident_, 0, workspace));
  const bool wide = WideKeys(config_.rows);
  OPWRIGHT_CUDA(Sort(nullptr, &sort_bytes, {{nullptr, wide}, {nullptr, wide}},
                     {nullptr, nullptr}, ids, KeyBits(config_.rows), nullptr));
  return PlanUpdate(config_, ids, resident_, static_cast<int64_t>(sort_bytes), workspace);
}

Maybe Table::UpdateBytes(int64_t ids, int64_t* bytes) {
  OPWRIGHT_RETURN_IF(CheckDevice());
  Workspace workspace;
  OPWRIGHT_RETURN_IF(Plan(ids, &workspace));
  *bytes = workspace.bytes;
  return {};
}

Maybe Table::CheckGradients(const std::vector<Source>& sources, cudaStream_t stream) const {
  OPWRIGHT_RETURN_IF(CheckDevice());
  for (const Source& source : sources) {
    OPWRIGHT_RETURN_IF(CheckSource("an update", source));
    if (source.samples > 0 && !source.gradients) {
      return Invalid("an update of " + Describe(config_) + " lacks gradients");
    }
    const auto check = [&](auto kernel) {
      return Queue("the gradients of an update", kernel, kernel.threads(), 1, stream);
    };
    const int64_t values = source.samples * config_.dimension;
    OPWRIGHT_RETURN_IF(
        Aligned(source.gradients)
            ? check(cuda::CheckGradients<true>{source.gradients, values, source.number,
                                               verdict_})
            : check(cuda::CheckGradients<false>{source.gradients, values, source.number,
                                                verdict_}));
  }
  return {};
}

Maybe Table::Update(const std::vector<Source>& sources, float learning_rate, void* workspace,
                    int64_t workspace_bytes, cudaStream_t stream) {
  OPWRIGHT_RETURN_IF(CheckDevice());
  if (!embedding::FactsOf(config_.optimizer).has_rule()) {
    return Refusal{Refusal::Kind::kUnimplemented,
                   "an update of " + Describe(config_) + ": optimizer " +
                       embedding::FactsOf(config_.optimizer).field + " has no public rule"};
  }
  if (sources.size() > size_t{1} << 15) {
    return Invalid("an update of " + Describe(config_) + " has " +
                   Text(static_cast<int64_t>(sources.size())) + " sources; 32768 are possible");
  }
  int64_t ids = 0;
  bool wide = config_.dimension % kFloats == 0;
  for (const Source& source : sources) {
    OPWRIGHT_RETURN_IF(CheckSource("an update", source));
    if (source.samples > 0 && !source.gradients) {
      return Invalid("an update of " + Describe(config_) + " lacks gradients");
    }
    ids += source.count;
    wide = wide && Aligned(source.gradients);
  }
  Workspace plan;
  OPWRIGHT_RETURN_IF(Plan(ids, &plan));
  if (workspace_bytes < plan.bytes || !Aligned(workspace)) {
    return Invalid("an update of " + Describe(config_) + " with " + Text(ids) +
                   " ids works in " + Text(plan.bytes) + " bytes, aligned to 16; " +
                   Text(workspace_bytes) + " came");
  }
  char* const base = static_cast<char*>(workspace);
  const bool wide_keys = WideKeys(config_.rows);
  const Keys keys[2] = {{base + plan.keys[0], wide_keys}, {base + plan.keys[1], wide_keys}};
  uint32_t* const positions[2] = {reinterpret_cast<uint32_t*>(base + plan.positions[0]),
                                  reinterpret_cast<uint32_t*>(base + plan.positions[1])};
  Contribution* const contributions =
      reinterpret_cast<Contribution*>(base + plan.contributions);
  uint32_t* const counters = reinterpret_cast<uint32_t*>(base + plan.counters);
  uint32_t* const touched =
      config_.every_row ? reinterpret_cast<uint32_t*>(base + plan.touched) : nullptr;
  OPWRIGHT_CUDA(cudaMemsetAsync(counters, 0, 2 * sizeof(uint32_t), stream));
  if (touched) {
    OPWRIGHT_CUDA(
        cudaMemsetAsync(touched, 0, static_cast<size_t>(plan.touched_bytes), stream));
  }

  int64_t position = 0;
  for (const Source& source : sources) {
    const Expand expand{source, position, config_.rows, config_.dimension,
                        SampleLaneBits(source.samples, source.count), keys[0], positions[0],
                        contributions, touched, verdict_};
    OPWRIGHT_RETURN_IF(Queue("the ids of an update", expand, expand.threads(), 1, stream));
    position += source.count;
  }
  if (ids > 0) {
    size_t sort_bytes = static_cast<size_t>(plan.sort_bytes);
    OPWRIGHT_CUDA(Sort(base + plan.sort, &sort_bytes, keys, positions, ids,
                       KeyBits(config_.rows), stream));
  }

  Hyper hyper = config_.hyper;
  hyper.learning_rate = learning_rate;
  if (config_.decay_times_rate) hyper.decay *= learning_rate;
  const Sorted sorted{rows_, shape_, keys[1], positions[1], contributions, ids, plan.tile,
                      plan.tiles, reinterpret_cast<double*>(base + plan.partials),
                      reinterpret_cast<int32_t*>(base + plan.crossing), counters, verdict_};
  return wide ? UpdateRows<true>(sorted, touched, hyper, stream)
              : UpdateRows<false>(sorted, touched, hyper, stream);
}

template <bool kWide>
Maybe Table::UpdateRows(const Sorted& sorted, const uint32_t* touched, const Hyper& hyper,
                        cudaStream_t stream) const {
  Maybe refused;
  VisitRule(config_.optimizer, [&](auto tag) {
    using Rule = typename decltype(tag)::type;
    refused = [&]() -> Maybe {
      const Step<Rule> step(hyper);
      const int64_t threads = sorted.tiles << shape_.lane_bits;
      const int blocks = shape_.blocks;
      if (threads > 0 && !config_.accumulate) {
        OPWRIGHT_RETURN_IF(Queue("an update", UpdateEach<Rule, kWide>{sorted, step}, threads,
                                 blocks, stream));
      } else if (threads > 0) {
        OPWRIGHT_RETURN_IF(Queue("an update", UpdateTiles<Rule, kWide>{sorted, step}, threads,
                                 blocks, stream));
        // How many runs cross tiles, the device alone knows: grids are what it runs at once.
        const Combine<Rule, kWide> combine{sorted, step};
        OPWRIGHT_RETURN_IF(Queue("an update of rows with many ids",
                                 CombineShort<Rule, kWide>{combine},
                                 std::min(threads, resident_), blocks, stream));
        if (sorted.tiles > kShortTiles) {
          using Long = CombineLong<Rule, kWide>;
          const int64_t grid = std::max<int64_t>(1, std::min(resident_ / Long::kTogether,
                                                             sorted.tiles / kShortTiles));
          OPWRIGHT_RETURN_IF(Failed("an update of rows with very many ids",
                                    LaunchTogether(Long{combine}, grid, blocks, stream)));
        }
      }
      if (!touched) return {};
      return Queue("an update of all rows",
                   UpdateRest<Rule, kWide>{rows_, shape_, touched, verdict_, step},
                   rows_.rows << shape_.lane_bits, blocks, stream);
    }();
  });
  return refused;
}

Maybe FillWithBits(uint32_t bits, int64_t count, float* to, cudaStream_t stream) {
  return Queue("filling", Fill{bits, count, reinterpret_cast<uint32_t*>(to)}, count, 1, stream);
}

Maybe FindBitsAbove(uint32_t bits, int64_t count, const float* values,
                    unsigned long long* first, cudaStream_t stream) {
  OPWRIGHT_CUDA(cudaMemsetAsync(first, 0xFF, sizeof *first, stream));
  return Queue("looking through values",
               FindAbove{bits, count, reinterpret_cast<const uint32_t*>(values), first}, count,
               1, stream);
}

}  // namespace cuda
}  // namespace opwright
