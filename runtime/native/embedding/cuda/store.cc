#include "embedding/cuda/store.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>

#include "embedding/cuda/check.h"
#include "embedding/cuda/staging.h"

namespace opwright::embedding::cuda {
namespace {

std::string Text(int64_t value) { return std::to_string(value); }

// Makes a device the thread's current one, and then the one that was.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    if (device < 0 || cudaGetDevice(&before_) != cudaSuccess || before_ == device) return;
    changed_ = cudaSetDevice(device) == cudaSuccess;
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    if (changed_) static_cast<void>(cudaSetDevice(before_));
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

// Device memory that is given back when nobody has it any more.
class Piece {
 public:
  Piece(std::shared_ptr<Memory> memory, int64_t bytes)
      : memory_(std::move(memory)), data_(memory_->Allocate(std::max<int64_t>(bytes, 1))) {}
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;
  ~Piece() {
    if (data_) memory_->Free(data_);
  }

  void* get() const { return data_; }

 private:
  const std::shared_ptr<Memory> memory_;
  void* const data_;
};

// A batch with its ids on the device.
struct DeviceBatch : PreparedBatch {
  DeviceBatch(std::shared_ptr<const Batch> batch, std::shared_ptr<Memory> memory, int64_t bytes)
      : PreparedBatch(std::move(batch)), piece(std::move(memory), bytes) {}

  const Piece piece;
  std::vector<Source> sources;  // By feature.
};

// A part of a batch, and where it goes.
struct Part {
  const void* from;
  int64_t at, bytes;
};
// Parts are copied by several threads if they are as large.
constexpr int64_t kPartBytes = 256 << 10;

class Store : public TableStore {
 public:
  Store(cudaStream_t stream, std::shared_ptr<Memory> memory)
      : stream_(stream), memory_(std::move(memory)) {}

  ~Store() override {
    const OnDevice on(device_);
    tables_.clear();
    errors_.reset();
    staging_.reset();
  }

  Status Allocate(const Configuration& configuration) override {
    std::lock_guard<std::mutex> lock(mutex_);
    configuration_ = &configuration;
    const int64_t features = static_cast<int64_t>(configuration.features.size());
    if (features * configuration.cores > kMaxSources) {
      return InvalidArgumentError(
          "there must be at most " + Text(kMaxSources) +
          " features, of all cores together, where tables lie on a GPU; there are " +
          Text(features * configuration.cores));
    }
    OPWRIGHT_CUDA(cudaGetDevice(&device_));
    staging_ = std::make_unique<Staging>();
    auto errors = DeviceErrorBuffer::Create(memory_.get(), stream_);
    OPWRIGHT_RETURN_IF_ERROR(errors.status());
    errors_ = *std::move(errors);
    for (const TableConfig& config : configuration.tables) {
      auto table =
          Table::Create(config, kChunkBytes, memory_.get(), errors_->device(), stream_);
      OPWRIGHT_RETURN_IF_ERROR(table.status());
      tables_.push_back(*std::move(table));
    }
    return {};
  }

  Status Write(ExecutionContext*, int64_t table, int64_t slot, const Shard& rows,
               const float* from) override {
    const Exclusive exclusive(this);
    return tables_[table]->Write(slot, rows, from, stream_);
  }

  Status Read(ExecutionContext*, int64_t table, int64_t slot, const Shard& rows,
              float* to) override {
    const Exclusive exclusive(this);
    return tables_[table]->Read(slot, rows, to, stream_);
  }

  // Queues that its ids are copied to the device.
  StatusOr<PreparedRef> Prepare(ExecutionContext* exec,
                                std::shared_ptr<const Batch> batch) override {
    const Exclusive exclusive(this);
    return Copy(exec, std::move(batch));
  }

  Status Lookup(ExecutionContext*, const PreparedBatch& batch, float* const* outputs) override {
    const Exclusive exclusive(this);
    const std::vector<Source>& sources = SourcesOf(batch);
    for (size_t f = 0; f < sources.size(); ++f) {
      OPWRIGHT_RETURN_IF_ERROR(TableOf(f).Lookup(sources[f], outputs[f], stream_));
    }
    return {};
  }

  Status Update(ExecutionContext*, const std::vector<CoreGradients>& cores,
                const std::vector<float>& rates) override {
    const Exclusive exclusive(this);
    std::vector<std::vector<Source>> sources(tables_.size());
    for (size_t core = 0; core < cores.size(); ++core) {
      const std::vector<Source>& of_core = SourcesOf(*cores[core].batch);
      for (size_t f = 0; f < of_core.size(); ++f) {
        Source source = of_core[f];
        source.number += static_cast<int64_t>(core * of_core.size());
        source.gradients = cores[core].gradients[f];
        sources[configuration_->features[f].table].push_back(source);
      }
    }
    // One table after the other works in the same memory.
    int64_t bytes = 0;
    for (size_t t = 0; t < tables_.size(); ++t) {
      int64_t ids = 0;
      for (const Source& source : sources[t]) ids += source.count;
      const StatusOr<int64_t> needed = tables_[t]->UpdateBytes(ids);
      OPWRIGHT_RETURN_IF_ERROR(needed.status());
      bytes = std::max(bytes, *needed);
    }
    const Piece workspace(memory_, bytes);
    if (!workspace.get()) return TooLarge("an update works in ", bytes);
    const StatusOr<Staging::Block*> taken = staging_->Take(sizeof(DeviceErrors));
    OPWRIGHT_RETURN_IF_ERROR(taken.status());
    Staging::Block* const report = *taken;
    const auto status = [&]() -> Status {
      // All gradients are looked at before the first row changes.
      for (size_t t = 0; t < tables_.size(); ++t) {
        OPWRIGHT_RETURN_IF_ERROR(tables_[t]->CheckGradients(sources[t], stream_));
      }
      for (size_t t = 0; t < tables_.size(); ++t) {
        OPWRIGHT_RETURN_IF_ERROR(
            tables_[t]->Update(sources[t], rates[t], workspace.get(), bytes, stream_));
      }
      OPWRIGHT_RETURN_IF_ERROR(
          errors_->CopyTo(static_cast<DeviceErrors*>(report->data), stream_));
      return staging_->Mark(report, stream_);
    }();
    if (!status.ok()) {
      staging_->GiveBack(report);
      return status;
    }
    reports_.push_back(report);
    ++updates_;
    return {};
  }

  Status CheckGradients(ExecutionContext*, const std::vector<const float*>&) override {
    return {};
  }

  Status CheckUpdates(bool wait) override {
    if (wait) {
      const OnDevice on(device_);
      OPWRIGHT_CUDA(cudaStreamSynchronize(stream_));
    }
    const Exclusive exclusive(this);
    while (!reports_.empty()) {
      const StatusOr<bool> passed = staging_->Passed(*reports_.front());
      OPWRIGHT_RETURN_IF_ERROR(passed.status());
      if (!*passed) return {};
      const DeviceErrors errors = *static_cast<const DeviceErrors*>(reports_.front()->data);
      if (errors.any()) return Explain(errors);
      staging_->GiveBack(reports_.front());
      reports_.pop_front();
    }
    return {};
  }

 private:
  // As many as a errors and an update of a table can number.
  static constexpr int64_t kMaxSources = int64_t{1} << 15;

  // What a call has as long as it lasts: work of several calls does not mix.
  struct Exclusive {
    explicit Exclusive(Store* store) : lock(store->mutex_), on(store->device_) {}
    const std::lock_guard<std::mutex> lock;
    const OnDevice on;
  };

  Table& TableOf(size_t feature) const {
    return *tables_[configuration_->features[feature].table];
  }

  Status TooLarge(const std::string& what, int64_t bytes) const {
    return ResourceExhaustedError(what + Text(bytes) + " bytes of device memory; " +
                                  Text(memory_->Left()) + " are left");
  }

  static const std::vector<Source>& SourcesOf(const PreparedBatch& batch) {
    return static_cast<const DeviceBatch&>(batch).sources;
  }

  StatusOr<PreparedRef> Copy(ExecutionContext* exec, std::shared_ptr<const Batch> from) {
    const Batch& batch = *from;
    std::vector<Part> parts;
    int64_t bytes = 0;
    const auto append = [&](const auto& array, int64_t count) {
      const int64_t first = bytes, size = count * static_cast<int64_t>(sizeof array[0]);
      if (!array || count == 0) return int64_t{-1};
      const char* const from = reinterpret_cast<const char*>(array.get());
      for (int64_t at = 0; at < size; at += kPartBytes) {
        parts.push_back({from + at, first + at, std::min(kPartBytes, size - at)});
      }
      bytes += (size + 15) / 16 * 16;
      return first;
    };
    struct Appended {
      int64_t offsets, indices, per_sample_weights, scales;
    };
    std::vector<Appended> appended;
    for (const Bags& bags : batch.features) {
      Appended one;
      one.offsets = append(bags.offsets, bags.samples + 1);
      one.indices = append(bags.indices, bags.count());
      one.per_sample_weights = append(bags.per_sample_weights, bags.count());
      one.scales = append(bags.scales, bags.samples);
      appended.push_back(one);
    }
    auto copied = std::make_shared<DeviceBatch>(std::move(from), memory_, bytes);
    char* const base = static_cast<char*>(copied->piece.get());
    if (!base) return TooLarge("the ids of a batch take ", bytes);
    for (size_t f = 0; f < batch.features.size(); ++f) {
      const Bags& bags = batch.features[f];
      const auto at = [base](int64_t offset) { return offset < 0 ? nullptr : base + offset; };
      Source source;
      source.number = static_cast<int64_t>(f);
      source.samples = bags.samples;
      source.count = bags.count();
      source.offsets = reinterpret_cast<const int64_t*>(at(appended[f].offsets));
      source.indices = reinterpret_cast<const int64_t*>(at(appended[f].indices));
      source.per_sample_weights =
          reinterpret_cast<const float*>(at(appended[f].per_sample_weights));
      source.scales = reinterpret_cast<const float*>(at(appended[f].scales));
      copied->sources.push_back(source);
    }
    const StatusOr<Staging::Block*> taken = staging_->Take(bytes);
    OPWRIGHT_RETURN_IF_ERROR(taken.status());
    Staging::Block* const block = *taken;
    const auto copy = [&](int64_t i) {
      std::memcpy(static_cast<char*>(block->data) + parts[i].at, parts[i].from,
                  static_cast<size_t>(parts[i].bytes));
    };
    const int64_t count = static_cast<int64_t>(parts.size());
    if (bytes <= kPartBytes) {
      for (int64_t i = 0; i < count; ++i) copy(i);
    } else {
      exec->For(count, copy);
    }
    const auto status = [&]() -> Status {
      OPWRIGHT_CUDA(cudaMemcpyAsync(base, block->data, static_cast<size_t>(bytes),
                                    cudaMemcpyHostToDevice, stream_));
      return staging_->Mark(block, stream_);
    }();
    staging_->GiveBack(block);
    if (!status.ok()) return status;
    return PreparedRef(std::move(copied));
  }

  // What the oldest update brought that was report of, and what came of it and of all later
  // ones. The next one is made again.
  Status Explain(const DeviceErrors& errors) {
    const int64_t last = updates_ - 1, first = updates_ - static_cast<int64_t>(reports_.size());
    for (Staging::Block* const block : reports_) staging_->GiveBack(block);
    reports_.clear();
    OPWRIGHT_RETURN_IF_ERROR(errors_->Clear(stream_));
    const std::string lost =
        first == last
            ? "the update of step " + Text(first) + " was not made"
            : "the updates of steps " + Text(first) + " to " + Text(last) + " were not made";
    for (int i = 0; i < kErrorKinds; ++i) {
      const ErrorKind kind = static_cast<ErrorKind>(i);
      if (errors.first[i] == DeviceErrors::kNone) continue;
      const int64_t features = static_cast<int64_t>(configuration_->features.size());
      const int64_t feature = errors.source(kind) % features;
      const int64_t core = errors.source(kind) / features;
      const std::string where =
          "step " + Text(first) +
          (configuration_->cores > 1 ? " of core " + Text(core) : std::string()) + ", " +
          DescribeFeature(*configuration_, feature);
      // Ids and weights were checked when they came: only a device that fails finds others.
      if (kind != kBadGradient) {
        return InternalError(where + ": its ids changed on the way to the device; " + lost);
      }
      const int64_t dimension = TableOf(feature).config().dimension;
      return InvalidArgumentError(where + ": gradients must be finite, that of sample " +
                                  Text(errors.position(kind) / dimension) + ", column " +
                                  Text(errors.position(kind) % dimension) + " was not; " +
                                  lost);
    }
    return {};
  }

  const cudaStream_t stream_;
  const std::shared_ptr<Memory> memory_;
  std::mutex mutex_;
  int device_ = -1;
  const Configuration* configuration_ = nullptr;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<DeviceErrorBuffer> errors_;
  std::vector<std::unique_ptr<Table>> tables_;
  int64_t updates_ = 0;  // Queued,
  // and the errorss of the latest of them, which nobody has looked at.
  std::deque<Staging::Block*> reports_;
};

}  // namespace

std::unique_ptr<TableStore> MakeTableStore(cudaStream_t stream,
                                           std::shared_ptr<Memory> memory) {
  return std::make_unique<Store>(stream, std::move(memory));
}

}  // namespace opwright::embedding::cuda
