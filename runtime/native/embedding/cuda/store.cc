#include "embedding/cuda/store.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <limits>
#include <mutex>
#include <string>
#include <thread>

#include "embedding/cuda/check.h"
#include "embedding/cuda/context.h"
#include "embedding/cuda/packing.h"
#include "embedding/cuda/staging.h"
#include "embedding/text.h"

namespace opwright::embedding::cuda {
namespace {

// Device memory for the intermediate results of an update.
class Workspace {
 public:
  Workspace(Memory* memory, int64_t bytes)
      : memory_(memory), data_(memory_->Allocate(std::max<int64_t>(bytes, 1))) {}
  Workspace(Workspace&& other) noexcept : memory_(other.memory_), data_(other.data_) {
    other.data_ = nullptr;
  }
  Workspace& operator=(Workspace&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~Workspace() {
    if (data_) memory_->Free(data_);
  }

  void* get() const { return data_; }

 private:
  Memory* const memory_;
  void* data_;
};

// The stream on which ids are copied, and the device memory for them.
class Ids {
 public:
  static StatusOr<std::shared_ptr<Ids>> Create(const Context& context,
                                               std::shared_ptr<Memory> memory,
                                               cudaStream_t stream) {
    const std::shared_ptr<Ids> made(new Ids(context, stream));
    OPWRIGHT_CUDA(cudaStreamCreateWithFlags(&made->copies_, cudaStreamNonBlocking));
    made->pieces_ = std::make_unique<Pieces>(std::move(memory), made->copies_, stream);
    return made;
  }
  Ids(const Ids&) = delete;
  Ids& operator=(const Ids&) = delete;
  ~Ids() {
    const Context::Scope here(context_);
    // Errors are ignored, because there is no caller to report them to.
    if (!copies_) return;
    static_cast<void>(cudaStreamSynchronize(copies_));
    pieces_.reset();
    static_cast<void>(cudaStreamDestroy(copies_));
  }

  const Context& context() const { return context_; }
  cudaStream_t copies() const { return copies_; }
  cudaStream_t stream() const { return stream_; }
  Pieces& pieces() { return *pieces_; }

 private:
  Ids(const Context& context, cudaStream_t stream) : context_(context), stream_(stream) {}

  const Context context_;
  const cudaStream_t stream_;
  cudaStream_t copies_ = nullptr;
  std::unique_ptr<Pieces> pieces_;
};

// A batch with its ids on the device, or with a copy to the device in progress. Ids that were
// in device memory when they were enqueued are read in place, on the stream of the op that
// computed them.
struct DeviceBatch : PreparedBatch {
  DeviceBatch(std::shared_ptr<const Batch> batch, std::shared_ptr<Ids> from,
              const Pieces::Piece& taken)
      : PreparedBatch(std::move(batch)), ids(std::move(from)), piece(taken) {}
  ~DeviceBatch() override {
    const Context::Scope here(ids->context());
    // The next user of the piece must wait for the copy. The error is ignored, because there is
    // no caller to report it to.
    if (copied && !arrived) static_cast<void>(copied->Before(ids->stream()));
    ids->pieces().GiveBack(piece);
  }

  // Makes work that is queued on the stream later wait for the ids. The caller must hold the
  // lock of the store.
  Status Arrive(Tables* tables) {
    if (arrived) return {};
    OPWRIGHT_RETURN_IF_ERROR(copied->Before(ids->stream()));
    if (found) OPWRIGHT_RETURN_IF_ERROR(tables->Arrive(arrival, arrival_image, ids->stream()));
    arrived = true;
    return {};
  }

  const std::shared_ptr<Ids> ids;
  const Pieces::Piece piece;
  LookupCall call;  // The image of the call is in the piece, at `image`.
  const char* image = nullptr;
  // The fields below are for ids that were in device memory when they were enqueued. They are
  // the call that prepares the ids, the device address of its image, and the errors in device
  // memory. For other batches, `found` is null.
  ArrivalCall arrival;
  char* arrival_image = nullptr;
  DeviceErrors* found = nullptr;
  FenceRef copied;
  bool arrived = false;
};

class Store : public TableStore {
 public:
  Store(cudaStream_t stream, std::shared_ptr<Memory> memory)
      : stream_(stream), memory_(std::move(memory)) {}

  ~Store() override {
    const Context::Scope here(context_);
    tables_.reset();  // The destructor waits for the device.
    errors_.reset();
    reports_.clear();
    staging_.reset();
    ids_.reset();
  }

  Status Allocate(const Configuration& configuration) override {
    std::lock_guard<std::mutex> lock(mutex_);
    configuration_ = &configuration;
    for (size_t t = 0; t < configuration.tables.size(); ++t) {
      const RowDtype dtype = configuration.tables[t].dtype;
      if (dtype == RowDtype::kFloat32) continue;
      return UnimplementedError(Describe(configuration, static_cast<int64_t>(t)) +
                                ": rows on a GPU must be float32, are " + NameOf(dtype) +
                                "; narrow rows take tables on the CPU");
    }
    const int64_t features = static_cast<int64_t>(configuration.features.size());
    if (features * configuration.cores > kMaxSources) {
      return InvalidArgumentError(
          "there must be at most " + Text(kMaxSources) +
          " features, of all cores together, where tables lie on a GPU; there are " +
          Text(features * configuration.cores));
    }
    OPWRIGHT_RETURN_IF_ERROR(CheckThisMachine());
    const StatusOr<Context> context = Context::Current();
    OPWRIGHT_RETURN_IF_ERROR(context.status());
    context_ = *context;
    staging_ = std::make_unique<Staging>();
    auto ids = Ids::Create(context_, memory_, stream_);
    OPWRIGHT_RETURN_IF_ERROR(ids.status());
    ids_ = *std::move(ids);
    auto errors = DeviceErrorBuffer::Create(memory_.get(), stream_);
    OPWRIGHT_RETURN_IF_ERROR(errors.status());
    errors_ = *std::move(errors);
    auto tables = Tables::Create(configuration.tables, kChunkBytes, memory_.get(),
                                 errors_->device(), stream_);
    OPWRIGHT_RETURN_IF_ERROR(tables.status());
    tables_ = *std::move(tables);
    return {};
  }

  Status Write(ExecutionContext* exec, int64_t table, int64_t slot, const Shard& rows,
               const float* from) override {
    std::deque<FenceRef> under_way;
    return InPieces(table, rows, [&](const Shard& piece, int64_t at, int64_t count) -> Status {
      if (under_way.size() == kPiecesUnderWay) {
        OPWRIGHT_RETURN_IF_ERROR(under_way.front()->Wait());
        under_way.pop_front();
      }
      StatusOr<Staging::Lease> block = staging_->Take(count * kFloatBytes);
      OPWRIGHT_RETURN_IF_ERROR(block.status());
      CopyFloats(exec, count, from + at, block->data());
      const auto queue = [&] {
        return tables_->Write(table, slot, piece, reinterpret_cast<float*>(block->data()),
                              stream_);
      };
      const StatusOr<FenceRef> fence = Queue(queue);
      OPWRIGHT_RETURN_IF_ERROR(fence.status());
      under_way.push_back(*fence);
      block->GiveBack(*fence);
      return {};
    });
  }

  Status Read(ExecutionContext* exec, int64_t table, int64_t slot, const Shard& rows,
              float* to) override {
    struct Piece {
      Staging::Lease block;
      FenceRef fence;
      int64_t at, count;
    };
    std::deque<Piece> under_way;
    const auto finish = [&]() -> Status {
      const Piece piece = std::move(under_way.front());
      under_way.pop_front();
      OPWRIGHT_RETURN_IF_ERROR(piece.fence->Wait());
      CopyFloats(exec, piece.count, piece.block.data(), to + piece.at);
      return {};
    };
    Status status =
        InPieces(table, rows, [&](const Shard& piece, int64_t at, int64_t count) -> Status {
          if (under_way.size() == kPiecesUnderWay) OPWRIGHT_RETURN_IF_ERROR(finish());
          StatusOr<Staging::Lease> block = staging_->Take(count * kFloatBytes);
          OPWRIGHT_RETURN_IF_ERROR(block.status());
          const auto queue = [&] {
            return tables_->Read(table, slot, piece, reinterpret_cast<float*>(block->data()),
                                 stream_);
          };
          const StatusOr<FenceRef> fence = Queue(queue);
          OPWRIGHT_RETURN_IF_ERROR(fence.status());
          under_way.push_back({*std::move(block), *fence, at, count});
          return {};
        });
    while (!under_way.empty()) {
      const Status finished = finish();
      if (status.ok()) status = finished;
    }
    return status;
  }

  // Queues the copy of the batch's ids to the device. Waits for memory without holding a lock.
  StatusOr<PreparedRef> Prepare(ExecutionContext* exec,
                                std::shared_ptr<const Batch> batch) override {
    const Context::Scope here(context_);
    return Copy(exec, std::move(batch), /*wait=*/true);
  }

  PreparedRef PrepareAhead(ExecutionContext* exec,
                           std::shared_ptr<const Batch> batch) override {
    if (ids_->pieces().taken() > kMostAhead) return nullptr;
    const Context::Scope here(context_);
    StatusOr<PreparedRef> made = Copy(exec, std::move(batch), /*wait=*/false);
    return made.ok() ? *std::move(made) : nullptr;
  }

  Status Lookup(ExecutionContext*, PreparedBatch* prepared, float* const* outputs) override {
    DeviceBatch& batch = AsDevice(prepared);
    // The host has not checked ids that were enqueued in device memory. The update of their
    // batch reports what is wrong with them. For a batch without an update, the lookup does.
    const bool tells = batch.found && batch.batch().mode == Mode::kInference;
    Report report;
    std::shared_ptr<Fence> fence;
    if (tells) {
      const Context::Scope here(context_);
      OPWRIGHT_RETURN_IF_ERROR(MakeReport(sizeof(DeviceErrors), &report, &fence));
    }
    const Exclusive exclusive(this);
    const auto queue = [&]() -> Status {
      OPWRIGHT_RETURN_IF_ERROR(batch.Arrive(tables_.get()));
      OPWRIGHT_RETURN_IF_ERROR(
          tables_->Lookup(batch.call, batch.image, outputs, batch.found, stream_));
      if (!tells) return {};
      OPWRIGHT_CUDA(cudaMemcpyAsync(report.block.data(), batch.found, sizeof(DeviceErrors),
                                    cudaMemcpyDeviceToHost, stream_));
      return fence->Record(stream_);
    };
    OPWRIGHT_RETURN_IF_ERROR(Guarded(queue));
    if (tells) reports_.push_back(std::move(report));
    return {};
  }

  // Waits for memory without holding a lock.
  Status Update(ExecutionContext*, const std::vector<CoreGradients>& cores,
                const std::vector<float>& rates) override {
    const Context::Scope here(context_);
    std::vector<Source> sources;
    for (const CoreGradients& core : cores) {
      const std::vector<Source>& of_core = AsDevice(core.batch).call.sources;
      for (size_t f = 0; f < of_core.size(); ++f) {
        sources.push_back(of_core[f]);
        sources.back().number = static_cast<int64_t>(sources.size()) - 1;
        sources.back().gradients = core.gradients[f];
      }
    }
    const StatusOr<UpdateSizes> sizes = tables_->MeasureUpdate(
        IdsOf(configuration_->tables.size(), sources), static_cast<int64_t>(sources.size()));
    OPWRIGHT_RETURN_IF_ERROR(sizes.status());
    Workspace workspace(memory_.get(), sizes->workspace);
    RetryAllocation(sizes->workspace, [&] {
      if (!workspace.get()) workspace = Workspace(memory_.get(), sizes->workspace);
      return workspace.get() != nullptr;
    });
    if (!workspace.get()) return TooLarge("an update works in ", sizes->workspace);
    Report report;
    std::shared_ptr<Fence> fence;
    OPWRIGHT_RETURN_IF_ERROR(MakeReport(kImageAt + sizes->image, &report, &fence));
    report.of_update = true;
    report.ids_seen = std::none_of(cores.begin(), cores.end(), [](const CoreGradients& core) {
      return core.batch->batch().on_device();
    });
    char* const data = report.block.data();

    // All memory is allocated now, so nothing below fails for lack of memory. If the call was
    // refused above, nothing has changed.
    const Exclusive exclusive(this);
    reports_.push_back(std::move(report));
    const auto queue = [&]() -> Status {
      int64_t first = 0;
      for (const CoreGradients& core : cores) {
        DeviceBatch& batch = AsDevice(core.batch);
        OPWRIGHT_RETURN_IF_ERROR(batch.Arrive(tables_.get()));
        if (batch.found)
          OPWRIGHT_RETURN_IF_ERROR(tables_->TakeOver(batch.found, first, stream_));
        first += static_cast<int64_t>(batch.call.sources.size());
      }
      OPWRIGHT_RETURN_IF_ERROR(
          tables_->Update(sources, rates, *sizes, workspace.get(), data + kImageAt, stream_));
      OPWRIGHT_RETURN_IF_ERROR(errors_->CopyTo(reinterpret_cast<DeviceErrors*>(data), stream_));
      return fence->Record(stream_);
    };
    const Status status = Guarded(queue);
    if (!status.ok()) {
      reports_.pop_back();
      return status;
    }
    ids_->pieces().Passes(fence);
    ++updates_;
    return {};
  }

  Status CheckGradients(ExecutionContext*, const std::vector<const float*>&) override {
    return {};
  }

  Status CheckUpdates(bool wait) override {
    if (wait) {
      const Context::Scope here(context_);
      OPWRIGHT_CUDA(cudaStreamSynchronize(stream_));
      staging_->Trim();
    }
    const Exclusive exclusive(this);
    while (!reports_.empty()) {
      const Report& oldest = reports_.front();
      const StatusOr<bool> passed = oldest.fence->Passed();
      OPWRIGHT_RETURN_IF_ERROR(passed.status());
      if (!*passed) return {};
      const DeviceErrors errors = *reinterpret_cast<const DeviceErrors*>(oldest.block.data());
      if (errors.any()) return oldest.of_update ? ExplainUpdate(errors) : ExplainLookup(errors);
      reports_.pop_front();
    }
    return {};
  }

 private:
  // `batch` must have been prepared by this store.
  static DeviceBatch& AsDevice(PreparedBatch* batch) {
    return *static_cast<DeviceBatch*>(batch);
  }

  // The limit of sources that DeviceErrors can number in an update.
  static constexpr int64_t kMaxSources = int64_t{1} << 15;
  // The limit of bytes for ids that wait for their lookup. The ids of further batches are
  // copied when they are looked up.
  static constexpr int64_t kMostAhead = Pieces::kMost / 2;
  // Loads and retrieves go through pinned host memory, which the device reads and writes
  // directly. They do not use device memory, because a table may be larger than what is free.
  static constexpr int64_t kFloatBytes = sizeof(float);
  static constexpr int64_t kPieceBytes = int64_t{16} << 20;
  static constexpr size_t kPiecesUnderWay = 2;
  // The pinned block of an update contains the errors that the update found and, from kImageAt
  // on, its image.
  static constexpr int64_t kImageAt = 64;
  static_assert(sizeof(DeviceErrors) <= kImageAt);

  // Locks the store and enters its context for the duration of a call, so that the work of
  // several calls is not interleaved.
  struct Exclusive {
    explicit Exclusive(Store* store) : lock(store->mutex_), here(store->context_) {}
    const std::lock_guard<std::mutex> lock;
    const Context::Scope here;
  };

  // Calls `queue`, which queues work on the stream. If it fails, waits for the stream, so that
  // the device does not use memory that the caller is about to free.
  template <class Call>
  Status Guarded(const Call& queue) {
    struct Undo {
      ~Undo() {
        if (stream) static_cast<void>(cudaStreamSynchronize(*stream));
      }
      const cudaStream_t* stream;
    } undo{&stream_};
    Status status = queue();
    if (status.ok()) undo.stream = nullptr;
    return status;
  }
  // Calls Guarded(queue) with the store locked. Returns a fence after the queued work.
  template <class Call>
  StatusOr<FenceRef> Queue(const Call& queue) {
    const StatusOr<std::shared_ptr<Fence>> fence = Fence::Create();
    OPWRIGHT_RETURN_IF_ERROR(fence.status());
    const Exclusive exclusive(this);
    OPWRIGHT_RETURN_IF_ERROR(Guarded([&]() -> Status {
      OPWRIGHT_RETURN_IF_ERROR(queue());
      return (*fence)->Record(stream_);
    }));
    return FenceRef(*fence);
  }

  // Calls `visit` for one piece of a shard's rows after the other. The arguments are the rows,
  // the index of their first value, and the number of their values.
  template <class Visit>
  Status InPieces(int64_t table, const Shard& rows, const Visit& visit) {
    const Context::Scope here(context_);
    const int64_t dimension = configuration_->tables[static_cast<size_t>(table)].dimension;
    const int64_t most = std::max<int64_t>(1, kPieceBytes / (dimension * kFloatBytes));
    for (int64_t i = 0; i < rows.count; i += most) {
      const int64_t count = std::min(most, rows.count - i);
      OPWRIGHT_RETURN_IF_ERROR(visit({count, rows.first + i * rows.step, rows.step},
                                     i * dimension, count * dimension));
    }
    return {};
  }

  static void CopyFloats(ExecutionContext* exec, int64_t count, const void* from, void* to) {
    constexpr int64_t kPart = 256 << 10;
    const int64_t bytes = count * kFloatBytes;
    exec->For((bytes + kPart - 1) / kPart, [&](int64_t i) {
      std::memcpy(static_cast<char*>(to) + i * kPart,
                  static_cast<const char*>(from) + i * kPart,
                  static_cast<size_t>(std::min(kPart, bytes - i * kPart)));
    });
  }

  // Retries an allocation for a limited time, because other threads may free memory soon. No
  // lock is held. After a failure, allocations of at least that size are not retried until one
  // of them has succeeded.
  template <class Try>
  void RetryAllocation(int64_t bytes, const Try& attempt) {
    const auto until = std::chrono::steady_clock::now() + kWaitForMemory;
    auto pause = std::chrono::milliseconds(1);
    bool had = attempt();
    while (!had && bytes < in_vain_ && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::milliseconds(50));
      had = attempt();
    }
    if (!had && bytes < in_vain_) in_vain_ = bytes;
    if (had && bytes >= in_vain_) in_vain_ = std::numeric_limits<int64_t>::max();
  }

  Status TooLarge(const std::string& what, int64_t bytes) const {
    return ResourceExhaustedError(what + Text(bytes) + " bytes of device memory; " +
                                  Text(memory_->Left()) + " are left");
  }

  StatusOr<PreparedRef> Copy(ExecutionContext* exec, std::shared_ptr<const Batch> batch,
                             bool wait) {
    const Packing packing(*configuration_, *batch);
    // After the ids come the descriptors of the lookup, and then the descriptors of ids that
    // are in device memory already. The scratch memory at the end is not copied.
    const int64_t image_bytes = (LookupImageBytes(batch->features.size()) + 15) / 16 * 16;
    const int64_t copied = packing.bytes() + image_bytes + ArrivalImageBytes(packing.left());
    const int64_t bytes = copied + packing.scratch_bytes();
    Pieces::Piece piece;
    Status status;
    const auto attempt = [&] {
      const StatusOr<Pieces::Piece> taken = ids_->pieces().Take(bytes);
      status = taken.status();
      if (status.ok()) piece = *taken;
      return !status.ok() || piece.data != nullptr;
    };
    if (wait) {
      RetryAllocation(bytes, attempt);
    } else {
      attempt();
    }
    if (!status.ok()) return status;
    if (!piece.data) return TooLarge("the ids of a batch take ", bytes);
    auto made = std::make_shared<DeviceBatch>(std::move(batch), ids_, piece);
    char* const scratch = piece.data + copied;
    made->call = MakeLookup(tables_->views(), packing.SourcesAt(piece.data, scratch));
    made->image = piece.data + packing.bytes();
    if (packing.left() > 0) {
      made->arrival = MakeArrival(packing.ArrivedAt(made->call.sources, scratch));
      made->arrival_image = piece.data + packing.bytes() + image_bytes;
      made->found =
          reinterpret_cast<DeviceErrors*>(made->arrival_image + made->arrival.errors_at);
    }
    for (const Source& source : made->call.sources) {
      OPWRIGHT_RETURN_IF_ERROR(tables_->CheckSource("a lookup", source));
    }
    StatusOr<Staging::Lease> block = staging_->Take(copied);
    OPWRIGHT_RETURN_IF_ERROR(block.status());
    const StatusOr<std::shared_ptr<Fence>> fence = Fence::Create();
    OPWRIGHT_RETURN_IF_ERROR(fence.status());
    packing.CopyTo(exec, block->data());
    const auto put = [&](const Image& image, int64_t at) {
      std::copy(image.bytes().begin(), image.bytes().end(), block->data() + at);
    };
    put(made->call.image, packing.bytes());
    put(made->arrival.image, packing.bytes() + image_bytes);
    const cudaStream_t copies = ids_->copies();
    status = Failed("cudaMemcpyAsync",
                    cudaMemcpyAsync(piece.data, block->data(), static_cast<size_t>(copied),
                                    cudaMemcpyHostToDevice, copies));
    if (status.ok()) status = (*fence)->Record(copies);
    if (!status.ok()) {
      static_cast<void>(cudaStreamSynchronize(copies));
      return status;
    }
    made->copied = *fence;
    block->GiveBack(*fence);
    return PreparedRef(std::move(made));
  }

  // The errors that the device found in one update or lookup. They are valid after the device
  // has passed the fence.
  struct Report {
    Staging::Lease block;
    FenceRef fence;
    bool of_update = false;  // If false, the report is of a lookup.
    bool ids_seen = false;   // Whether the host has checked the ids.
  };
  Status MakeReport(int64_t bytes, Report* report, std::shared_ptr<Fence>* fence) {
    StatusOr<Staging::Lease> block = staging_->Take(bytes);
    OPWRIGHT_RETURN_IF_ERROR(block.status());
    StatusOr<std::shared_ptr<Fence>> made = Fence::Create();
    OPWRIGHT_RETURN_IF_ERROR(made.status());
    report->block = *std::move(block);
    report->fence = *fence = *std::move(made);
    return {};
  }

  // Returns the error of a lookup. The oldest report must be of that lookup.
  Status ExplainLookup(const DeviceErrors& errors) {
    reports_.pop_front();
    return Explain(errors, /*ids_seen=*/false, "a batch for inference",
                   "ids that were not right added nothing");
  }

  // Returns the error of an update. Neither this update nor any queued after it was applied.
  // Updates that are queued from now on are applied.
  Status ExplainUpdate(const DeviceErrors& errors) {
    const bool ids_seen = reports_.front().ids_seen;
    const auto updates = std::stable_partition(
        reports_.begin(), reports_.end(), [](const Report& one) { return !one.of_update; });
    const int64_t last = updates_ - 1, first = updates_ - (reports_.end() - updates);
    for (auto one = updates; one != reports_.end(); ++one) one->block.GiveBack(one->fence);
    reports_.erase(updates, reports_.end());
    OPWRIGHT_RETURN_IF_ERROR(errors_->Clear(stream_));
    const std::string lost =
        first == last
            ? "the update of step " + Text(first) + " was not made"
            : "the updates of steps " + Text(first) + " to " + Text(last) + " were not made";
    return Explain(errors, ids_seen, "step " + Text(first), lost);
  }

  // Returns an error that names the argument at fault, the call `what` to which it belongs, and
  // the outcome.
  Status Explain(const DeviceErrors& errors, bool ids_seen, std::string what,
                 const std::string& outcome) const {
    int i = 0;
    while (errors.first[i] == DeviceErrors::kNone) ++i;
    const ErrorKind kind = static_cast<ErrorKind>(i);
    const int64_t features = static_cast<int64_t>(configuration_->features.size());
    const int64_t number = errors.source(kind) % features,
                  core = errors.source(kind) / features;
    const FeatureConfig& feature = configuration_->features[number];
    const TableConfig& table = configuration_->tables[feature.table];
    const int64_t at = errors.position(kind);
    if (configuration_->cores > 1) what += " of core " + Text(core);
    what += ", " + DescribeFeature(*configuration_, number) + ": ";
    // The host has checked these ids, so only a failing device can report an error in them.
    if (ids_seen && kind != kBadGradient) {
      return InternalError(what + "its ids changed on the way to the device; " + outcome);
    }
    switch (kind) {
      case kBadSample:
        what += "sample index at position " + Text(at) +
                " is wrong; sample indices must be in [0, " + Text(feature.samples()) +
                ") and, if enqueued on a GPU, must not descend";
        break;
      case kBadOffset:
        what +=
            "row splits must begin with 0, not descend and end with the number of ids; "
            "those of row " +
            Text(at) + " do not";
        break;
      case kBadId:
        what += "id at position " + Text(at) + " is out of range; ids must be in [0, " +
                Text(table.rows) + "), the rows of the table";
        break;
      case kBadWeight:
        what += "weight at position " + Text(at) +
                " is wrong; weights, and the factors that a "
                "combiner computes from them, must be finite";
        break;
      default:
        what += "gradients must be finite, that of sample " + Text(at / table.dimension) +
                ", column " + Text(at % table.dimension) + " was not";
    }
    return InvalidArgumentError(what + "; " + outcome);
  }

  static constexpr std::chrono::milliseconds kWaitForMemory{500};

  const cudaStream_t stream_;
  const std::shared_ptr<Memory> memory_;
  Context context_;
  const Configuration* configuration_ = nullptr;
  std::unique_ptr<Staging> staging_;
  std::shared_ptr<Ids> ids_;
  std::unique_ptr<DeviceErrorBuffer> errors_;
  std::unique_ptr<Tables> tables_;
  std::atomic<int64_t> in_vain_{std::numeric_limits<int64_t>::max()};
  std::mutex mutex_;     // Protects the fields below, and orders the work on the stream.
  int64_t updates_ = 0;  // The number of updates that were queued.
  // The reports of lookups and updates that the host has not read yet.
  std::deque<Report> reports_;
};

}  // namespace

std::unique_ptr<TableStore> MakeTableStore(cudaStream_t stream,
                                           std::shared_ptr<Memory> memory) {
  return std::make_unique<Store>(stream, std::move(memory));
}

}  // namespace opwright::embedding::cuda
