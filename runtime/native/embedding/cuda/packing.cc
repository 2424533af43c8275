#include "embedding/cuda/packing.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace opwright::embedding::cuda {
namespace {

// Parts are copied by several threads if they are as large.
constexpr int64_t kPartBytes = 256 << 10;
constexpr int64_t kRows32 = int64_t{std::numeric_limits<int32_t>::max()} + 1;

// Whether sample s has the id s alone.
bool AnIdEach(const Bags& bags) {
  if (bags.samples != bags.count()) return false;
  int64_t wrong = 0;
  for (int64_t s = 0; s < bags.samples; ++s) wrong |= bags.offsets[s] ^ s;
  return wrong == 0;
}

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
    one.wide_indices = configuration.tables[static_cast<size_t>(one.table)].rows > kRows32;
    one.wide_offsets = one.count >= kRows32;
    one.offsets =
        AnIdEach(bags) ? -1 : Append(bags.offsets.get(), bags.samples + 1, !one.wide_offsets);
    one.indices = Append(bags.indices.get(), one.count, !one.wide_indices);
    one.per_sample_weights = Append(bags.per_sample_weights.get(), one.count, false);
    one.scales = Append(bags.scales.get(), bags.samples, false);
    features_.push_back(one);
  }
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

std::vector<Source> Packing::SourcesAt(const char* base) const {
  std::vector<Source> sources;
  const auto at = [base](int64_t offset) { return offset < 0 ? nullptr : base + offset; };
  for (const Feature& one : features_) {
    Source source;
    source.number = static_cast<int64_t>(sources.size());
    source.table = one.table;
    source.samples = one.samples;
    source.count = one.count;
    source.offsets = {at(one.offsets), one.wide_offsets};
    source.indices = {at(one.indices), one.wide_indices};
    source.per_sample_weights = reinterpret_cast<const float*>(at(one.per_sample_weights));
    source.scales = reinterpret_cast<const float*>(at(one.scales));
    sources.push_back(source);
  }
  return sources;
}

}  // namespace opwright::embedding::cuda
