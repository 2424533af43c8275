#include "embedding/cuda/tables.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "embedding/cuda/check.h"
#include "embedding/cuda/launch.h"
#include "embedding/cuda/requirements.h"
#include "embedding/cuda/sort.h"
#include "embedding/text.h"

namespace opwright::embedding::cuda {
namespace {

// Launches a kernel of at most `threads` threads for each of `blocks` blocks of columns.
template <class Kernel>
Status Queue(const char* what, const Kernel& kernel, int64_t threads, int blocks,
             cudaStream_t stream) {
  if (threads == 0) return {};
  return Failed(what, Launch(kernel, GridOf(threads), blocks, stream));
}

class CudaMalloc : public Memory {
 public:
  void* Allocate(int64_t bytes) override {
    void* data = nullptr;
    if (cudaMalloc(&data, static_cast<size_t>(bytes)) == cudaSuccess) return data;
    cudaGetLastError();
    return nullptr;
  }
  // The error is ignored, because there is no caller to report it to.
  void Free(void* data) override { static_cast<void>(cudaFree(data)); }
  int64_t Left() override {
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) cudaGetLastError();
    return static_cast<int64_t>(free);
  }
};

}  // namespace

Status CheckThisMachine() {
  Machine machine;
  machine.built_with = CUDART_VERSION;
  OPWRIGHT_CUDA(cudaDriverGetVersion(&machine.driver));
  OPWRIGHT_RETURN_IF_ERROR(CheckMachine(machine));
  int device = 0, major = 0, minor = 0;
  OPWRIGHT_CUDA(cudaGetDevice(&device));
  OPWRIGHT_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  OPWRIGHT_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  machine.gpu = "device " + Text(device);
  machine.capability = 10 * major + minor;
  const cudaError_t code = FindCode();
  machine.has_code = code != cudaErrorNoKernelImageForDevice &&
                     code != cudaErrorInvalidDeviceFunction &&
                     code != cudaErrorUnsupportedPtxVersion && code != cudaErrorInvalidPtx;
  if (machine.has_code) return Failed("cudaFuncGetAttributes", code);
  static_cast<void>(cudaGetLastError());
  return CheckMachine(machine);
}

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
  // The error is ignored, because there is no caller to report it to.
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

StatusOr<std::unique_ptr<Tables>> Tables::Create(const std::vector<TableConfig>& configs,
                                                 int64_t most_chunk_bytes, Memory* memory,
                                                 DeviceErrors* errors, cudaStream_t stream) {
  std::unique_ptr<Tables> made(new Tables(configs, memory, errors));
  OPWRIGHT_RETURN_IF_ERROR(made->Allocate(most_chunk_bytes, stream));
  return {std::move(made)};
}

Status Tables::Allocate(int64_t most_chunk_bytes, cudaStream_t stream) {
  OPWRIGHT_CUDA(cudaGetDevice(&device_));
  int processors = 0, threads = 0;
  OPWRIGHT_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device_));
  OPWRIGHT_CUDA(
      cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, device_));
  resident_ = static_cast<int64_t>(processors) * threads;
  OPWRIGHT_RETURN_IF_ERROR(
      PlanUpdate(configs_, std::vector<int64_t>(configs_.size()), 1, 0, 0).status());

  // The descriptors contain the addresses of all chunks and, after them, the views, which point
  // to these addresses.
  std::vector<float*> addresses(configs_.size() * kMaxChunks);
  const size_t address_bytes = addresses.size() * sizeof(float*);
  const size_t bytes = address_bytes + configs_.size() * sizeof(TableView);
  char* const descriptors = static_cast<char*>(memory_->Allocate(static_cast<int64_t>(bytes)));
  if (!descriptors) {
    return ResourceExhaustedError(
        "descriptors of " + Describe(configs_) + " take " + Text(static_cast<int64_t>(bytes)) +
        " bytes of device memory; " + Text(memory_->Left()) + " are left");
  }
  pieces_.push_back(descriptors);
  int64_t first_key = 0;
  for (size_t t = 0; t < configs_.size(); ++t) {
    const TableConfig& config = configs_[t];
    OPWRIGHT_RETURN_IF_ERROR(CheckNumbers(config, Describe(config)));
    if (config.every_row && TraitsOf(config.optimizer).non_lazy() < 0) {
      return InvalidArgumentError(Describe(config) + ": " + TraitsOf(config.optimizer).field +
                                  " does nothing to rows that no batch looked up");
    }
    const StatusOr<Chunks> chunks = PlanChunks(config, most_chunk_bytes);
    OPWRIGHT_RETURN_IF_ERROR(chunks.status());
    float** const of_table = addresses.data() + t * kMaxChunks;
    OPWRIGHT_RETURN_IF_ERROR(AllocateTable(config, *chunks, of_table, stream));
    views_.push_back(ViewOf(config, *chunks,
                            reinterpret_cast<float* const*>(descriptors) + t * kMaxChunks,
                            first_key));
    first_key += config.rows;
  }
  device_views_ = reinterpret_cast<const TableView*>(descriptors + address_bytes);
  OPWRIGHT_CUDA(cudaMemcpyAsync(descriptors, addresses.data(), address_bytes,
                                cudaMemcpyHostToDevice, stream));
  OPWRIGHT_CUDA(cudaMemcpyAsync(descriptors + address_bytes, views_.data(),
                                bytes - address_bytes, cudaMemcpyHostToDevice, stream));
  // Waits for the copy, because `addresses` is destroyed at the end of this function.
  OPWRIGHT_CUDA(cudaStreamSynchronize(stream));
  return {};
}

Status Tables::AllocateTable(const TableConfig& config, const Chunks& chunks, float** addresses,
                             cudaStream_t stream) {
  const int64_t left = memory_->Left();
  for (int i = 0; i < chunks.count; ++i) {
    addresses[i] = static_cast<float*>(memory_->Allocate(chunks.bytes_of(i)));
    if (addresses[i]) {
      pieces_.push_back(addresses[i]);
      continue;
    }
    const auto gib = [](double bytes) { return std::to_string(bytes / (1 << 30)) + " GiB"; };
    return ResourceExhaustedError(Describe(config) + " take " +
                                  gib(4. * static_cast<double>(chunks.rows) * chunks.stride) +
                                  " in " + Text(chunks.count) +
                                  " allocations, more than device " + Text(device_) +
                                  " gives: " + gib(static_cast<double>(left)) + " were left");
  }
  for (int i = 0; i < chunks.count; ++i) {
    OPWRIGHT_CUDA(
        cudaMemsetAsync(addresses[i], 0, static_cast<size_t>(chunks.bytes_of(i)), stream));
  }
  return {};
}

Tables::~Tables() {
  // The error is ignored, because there is no caller to report it to.
  static_cast<void>(cudaDeviceSynchronize());
  for (void* const piece : pieces_) memory_->Free(piece);
}

Status Tables::CheckDevice() const {
  int device = 0;
  OPWRIGHT_CUDA(cudaGetDevice(&device));
  if (device == device_) return {};
  return FailedPreconditionError(Describe(configs_) + " lie on device " + Text(device_) +
                                 "; the current device is " + Text(device));
}

Status Tables::CheckSource(const char* call, const Source& source) const {
  const TableConfig& config = configs_[static_cast<size_t>(source.table)];
  if (source.samples < 0 || source.samples >= int64_t{1} << 48 || source.count < 0 ||
      source.count >= int64_t{1} << 48 || (source.samples == 0 && source.count > 0) ||
      (!source.offsets.data && source.count != source.samples && source.count > 0)) {
    return InvalidArgumentError(std::string(call) + " of " + Describe(config) + " has " +
                                Text(source.samples) + " samples with " + Text(source.count) +
                                " ids");
  }
  if ((source.samples > 0 && source.count == 0 && !source.offsets.data) ||
      (source.count > 0 && !source.indices.data)) {
    return InvalidArgumentError(std::string(call) + " of " + Describe(config) + " with " +
                                Text(source.count) + " ids lacks its starts or ids");
  }
  return {};
}

Status Tables::Copy(bool to_table, int64_t table, int64_t slot, const Shard& rows,
                    float* values, cudaStream_t stream) {
  OPWRIGHT_RETURN_IF_ERROR(CheckDevice());
  const TableConfig& config = configs_[static_cast<size_t>(table)];
  const TableView& view = views_[static_cast<size_t>(table)];
  const char* const call = to_table ? "a write" : "a read";
  if (slot < -1 || slot >= config.slots()) {
    return InvalidArgumentError(std::string(call) + " of slot " + Text(slot) + " of " +
                                Describe(config) + "; -1 are the weights");
  }
  if ((rows.count > 0 && !values) || rows.count < 0 || rows.first < 0 || rows.step < 1 ||
      (rows.count > 0 && (rows.first >= config.rows ||
                          rows.count - 1 > (config.rows - 1 - rows.first) / rows.step))) {
    return InvalidArgumentError(std::string(call) + " of " + Text(rows.count) +
                                " rows, from row " + Text(rows.first) + " on and " +
                                Text(rows.step) + " apart, of " + Describe(config));
  }
  const auto copy = [&](auto kernel) {
    kernel.rows = view.rows;
    kernel.shape = view.shape;
    kernel.count = rows.count;
    kernel.first = rows.first;
    kernel.step = rows.step;
    kernel.offset = (slot + 1) * config.dimension;
    kernel.values = values;
    return Queue(call, kernel, kernel.threads(), view.shape.blocks, stream);
  };
  if (config.dimension % kFloats == 0 && Aligned(values)) {
    return to_table ? copy(CopyRows<true, true>()) : copy(CopyRows<true, false>());
  }
  return to_table ? copy(CopyRows<false, true>()) : copy(CopyRows<false, false>());
}

Status Tables::Write(int64_t table, int64_t slot, const Shard& rows, const float* from,
                     cudaStream_t stream) {
  return Copy(true, table, slot, rows, const_cast<float*>(from), stream);
}

Status Tables::Read(int64_t table, int64_t slot, const Shard& rows, float* to,
                    cudaStream_t stream) {
  return Copy(false, table, slot, rows, to, stream);
}

Status Tables::Arrive(const ArrivalCall& call, char* image, cudaStream_t stream) {
  const auto queue = [&](const char* what, auto kernel, const std::vector<int64_t>& firsts,
                         int64_t at) {
    kernel.spread = {reinterpret_cast<const int64_t*>(image + at),
                     static_cast<int64_t>(firsts.size()) - 1, firsts.front(), firsts.back()};
    kernel.all = reinterpret_cast<const Arrived*>(image + call.all_at);
    kernel.errors = reinterpret_cast<DeviceErrors*>(image + call.errors_at);
    return Queue(what, kernel, kernel.threads(), 1, stream);
  };
  OPWRIGHT_RETURN_IF_ERROR(
      queue("the samples of ids", FindStarts(), call.starts, call.starts_at));
  return queue("the weights of ids", Weigh(), call.weights, call.weights_at);
}

Status Tables::TakeOver(const DeviceErrors* found, int64_t first, cudaStream_t stream) {
  const cuda::TakeOver kernel{found, first, errors_};
  return Queue("what is wrong with ids", kernel, kernel.threads(), 1, stream);
}

Status Tables::Lookup(const LookupCall& call, const char* image, float* const* outputs,
                      DeviceErrors* errors, cudaStream_t stream) {
  OPWRIGHT_RETURN_IF_ERROR(CheckDevice());
  const int64_t sources = static_cast<int64_t>(call.sources.size());
  for (int64_t i = 0; i < sources; ++i) {
    if (call.sources[static_cast<size_t>(i)].samples == 0 || outputs[i]) continue;
    return InvalidArgumentError("a lookup of " + Describe(configs_) + " lacks output " +
                                Text(i));
  }
  for (int64_t first = 0; first < sources; first += kMaxOutputs) {
    const int64_t count = std::min<int64_t>(kMaxOutputs, sources - first);
    const int64_t* const firsts = call.firsts.data() + first;
    bool plain = true;
    for (int64_t i = first; i < first + count; ++i) {
      const TableView& view = views_[static_cast<size_t>(call.sources[i].table)];
      plain = plain && view.shape.dimension % kFloats == 0 && !view.quantized &&
              Aligned(outputs[i]);
    }
    const auto look_up = [&](auto lookup) {
      lookup.spread = {reinterpret_cast<const int64_t*>(image + call.firsts_at) + first, count,
                       firsts[0], firsts[count]};
      lookup.tables = device_views_;
      lookup.sources = reinterpret_cast<const Source*>(image + call.sources_at) + first;
      lookup.errors = errors ? errors : errors_;
      std::copy(outputs + first, outputs + first + count, lookup.outputs.of);
      return Queue("a lookup", lookup, lookup.threads(), 1, stream);
    };
    OPWRIGHT_RETURN_IF_ERROR(plain ? look_up(cuda::Lookup<true>())
                                   : look_up(cuda::Lookup<false>()));
  }
  return {};
}

StatusOr<Workspace> Tables::Plan(const std::vector<int64_t>& ids, int64_t sources) const {
  const int64_t image_bytes = UpdateImageBytes(configs_.size(), sources);
  // PlanUpdate comes before CUB's sort, because it refuses numbers that CUB cannot handle.
  const StatusOr<Workspace> first = PlanUpdate(configs_, ids, resident_, image_bytes, 0);
  OPWRIGHT_RETURN_IF_ERROR(first.status());
  size_t sort_bytes = 0;
  OPWRIGHT_CUDA(Sort(nullptr, &sort_bytes,
                     {{nullptr, first->wide_keys}, {nullptr, first->wide_keys}},
                     {nullptr, nullptr}, first->ids, first->key_bits, nullptr));
  return PlanUpdate(configs_, ids, resident_, image_bytes, static_cast<int64_t>(sort_bytes));
}

StatusOr<UpdateSizes> Tables::MeasureUpdate(const std::vector<int64_t>& ids,
                                            int64_t sources) const {
  OPWRIGHT_RETURN_IF_ERROR(CheckDevice());
  const StatusOr<Workspace> plan = Plan(ids, sources);
  OPWRIGHT_RETURN_IF_ERROR(plan.status());
  return UpdateSizes{plan->bytes, UpdateImageBytes(configs_.size(), sources)};
}

static Status MakeHypers(const std::vector<TableConfig>& configs,
                         const std::vector<float>& rates, std::vector<Hyper>* hypers) {
  for (size_t t = 0; t < configs.size(); ++t) {
    const TableConfig& config = configs[t];
    if (!TraitsOf(config.optimizer).has_rule()) {
      return UnimplementedError("an update of " + Describe(config) + ": optimizer " +
                                TraitsOf(config.optimizer).field + " has no public rule");
    }
    hypers->push_back(HyperAt(config, rates[t]));
    const std::string wrong = WrongRate(config.optimizer, hypers->back());
    if (!wrong.empty()) {
      return InvalidArgumentError("an update of " + Describe(config) + ": its learning rate " +
                                  wrong);
    }
  }
  return {};
}

Status Tables::Update(const std::vector<Source>& sources, const std::vector<float>& rates,
                      const UpdateSizes& sizes, void* workspace, void* image,
                      cudaStream_t stream) {
  OPWRIGHT_RETURN_IF_ERROR(CheckDevice());
  if (sources.size() > size_t{1} << 15) {
    return InvalidArgumentError("an update of " + Describe(configs_) + " has " +
                                Text(static_cast<int64_t>(sources.size())) +
                                " sources; 32768 are possible");
  }
  std::vector<Hyper> hypers;
  OPWRIGHT_RETURN_IF_ERROR(MakeHypers(configs_, rates, &hypers));
  for (const Source& source : sources) {
    OPWRIGHT_RETURN_IF_ERROR(CheckSource("an update", source));
    if (source.samples > 0 && !source.gradients) {
      return InvalidArgumentError("an update of " +
                                  Describe(configs_[static_cast<size_t>(source.table)]) +
                                  " lacks gradients");
    }
  }
  const StatusOr<Workspace> planned =
      Plan(IdsOf(configs_.size(), sources), static_cast<int64_t>(sources.size()));
  OPWRIGHT_RETURN_IF_ERROR(planned.status());
  const Workspace& plan = *planned;
  if (sizes.workspace < plan.bytes || !Aligned(workspace)) {
    return InvalidArgumentError("an update of " + Describe(configs_) + " with " +
                                Text(plan.ids) + " ids works in " + Text(plan.bytes) +
                                " bytes, aligned to 16; " + Text(sizes.workspace) + " came");
  }
  char* const base = static_cast<char*>(workspace);
  const UpdateCall call =
      MakeUpdate(configs_, views_, device_views_, sources, hypers, plan, base, errors_);
  const std::vector<char>& bytes = call.image.bytes();
  if (static_cast<int64_t>(bytes.size()) > sizes.image) {
    return InternalError("the descriptors of an update take " +
                         Text(static_cast<int64_t>(bytes.size())) + " bytes, not " +
                         Text(sizes.image));
  }
  std::memcpy(image, bytes.data(), bytes.size());
  OPWRIGHT_CUDA(
      cudaMemcpyAsync(base + plan.image, image, bytes.size(), cudaMemcpyHostToDevice, stream));
  if (plan.touched_bytes > 0) {
    OPWRIGHT_CUDA(cudaMemsetAsync(base + plan.touched, 0,
                                  static_cast<size_t>(plan.touched_bytes), stream));
  }
  OPWRIGHT_RETURN_IF_ERROR(
      Queue("the gradients of an update", call.check, call.check.threads(), 1, stream));
  OPWRIGHT_RETURN_IF_ERROR(
      Queue("the ids of an update", call.expand, call.expand.threads(), 1, stream));
  if (plan.ids > 0) {
    const Keys keys[2] = {call.expand.keys, {base + plan.keys[1], plan.wide_keys}};
    uint32_t* const positions[2] = {call.expand.positions,
                                    reinterpret_cast<uint32_t*>(base + plan.positions[1])};
    size_t sort_bytes = static_cast<size_t>(plan.sort_bytes);
    OPWRIGHT_CUDA(
        Sort(base + plan.sort, &sort_bytes, keys, positions, plan.ids, plan.key_bits, stream));
  }
  for (const UpdateCall::GroupPlan& of_group : call.groups) {
    Status status;
    VisitElementRule(of_group.optimizer, [&](auto tag) {
      using Rule = typename decltype(tag)::type;
      const auto group = GroupOf<Rule>(of_group, plan, base, errors_);
      // Without the cast, nvcc reports the assignment as a call whose result is ignored.
      static_cast<void>(status = of_group.wide
                                     ? UpdateRows<Rule, true>(of_group, group, stream)
                                     : UpdateRows<Rule, false>(of_group, group, stream));
    });
    if (!status.ok()) return status;
  }
  return {};
}

template <class Rule, bool kWide>
Status Tables::UpdateRows(const UpdateCall::GroupPlan& plan, const Group<Rule>& group,
                          cudaStream_t stream) const {
  const int64_t threads = group.threads.size(), tiles = group.tiles.size();
  if (tiles > 0 && !plan.accumulate) {
    OPWRIGHT_RETURN_IF_ERROR(
        Queue("an update", UpdateEach<Rule, kWide>{group}, threads, 1, stream));
  } else if (tiles > 0) {
    OPWRIGHT_RETURN_IF_ERROR(
        Queue("an update", UpdateTiles<Rule, kWide>{group}, threads, 1, stream));
    // Only the device knows how many runs cross tiles. The grid therefore has at most as many
    // threads as the device can run at the same time.
    OPWRIGHT_RETURN_IF_ERROR(
        Queue("an update of rows with many ids", CombineShort<Rule, kWide>{group},
              std::min(tiles << group.lane_bits, resident_), plan.blocks, stream));
    if (tiles > kShortTiles) {
      using Long = CombineLong<Rule, kWide>;
      const int64_t grid =
          std::max<int64_t>(1, std::min(resident_ / Long::kTogether, tiles / kShortTiles));
      OPWRIGHT_RETURN_IF_ERROR(Failed("an update of rows with very many ids",
                                      LaunchTogether(Long{group}, grid, plan.blocks, stream)));
    }
  }
  if constexpr (kMayUpdateEveryRow<Rule>) {
    return Queue("an update of all rows", UpdateRest<Rule, kWide>{group}, group.rest.size(), 1,
                 stream);
  }
  return {};
}

}  // namespace opwright::embedding::cuda
