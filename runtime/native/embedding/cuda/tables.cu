#include "embedding/cuda/tables.h"

#include <algorithm>
#include <string>

#include "embedding/cuda/check.h"
#include "embedding/cuda/launch.h"

namespace opwright::embedding::cuda {
namespace {

std::string Text(int64_t value) { return std::to_string(value); }

// A kernel of at most `threads` threads at each of `blocks` blocks of columns.
template <class Kernel>
Status Queue(const char* what, const Kernel& kernel, int64_t threads, int blocks,
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

StatusOr<std::unique_ptr<DeviceErrorBuffer>> DeviceErrorBuffer::Create(Memory* memory,
                                                                       cudaStream_t stream) {
  std::unique_ptr<DeviceErrorBuffer> made(new DeviceErrorBuffer(memory));
  OPWRIGHT_CUDA(cudaMallocHost(reinterpret_cast<void**>(&made->seen_), sizeof(DeviceErrors)));
  made->errors_ = static_cast<DeviceErrors*>(memory->Allocate(sizeof(DeviceErrors)));
  if (!made->errors_) {
    return ResourceExhaustedError("device memory has no " + Text(sizeof(DeviceErrors)) +
                                  " bytes left");
  }
  OPWRIGHT_RETURN_IF_ERROR(made->Clear(stream));
  return {std::move(made)};
}

DeviceErrorBuffer::~DeviceErrorBuffer() {
  // Nobody is left to tell of an error.
  if (errors_) memory_->Free(errors_);
  if (seen_) static_cast<void>(cudaFreeHost(seen_));
}

Status DeviceErrorBuffer::CopyTo(DeviceErrors* to, cudaStream_t stream) const {
  OPWRIGHT_CUDA(
      cudaMemcpyAsync(to, errors_, sizeof(DeviceErrors), cudaMemcpyDeviceToHost, stream));
  return {};
}

Status DeviceErrorBuffer::Clear(cudaStream_t stream) const {
  OPWRIGHT_CUDA(cudaMemsetAsync(errors_, 0xFF, sizeof(DeviceErrors), stream));
  return {};
}

StatusOr<DeviceErrors> DeviceErrorBuffer::Check(cudaStream_t stream) const {
  OPWRIGHT_RETURN_IF_ERROR(CopyTo(seen_, stream));
  OPWRIGHT_CUDA(cudaStreamSynchronize(stream));
  const DeviceErrors errors = *seen_;
  if (errors.any()) OPWRIGHT_RETURN_IF_ERROR(Clear(stream));
  return errors;
}

StatusOr<std::unique_ptr<Table>> Table::Create(const TableConfig& config,
                                               int64_t most_chunk_bytes, Memory* memory,
                                               DeviceErrors* errors, cudaStream_t stream) {
  std::unique_ptr<Table> made(new Table(config, memory, errors));
  OPWRIGHT_RETURN_IF_ERROR(made->Allocate(most_chunk_bytes, stream));
  return {std::move(made)};
}

Status Table::Allocate(int64_t most_chunk_bytes, cudaStream_t stream) {
  OPWRIGHT_RETURN_IF_ERROR(CheckNumbers(config_, Describe(config_)));
  const StatusOr<Chunks> planned = PlanChunks(config_, most_chunk_bytes);
  OPWRIGHT_RETURN_IF_ERROR(planned.status());
  const Chunks& chunks = *planned;
  OPWRIGHT_RETURN_IF_ERROR(PlanUpdate(config_, 0, 1, 0).status());
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
    return ResourceExhaustedError(Describe(config_) + " take " +
                                  gib(4. * static_cast<double>(chunks.rows) * chunks.stride) +
                                  " in " + Text(chunks.count) +
                                  " allocations, more than device " + Text(device_) +
                                  " gives: " + gib(static_cast<double>(left)) + " were left");
  }
  for (int i = 0; i < chunks.count; ++i) {
    OPWRIGHT_CUDA(
        cudaMemsetAsync(rows_.chunks[i], 0, static_cast<size_t>(chunks.bytes_of(i)), stream));
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

Status Table::CheckDevice() const {
  int device = 0;
  OPWRIGHT_CUDA(cudaGetDevice(&device));
  if (device == device_) return {};
  return FailedPreconditionError(Describe(config_) + " lie on device " + Text(device_) +
                                 "; the current device is " + Text(device));
}

Status Table::CheckSource(const char* call, const Source& source) const {
  if (source.samples < 0 || source.samples >= int64_t{1} << 48 || source.count < 0 ||
      source.count >= int64_t{1} << 48 || (source.samples == 0 && source.count > 0)) {
    return InvalidArgumentError(std::string(call) + " of " + Describe(config_) + " has " +
                                Text(source.samples) + " samples with " + Text(source.count) +
                                " ids");
  }
  if ((source.samples > 0 && !source.offsets) || (source.count > 0 && !source.indices)) {
    return InvalidArgumentError(std::string(call) + " of " + Describe(config_) + " with " +
                                Text(source.count) + " ids lacks its starts or ids");
  }
  return {};
}

Status Table::Copy(bool to_table, int64_t slot, const Shard& rows, float* values,
                   cudaStream_t stream) {
  OPWRIGHT_RETURN_IF_ERROR(CheckDevice());
  const char* const call = to_table ? "a write" : "a read";
  if (slot < -1 || slot >= config_.slots()) {
    return InvalidArgumentError(std::string(call) + " of slot " + Text(slot) + " of " +
                                Describe(config_) + "; -1 are the weights");
  }
  if ((rows.count > 0 && !values) || rows.count < 0 || rows.first < 0 || rows.step < 1 ||
      (rows.count > 0 && (rows.first >= config_.rows ||
                          rows.count - 1 > (config_.rows - 1 - rows.first) / rows.step))) {
    return InvalidArgumentError(std::string(call) + " of " + Text(rows.count) +
                                " rows, from row " + Text(rows.first) + " on and " +
                                Text(rows.step) + " apart, of " + Describe(config_));
  }
  const int64_t offset = (slot + 1) * config_.dimension;
  const auto copy = [&](auto kernel) {
    kernel.rows = rows_;
    kernel.shape = shape_;
    kernel.count = rows.count;
    kernel.first = rows.first;
    kernel.step = rows.step;
    kernel.offset = offset;
    kernel.values = values;
    if (to_table) kernel.errors = errors_;
    return Queue(call, kernel, kernel.threads(), shape_.blocks, stream);
  };
  const bool wide = config_.dimension % kFloats == 0 && Aligned(values);
  if (!to_table) return wide ? copy(CopyRows<true, false>()) : copy(CopyRows<false, false>());
  CheckValues<false> check;
  check.values = values;
  check.count = rows.count * config_.dimension;
  check.number = slot + 1;
  check.errors = errors_;
  check.range = FactsOf(config_.optimizer).range(slot);
  check.kind = kBadNumber;
  OPWRIGHT_RETURN_IF_ERROR(Queue(call, check, check.threads(), 1, stream));
  return wide ? copy(CopyRows<true, true>()) : copy(CopyRows<false, true>());
}

Status Table::Write(int64_t slot, const Shard& rows, const float* from, cudaStream_t stream) {
  return Copy(true, slot, rows, const_cast<float*>(from), stream);
}

Status Table::Read(int64_t slot, const Shard& rows, float* to, cudaStream_t stream) {
  return Copy(false, slot, rows, to, stream);
}

Status Table::Lookup(const Source& source, float* out, cudaStream_t stream) {
  OPWRIGHT_RETURN_IF_ERROR(CheckDevice());
  OPWRIGHT_RETURN_IF_ERROR(CheckSource("a lookup", source));
  if (source.samples > 0 && !out) {
    return InvalidArgumentError("a lookup of " + Describe(config_) + " lacks its output");
  }
  const Quantization& q = config_.quantization;
  const auto look_up = [&](auto kernel) {
    kernel.rows = rows_;
    kernel.shape = shape_;
    kernel.source = source;
    if (q.enabled) kernel.lower = q.lower, kernel.upper = q.upper, kernel.size = q.step();
    kernel.out = out;
    kernel.errors = errors_;
    return Queue("a lookup", kernel, kernel.threads(), shape_.blocks, stream);
  };
  if (config_.dimension % kFloats == 0 && Aligned(out)) {
    return q.enabled ? look_up(cuda::Lookup<true, true>())
                     : look_up(cuda::Lookup<true, false>());
  }
  return q.enabled ? look_up(cuda::Lookup<false, true>())
                   : look_up(cuda::Lookup<false, false>());
}

StatusOr<Workspace> Table::Plan(int64_t ids) const {
  size_t sort_bytes = 0;
  // Before CUB is asked: what it cannot count is refused.
  OPWRIGHT_RETURN_IF_ERROR(PlanUpdate(config_, ids, resident_, 0).status());
  const bool wide = WideKeys(config_.rows);
  OPWRIGHT_CUDA(Sort(nullptr, &sort_bytes, {{nullptr, wide}, {nullptr, wide}},
                     {nullptr, nullptr}, ids, KeyBits(config_.rows), nullptr));
  return PlanUpdate(config_, ids, resident_, static_cast<int64_t>(sort_bytes));
}

StatusOr<int64_t> Table::UpdateBytes(int64_t ids) {
  OPWRIGHT_RETURN_IF_ERROR(CheckDevice());
  const StatusOr<Workspace> workspace = Plan(ids);
  OPWRIGHT_RETURN_IF_ERROR(workspace.status());
  return workspace->bytes;
}

Status Table::CheckGradients(const std::vector<Source>& sources, cudaStream_t stream) const {
  OPWRIGHT_RETURN_IF_ERROR(CheckDevice());
  for (const Source& source : sources) {
    OPWRIGHT_RETURN_IF_ERROR(CheckSource("an update", source));
    if (source.samples > 0 && !source.gradients) {
      return InvalidArgumentError("an update of " + Describe(config_) + " lacks gradients");
    }
    const auto check = [&](auto kernel) {
      kernel.values = source.gradients;
      kernel.count = source.samples * config_.dimension;
      kernel.number = source.number;
      kernel.errors = errors_;
      return Queue("the gradients of an update", kernel, kernel.threads(), 1, stream);
    };
    OPWRIGHT_RETURN_IF_ERROR(Aligned(source.gradients) ? check(CheckValues<true>())
                                                       : check(CheckValues<false>()));
  }
  return {};
}

Status Table::Update(const std::vector<Source>& sources, float learning_rate, void* workspace,
                     int64_t workspace_bytes, cudaStream_t stream) {
  OPWRIGHT_RETURN_IF_ERROR(CheckDevice());
  if (!FactsOf(config_.optimizer).has_rule()) {
    return UnimplementedError("an update of " + Describe(config_) + ": optimizer " +
                              FactsOf(config_.optimizer).field + " has no public rule");
  }
  if (sources.size() > size_t{1} << 15) {
    return InvalidArgumentError("an update of " + Describe(config_) + " has " +
                                Text(static_cast<int64_t>(sources.size())) +
                                " sources; 32768 are possible");
  }
  const Hyper hyper = HyperAt(config_, learning_rate);
  const std::string wrong = WrongRate(config_.optimizer, hyper);
  if (!wrong.empty()) {
    return InvalidArgumentError("an update of " + Describe(config_) + ": its learning rate " +
                                wrong);
  }
  int64_t ids = 0;
  bool wide = config_.dimension % kFloats == 0;
  for (const Source& source : sources) {
    OPWRIGHT_RETURN_IF_ERROR(CheckSource("an update", source));
    if (source.samples > 0 && !source.gradients) {
      return InvalidArgumentError("an update of " + Describe(config_) + " lacks gradients");
    }
    ids += source.count;
    wide = wide && Aligned(source.gradients);
  }
  const StatusOr<Workspace> planned = Plan(ids);
  OPWRIGHT_RETURN_IF_ERROR(planned.status());
  const Workspace& plan = *planned;
  if (workspace_bytes < plan.bytes || !Aligned(workspace)) {
    return InvalidArgumentError("an update of " + Describe(config_) + " with " + Text(ids) +
                                " ids works in " + Text(plan.bytes) +
                                " bytes, aligned to 16; " + Text(workspace_bytes) + " came");
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
    OPWRIGHT_CUDA(cudaMemsetAsync(touched, 0, static_cast<size_t>(plan.touched_bytes), stream));
  }

  int64_t position = 0;
  for (const Source& source : sources) {
    Expand expand;
    expand.source = source;
    expand.position = position;
    expand.rows = config_.rows;
    expand.dimension = config_.dimension;
    expand.lane_bits = SampleLaneBits(source.samples, source.count);
    expand.keys = keys[0];
    expand.positions = positions[0];
    expand.contributions = contributions;
    expand.touched = touched;
    expand.errors = errors_;
    OPWRIGHT_RETURN_IF_ERROR(
        Queue("the ids of an update", expand, expand.threads(), 1, stream));
    position += source.count;
  }
  if (ids > 0) {
    size_t sort_bytes = static_cast<size_t>(plan.sort_bytes);
    OPWRIGHT_CUDA(Sort(base + plan.sort, &sort_bytes, keys, positions, ids,
                       KeyBits(config_.rows), stream));
  }

  Sorted sorted;
  sorted.rows = rows_;
  sorted.shape = shape_;
  sorted.keys = keys[1];
  sorted.positions = positions[1];
  sorted.contributions = contributions;
  sorted.count = ids;
  sorted.tile = plan.tile;
  sorted.tiles = plan.tiles;
  sorted.partials = reinterpret_cast<double*>(base + plan.partials);
  sorted.crossing = reinterpret_cast<int32_t*>(base + plan.crossing);
  sorted.counters = counters;
  sorted.errors = errors_;
  return wide ? UpdateRows<true>(sorted, touched, hyper, stream)
              : UpdateRows<false>(sorted, touched, hyper, stream);
}

template <bool kWide>
Status Table::UpdateRows(const Sorted& sorted, const uint32_t* touched, const Hyper& hyper,
                         cudaStream_t stream) const {
  Status status;
  VisitRule(config_.optimizer, [&](auto tag) {
    using Rule = typename decltype(tag)::type;
    const auto queue = [&]() -> Status {
      const Step<Rule> step(hyper);
      const int64_t threads = sorted.tiles << shape_.lane_bits;
      const int blocks = shape_.blocks;
      if (threads > 0 && !config_.accumulate) {
        OPWRIGHT_RETURN_IF_ERROR(
            Queue("an update", UpdateEach<Rule, kWide>{sorted, step}, threads, blocks, stream));
      } else if (threads > 0) {
        OPWRIGHT_RETURN_IF_ERROR(Queue("an update", UpdateTiles<Rule, kWide>{sorted, step},
                                       threads, blocks, stream));
        // How many runs cross tiles, the device alone knows: grids are what it runs at once.
        const Combine<Rule, kWide> combine{sorted, step};
        OPWRIGHT_RETURN_IF_ERROR(Queue("an update of rows with many ids",
                                       CombineShort<Rule, kWide>{combine},
                                       std::min(threads, resident_), blocks, stream));
        if (sorted.tiles > kShortTiles) {
          using Long = CombineLong<Rule, kWide>;
          const int64_t grid = std::max<int64_t>(
              1, std::min(resident_ / Long::kTogether, sorted.tiles / kShortTiles));
          OPWRIGHT_RETURN_IF_ERROR(Failed("an update of rows with very many ids",
                                          LaunchTogether(Long{combine}, grid, blocks, stream)));
        }
      }
      if (!touched) return {};
      return Queue("an update of all rows",
                   UpdateRest<Rule, kWide>{rows_, shape_, touched, errors_, step},
                   rows_.rows << shape_.lane_bits, blocks, stream);
    };
    static_cast<void>(status = queue());  // nvcc takes an assignment for a call.
  });
  return status;
}

Status FillWithBits(uint32_t bits, int64_t count, float* to, cudaStream_t stream) {
  return Queue("filling", Fill{bits, count, reinterpret_cast<uint32_t*>(to)}, count, 1, stream);
}

StatusOr<std::optional<Outside>> FindOutside(Range range, int64_t count, const float* values,
                                             Memory* memory, cudaStream_t stream) {
  unsigned long long at = DeviceErrors::kNone;
  const auto free = [memory](unsigned long long* data) { memory->Free(data); };
  const std::unique_ptr<unsigned long long, decltype(free)> first(
      static_cast<unsigned long long*>(memory->Allocate(sizeof at)), free);
  if (!first) {
    return ResourceExhaustedError("looking through values takes " + Text(sizeof at) +
                                  " bytes of device memory; " + Text(memory->Left()) +
                                  " are left");
  }
  OPWRIGHT_CUDA(cudaMemsetAsync(first.get(), 0xFF, sizeof at, stream));
  FindOutsideRange find;
  find.range = range;
  find.count = count;
  find.values = reinterpret_cast<const uint32_t*>(values);
  find.first = first.get();
  OPWRIGHT_RETURN_IF_ERROR(Queue("looking through values", find, count, 1, stream));
  const auto fetch = [stream](void* to, const void* from, size_t bytes) -> Status {
    OPWRIGHT_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream));
    OPWRIGHT_CUDA(cudaStreamSynchronize(stream));
    return {};
  };
  OPWRIGHT_RETURN_IF_ERROR(fetch(&at, first.get(), sizeof at));
  if (at == DeviceErrors::kNone) return std::optional<Outside>();
  Outside outside{static_cast<int64_t>(at), 0};
  OPWRIGHT_RETURN_IF_ERROR(fetch(&outside.value, values + outside.at, sizeof outside.value));
  return std::optional<Outside>(outside);
}

}  // namespace opwright::embedding::cuda
