#include "embedding/cpu/lookups.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>

#include "base/caches.h"
#include "base/checked.h"
#include "embedding/store.h"

namespace opwright::embedding {

// A lookup reads one row for each id and writes one output for each sample.
int64_t LookupBytes(int64_t ids, int64_t samples, int64_t dimension) {
  const Checked bytes = (Checked(ids) + samples) * dimension * int64_t{sizeof(float)};
  return bytes.overflowed() ? INT64_MAX : bytes.value();
}

LookupPlan::LookupPlan(const std::vector<Feature>& features, int64_t threads) {
  Checked all(0), outputs(0);
  for (const Feature& one : features) {
    all += LookupBytes(one.ids, one.samples, one.dimension);
    outputs += LookupBytes(0, one.samples, one.dimension);
  }
  bytes_ = all.overflowed() ? INT64_MAX : all.value();
  const int64_t cache = LargestCache();
  streaming_ = cache > 0 && (outputs.overflowed() || outputs.value() >= cache / 2);
  // The features are cut into parts in the order f, f + interval, and so on. Threads then
  // rarely work on neighbouring features at the same time. The columns of neighbouring features
  // may share cache lines of the output. Two threads that write to the same line slow each
  // other down at every sample.
  const int64_t count = static_cast<int64_t>(features.size());
  const int64_t interval = (count + threads - 1) / threads;
  int64_t left = bytes_;
  for (int64_t i = 0; i < interval; ++i) {
    for (int64_t f = i; f < count; f += interval) Cut(f, features[f], threads, &left);
  }
}

void LookupPlan::Cut(int64_t number, const Feature& feature, int64_t threads, int64_t* left) {
  constexpr int64_t kLeast = 64 << 10, kMost = 512 << 10;
  const int64_t samples = feature.samples;
  const int64_t bytes = LookupBytes(feature.ids, samples, feature.dimension);
  const int64_t a_sample = std::max<int64_t>(1, bytes / std::max<int64_t>(1, samples));
  for (int64_t first = 0; first < samples;) {
    const int64_t size = std::clamp(*left / (4 * threads), kLeast, kMost);
    const int64_t end = std::min(samples, first + std::max<int64_t>(1, size / a_sample));
    parts_.push_back({number, first, end});
    *left -= (end - first) * a_sample;
    first = end;
  }
}

namespace {

std::vector<LookupPlan::Feature> Describe(const std::vector<FeatureLookup>& features) {
  std::vector<LookupPlan::Feature> described;
  for (const FeatureLookup& one : features) {
    described.push_back({one.bags->samples, one.bags->count(), one.dimension});
  }
  return described;
}

}  // namespace

LookupParts::LookupParts(std::vector<FeatureLookup> features, int64_t threads)
    : features_(std::move(features)), plan_(Describe(features_), threads) {}

void LookupParts::SetOutputs(const std::vector<float*>& outputs) {
  for (size_t f = 0; f < features_.size(); ++f) features_[f].out = outputs[f];
}

void LookupParts::operator()(int64_t i) const {
  const LookupPart& part = plan_.parts()[i];
  const FeatureLookup& feature = features_[part.feature];
  LookupCall call{feature};
  call.offsets = feature.bags->single ? nullptr : feature.bags->offsets.get();
  call.indices = feature.indices;
  call.per_sample_weights = feature.bags->per_sample_weights.get();
  call.scales = feature.bags->scales.get();
  call.first = part.first;
  call.end = part.end;
  call.out = feature.out;
  call.out_stride = feature.dimension;
  call.streaming = plan_.streaming();
  kernels_->lookup(call);
}

void LookUp(ExecutionContext* exec, const LookupParts& lookups, int64_t few_bytes) {
  if (lookups.bytes() <= few_bytes) {
    for (int64_t i = 0; i < lookups.count(); ++i) lookups(i);
  } else {
    exec->For(lookups.count(), std::cref(lookups));
  }
}

void LookUpFeatures(ExecutionContext* exec, std::vector<FeatureLookup> features) {
  LookUp(exec, LookupParts(std::move(features), exec->Threads()), kFewLookupBytes);
}

Status LookUpPackedBags(ExecutionContext* exec, const Configuration& configuration,
                        const PackedBags& bags, const std::vector<TableLookup>& tables,
                        int64_t few_bytes, float* activations) {
  std::vector<LookupPlan::Feature> features;
  std::vector<int64_t> first_columns;
  int64_t columns = 0;
  for (size_t f = 0; f < tables.size(); ++f) {
    const int64_t dimension = tables[f].dimension;
    features.push_back({bags.samples, bags.count(static_cast<int64_t>(f)), dimension});
    first_columns.push_back(columns);
    columns += dimension;
  }
  const int64_t threads = exec->Threads();
  const LookupPlan plan(features, threads);
  const RowKernels& kernels = SelectRowKernels();
  const int64_t count = static_cast<int64_t>(plan.parts().size());
  std::atomic<int64_t> next{0};
  std::atomic<bool> wrong{false};
  const auto work = [&](int64_t) {
    UnpackedBags unpacked;
    for (int64_t i; !wrong && (i = next.fetch_add(1)) < count;) {
      const LookupPart& part = plan.parts()[i];
      if (!unpacked.Take(configuration, bags, part.feature, part.first, part.end)) {
        wrong = true;
        return;
      }
      LookupCall call{tables[part.feature]};
      call.offsets = unpacked.offsets();
      call.indices = unpacked.indices();
      call.per_sample_weights = unpacked.per_sample_weights();
      call.scales = unpacked.scales();
      call.end = part.end - part.first;
      call.out = activations + part.first * columns + first_columns[part.feature];
      call.out_stride = columns;
      call.streaming = plan.streaming();
      kernels.lookup(call);
    }
  };
  if (plan.bytes() <= few_bytes) {
    work(0);
  } else {
    exec->For(std::min(threads, count), work);
  }
  return wrong ? WhyNot(configuration, bags) : Status();
}

}  // namespace opwright::embedding
