#include "cuda/store.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>

#include "cuda/check.h"
#include "cuda/staging.h"

namespace opwright {
namespace cuda {
namespace {

using embedding::Bags;
using embedding::Batch;
using embedding::Configuration;
using embedding::CoreGradients;
using embedding::Invalid;
using embedding::OutOfMemory;
using embedding::Shard;
using embedding::TableStore;

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

// A batch's ids on the device.
struct Copied {
  Copied(std::shared_ptr<Memory> memory, int64_t bytes) : piece(std::move(memory), bytes) {}

  Piece piece;
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
    findings_.reset();
    staging_.reset();
  }

  Maybe Allocate(const Configuration& configuration) override {
    std::lock_guard<std::mutex> lock(mutex_);
    configuration_ = &configuration;
    const int64_t features = static_cast<int64_t>(configuration.features.size());
    if (features * configuration.cores > kMostSources) {
      return Invalid("there must be at most " + Text(kMostSources) +
                     " features, of all cores together, where tables lie on a GPU; there are " +
                     Text(features * configuration.cores));
    }
    OPWRIGHT_CUDA(cudaGetDevice(&device_));
    staging_ = std::make_unique<Staging>();
    OPWRIGHT_RETURN_IF(Findings::Create(memory_.get(), stream_, &findings_));
    for (const embedding::TableConfig& config : configuration.tables) {
      std::unique_ptr<Table> table;
      OPWRIGHT_RETURN_IF(Table::Create(config, kChunkBytes, memory_.get(), findings_->verdict(),
                                       stream_, &table));
      tables_.push_back(std::move(table));
    }
    return {};
  }

  Maybe Write(Host*, int64_t table, int64_t slot, const Shard& rows,
              const float* from) override {
    const Turn turn(this);
    return tables_[table]->Write(slot, rows, from, stream_);
  }

  Maybe Read(Host*, int64_t table, int64_t slot, const Shard& rows, float* to) override {
    const Turn turn(this);
    return tables_[table]->Read(slot, rows, to, stream_);
  }

  Maybe Lookup(Host* host, const Batch& batch, float* const* outputs) override {
    const Turn turn(this);
    OPWRIGHT_RETURN_IF(Copy(host, batch));
    const Copied& copied = *static_cast<const Copied*>(batch.copy.get());
    for (size_t f = 0; f < copied.sources.size(); ++f) {
      OPWRIGHT_RETURN_IF(TableOf(f).Lookup(copied.sources[f], outputs[f], stream_));
    }
    return {};
  }

  Maybe Update(Host* host, const std::vector<CoreGradients>& cores,
               const std::vector<float>& rates) override {
    const Turn turn(this);
    std::vector<std::vector<Source>> sources(tables_.size());
    for (size_t core = 0; core < cores.size(); ++core) {
      const Batch& batch = *cores[core].batch;
      OPWRIGHT_RETURN_IF(Copy(host, batch));
      const Copied& copied = *static_cast<const Copied*>(batch.copy.get());
      for (size_t f = 0; f < copied.sources.size(); ++f) {
        Source source = copied.sources[f];
        source.number += static_cast<int64_t>(core * copied.sources.size());
        source.gradients = cores[core].gradients[f];
        sources[configuration_->features[f].table].push_back(source);
      }
    }
    // One table after the other works in the same memory.
    int64_t bytes = 0;
    for (size_t t = 0; t < tables_.size(); ++t) {
      int64_t ids = 0, needed = 0;
      for (const Source& source : sources[t]) ids += source.count;
      OPWRIGHT_RETURN_IF(tables_[t]->UpdateBytes(ids, &needed));
      bytes = std::max(bytes, needed);
    }
    const Piece workspace(memory_, bytes);
    if (!workspace.get()) return TooLarge("an update works in ", bytes);
    Staging::Block* told;
    OPWRIGHT_RETURN_IF(staging_->Take(sizeof(Verdict), &told));
    const auto refusal = [&]() -> Maybe {
      // All gradients are looked at before the first row changes.
      for (size_t t = 0; t < tables_.size(); ++t) {
        OPWRIGHT_RETURN_IF(tables_[t]->CheckGradients(sources[t], stream_));
      }
      for (size_t t = 0; t < tables_.size(); ++t) {
        OPWRIGHT_RETURN_IF(
            tables_[t]->Update(sources[t], rates[t], workspace.get(), bytes, stream_));
      }
      OPWRIGHT_RETURN_IF(findings_->Tell(static_cast<Verdict*>(told->data), stream_));
      return staging_->Mark(told, stream_);
    }();
    if (refusal) {
      staging_->GiveBack(told);
      return refusal;
    }
    told_.push_back(told);
    ++updates_;
    return {};
  }

  Maybe CheckGradients(Host*, const std::vector<const float*>&) override { return {}; }

  Maybe CheckUpdates(bool wait) override {
    if (wait) {
      const OnDevice on(device_);
      OPWRIGHT_CUDA(cudaStreamSynchronize(stream_));
    }
    const Turn turn(this);
    while (!told_.empty()) {
      bool passed;
      OPWRIGHT_RETURN_IF(staging_->Passed(*told_.front(), &passed));
      if (!passed) return {};
      const Verdict verdict = *static_cast<const Verdict*>(told_.front()->data);
      if (verdict.bad()) return Report(verdict);
      staging_->GiveBack(told_.front());
      told_.pop_front();
    }
    return {};
  }

  Maybe Fill(Host*, uint32_t bits, int64_t count, float* to) override {
    const Turn turn(this);
    return FillWithBits(bits, count, to, stream_);
  }

  Maybe FindAbove(Host*, uint32_t bits, int64_t count, const float* values,
                  Found* found) override {
    const Turn turn(this);
    constexpr int64_t kBytes = sizeof(unsigned long long);
    const Piece first(memory_, kBytes);
    if (!first.get()) return TooLarge("looking through values takes ", kBytes);
    Staging::Block* block;
    OPWRIGHT_RETURN_IF(staging_->Take(kBytes, &block));
    const auto fetch = [&](const void* from, size_t bytes) -> Maybe {
      OPWRIGHT_CUDA(
          cudaMemcpyAsync(block->data, from, bytes, cudaMemcpyDeviceToHost, stream_));
      OPWRIGHT_CUDA(cudaStreamSynchronize(stream_));
      return {};
    };
    const auto refusal = [&]() -> Maybe {
      OPWRIGHT_RETURN_IF(FindBitsAbove(
          bits, count, values, static_cast<unsigned long long*>(first.get()), stream_));
      OPWRIGHT_RETURN_IF(fetch(first.get(), kBytes));
      std::memcpy(&found->at, block->data, sizeof found->at);
      if (found->at < 0) return {};
      OPWRIGHT_RETURN_IF(fetch(values + found->at, sizeof(float)));
      std::memcpy(&found->value, block->data, sizeof(float));
      return {};
    }();
    staging_->GiveBack(block);
    return refusal;
  }

 private:
  // As many as a verdict and an update of a table can number.
  static constexpr int64_t kMostSources = int64_t{1} << 15;

  // What a call has as long as it lasts: work of several calls does not mix.
  struct Turn {
    explicit Turn(Store* store) : lock(store->mutex_), on(store->device_) {}
    const std::lock_guard<std::mutex> lock;
    const OnDevice on;
  };

  Table& TableOf(size_t feature) const {
    return *tables_[configuration_->features[feature].table];
  }

  Maybe TooLarge(const std::string& what, int64_t bytes) const {
    return OutOfMemory(what + Text(bytes) + " bytes of device memory; " +
                       Text(memory_->Left()) + " are left");
  }

  // Queues that a batch is copied to the device, if that was not done before.
  Maybe Copy(Host* host, const Batch& batch) {
    if (batch.copy) return {};
    std::vector<Part> parts;
    int64_t bytes = 0;
    const auto place = [&](const auto& array, int64_t count) {
      const int64_t first = bytes, size = count * static_cast<int64_t>(sizeof array[0]);
      if (!array || count == 0) return int64_t{-1};
      const char* const from = reinterpret_cast<const char*>(array.get());
      for (int64_t at = 0; at < size; at += kPartBytes) {
        parts.push_back({from + at, first + at, std::min(kPartBytes, size - at)});
      }
      bytes += (size + 15) / 16 * 16;
      return first;
    };
    struct Places {
      int64_t starts, ids, weights, scales;
    };
    std::vector<Places> places;
    for (const Bags& bags : batch.features) {
      places.push_back({place(bags.starts, bags.samples + 1), place(bags.ids, bags.count()),
                        place(bags.weights, bags.count()), place(bags.scales, bags.samples)});
    }
    auto copied = std::make_shared<Copied>(memory_, bytes);
    char* const base = static_cast<char*>(copied->piece.get());
    if (!base) return TooLarge("the ids of a batch take ", bytes);
    for (size_t f = 0; f < batch.features.size(); ++f) {
      const Bags& bags = batch.features[f];
      const auto at = [base](int64_t place) { return place < 0 ? nullptr : base + place; };
      Source source;
      source.number = static_cast<int64_t>(f);
      source.samples = bags.samples;
      source.count = bags.count();
      source.starts = reinterpret_cast<const int64_t*>(at(places[f].starts));
      source.ids = reinterpret_cast<const int64_t*>(at(places[f].ids));
      source.weights = reinterpret_cast<const float*>(at(places[f].weights));
      source.scales = reinterpret_cast<const float*>(at(places[f].scales));
      copied->sources.push_back(source);
    }
    Staging::Block* block;
    OPWRIGHT_RETURN_IF(staging_->Take(bytes, &block));
    const auto copy = [&](int64_t i) {
      std::memcpy(static_cast<char*>(block->data) + parts[i].at, parts[i].from,
                  static_cast<size_t>(parts[i].bytes));
    };
    const int64_t count = static_cast<int64_t>(parts.size());
    if (bytes <= kPartBytes) {
      for (int64_t i = 0; i < count; ++i) copy(i);
    } else {
      host->For(count, copy);
    }
    const auto refusal = [&]() -> Maybe {
      OPWRIGHT_CUDA(cudaMemcpyAsync(base, block->data, static_cast<size_t>(bytes),
                                    cudaMemcpyHostToDevice, stream_));
      return staging_->Mark(block, stream_);
    }();
    staging_->GiveBack(block);
    if (!refusal) batch.copy = std::move(copied);
    return refusal;
  }

  // What the oldest update brought that was told of, and what came of it and of all later
  // ones. The next one is made again.
  Maybe Report(const Verdict& verdict) {
    const int64_t last = updates_ - 1, first = updates_ - static_cast<int64_t>(told_.size());
    for (Staging::Block* const block : told_) staging_->GiveBack(block);
    told_.clear();
    OPWRIGHT_RETURN_IF(findings_->Clear(stream_));
    const std::string lost =
        first == last ? "the update of step " + Text(first) + " was not made"
                      : "the updates of steps " + Text(first) + " to " + Text(last) +
                            " were not made";
    for (int i = 0; i < kOffences; ++i) {
      const Offence offence = static_cast<Offence>(i);
      if (verdict.first[i] == Verdict::kNone) continue;
      const int64_t features = static_cast<int64_t>(configuration_->features.size());
      const int64_t feature = verdict.source(offence) % features;
      const int64_t core = verdict.source(offence) / features;
      const std::string where =
          "step " + Text(first) +
          (configuration_->cores > 1 ? " of core " + Text(core) : std::string()) + ", " +
          DescribeFeature(*configuration_, feature);
      // Ids and weights were checked when they came: only a device that fails finds others.
      if (offence != kBadGradient) {
        return embedding::Refusal{embedding::Refusal::Kind::kInternal,
                                  where + ": its ids changed on the way to the device; " + lost};
      }
      const int64_t dimension = TableOf(feature).config().dimension;
      return Invalid(where + ": gradients must be finite, that of sample " +
                     Text(verdict.position(offence) / dimension) + ", column " +
                     Text(verdict.position(offence) % dimension) + " was not; " + lost);
    }
    return {};
  }

  const cudaStream_t stream_;
  const std::shared_ptr<Memory> memory_;
  std::mutex mutex_;
  int device_ = -1;
  const Configuration* configuration_ = nullptr;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<Findings> findings_;
  std::vector<std::unique_ptr<Table>> tables_;
  int64_t updates_ = 0;  // Queued,
  // and the verdicts of the latest of them, which nobody has looked at.
  std::deque<Staging::Block*> told_;
};

}  // namespace

std::unique_ptr<TableStore> MakeTableStore(cudaStream_t stream,
                                           std::shared_ptr<Memory> memory) {
  return std::make_unique<Store>(stream, std::move(memory));
}

}  // namespace cuda
}  // namespace opwright
