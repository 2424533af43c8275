#include "embedding/cuda/packing.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace opwright::embedding::cuda {
namespace {

// Arrays are copied in parts of this size, by several threads.
constexpr int64_t kPartBytes = 256 << 10;
constexpr int64_t kRows32 = int64_t{std::numeric_limits<int32_t>::max()} + 1;

// Returns whether each sample has exactly one id.
bool AnIdEach(const Bags& bags) {
  if (bags.samples != bags.count()) return false;
  int64_t wrong = 0;
  for (int64_t s = 0; s < bags.samples; ++s) wrong |= bags.offsets[s] ^ s;
  return wrong == 0;
}

Integers IntegersOf(const Ints& ints) { return {ints.data, ints.wide}; }

}  // namespace

template <class X>
int64_t Packing::Append(const X* array, int64_t count, bool narrow) {
  if (!array || count == 0) return -1;
  const int64_t first = bytes_, size = narrow ? 4 : static_cast<int64_t>(sizeof(X));
  const int64_t most = kPartBytes / size;
  for (int64_t at = 0; at < count; at += most) {
    parts_.push_back({reinterpret_cast<const char*>(array + at), first + at * size,
                      std::min(most, count - at) * size, narrow});
  }
  bytes_ += (count * size + 15) / 16 * 16;
  return first;
}

Packing::Packing(const Configuration& configuration, const Batch& batch) {
  for (size_t f = 0; f < batch.features.size(); ++f) {
    const Bags& bags = batch.features[f];
    Feature one;
    one.table = configuration.features[f].table;
    one.samples = bags.samples;
    one.count = bags.count();
    if (bags.on_device) {
      Leave(*bags.on_device, &one);
    } else {
      Pack(bags, configuration.tables[static_cast<size_t>(one.table)].rows, &one);
    }
    features_.push_back(one);
  }
}

void Packing::Pack(const Bags& bags, int64_t rows, Feature* one) {
  one->wide_indices = rows > kRows32;
  one->wide_offsets = one->count >= kRows32;
  if (!AnIdEach(bags)) {
    one->offsets = Append(bags.offsets.get(), bags.samples + 1, !one->wide_offsets);
  }
  one->indices = Append(bags.indices.get(), one->count, !one->wide_indices);
  one->per_sample_weights = Append(bags.per_sample_weights.get(), one->count, false);
  one->scales = Append(bags.scales.get(), bags.samples, false);
}

void Packing::Leave(const DeviceLookups& left, Feature* one) {
  const Lookups& lookups = left.lookups;
  const auto reserve = [this](int64_t bytes) {
    const int64_t first = scratch_bytes_;
    scratch_bytes_ += (bytes + 15) / 16 * 16;
    return first;
  };
  one->left = &left;
  const bool dense = lookups.form == Lookups::Form::kDense;
  if (!dense && lookups.form != Lookups::Form::kSplits) {
    one->offsets = reserve((one->samples + 1) * 8);
  }
  // The divisor of a sample with one id and no weight is 1, so no scales are needed.
  if (left.combiner != Combiner::kSum && !(dense && lookups.weights.size == 0)) {
    one->scales = reserve(one->samples * 4);
  }
  ++left_;
}

void Packing::CopyTo(ExecutionContext* exec, char* to) const {
  const auto copy = [&](int64_t i) {
    const Part& part = parts_[static_cast<size_t>(i)];
    if (!part.narrow) {
      std::memcpy(to + part.at, part.from, static_cast<size_t>(part.bytes));
      return;
    }
    const int64_t* const from = reinterpret_cast<const int64_t*>(part.from);
    int32_t* const narrow = reinterpret_cast<int32_t*>(to + part.at);
    for (int64_t n = 0; n < part.bytes / 4; ++n) narrow[n] = static_cast<int32_t>(from[n]);
  };
  const int64_t count = static_cast<int64_t>(parts_.size());
  if (bytes_ > kPartBytes) return exec->For(count, copy);
  for (int64_t i = 0; i < count; ++i) copy(i);
}

std::vector<Source> Packing::SourcesAt(const char* base, const char* scratch) const {
  std::vector<Source> sources;
  for (const Feature& one : features_) {
    const char* const made = one.left ? scratch : base;
    const auto at = [](const char* from, int64_t offset) {
      return offset < 0 ? nullptr : from + offset;
    };
    Source source;
    source.number = static_cast<int64_t>(sources.size());
    source.table = one.table;
    source.samples = one.samples;
    source.count = one.count;
    source.offsets = {at(made, one.offsets), one.wide_offsets};
    source.indices = {at(base, one.indices), one.wide_indices};
    source.per_sample_weights =
        reinterpret_cast<const float*>(at(base, one.per_sample_weights));
    source.scales = reinterpret_cast<const float*>(at(made, one.scales));
    if (one.left) {
      const Lookups& lookups = one.left->lookups;
      source.indices = IntegersOf(lookups.ids);
      if (lookups.form == Lookups::Form::kSplits) source.offsets = IntegersOf(lookups.where);
      if (lookups.weights.size > 0) {
        source.per_sample_weights = static_cast<const float*>(lookups.weights.data);
      }
    }
    sources.push_back(source);
  }
  return sources;
}

std::vector<Arrived> Packing::ArrivedAt(const std::vector<Source>& sources,
                                        char* scratch) const {
  std::vector<Arrived> all;
  for (size_t f = 0; f < features_.size(); ++f) {
    const Feature& one = features_[f];
    if (!one.left) continue;
    const Lookups& lookups = one.left->lookups;
    Arrived arrived;
    arrived.source = sources[f];
    if (one.offsets >= 0) {
      arrived.samples = IntegersOf(lookups.where);
      arrived.step = lookups.form == Lookups::Form::kIndices ? lookups.rank : 1;
      arrived.starts = reinterpret_cast<int64_t*>(scratch + one.offsets);
    }
    if (one.scales >= 0) arrived.scales = reinterpret_cast<float*>(scratch + one.scales);
    arrived.combiner = one.left->combiner;
    all.push_back(arrived);
  }
  return all;
}

}  // namespace opwright::embedding::cuda
