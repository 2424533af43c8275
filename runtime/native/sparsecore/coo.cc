#include "sparsecore/coo.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/checked.h"
#include "base/text.h"
#include "base/uninitialized_vector.h"
#include "embedding/optimizers.h"

namespace opwright::sparsecore {

using embedding::Combiner;
using embedding::Number;

namespace {

constexpr char kIndices[] = "indices_or_row_splits";

Status ReadSparseSamples(const CooFeature& feature, UninitializedVector<int32_t>* samples) {
  for (int64_t i = 0, last = 0; i < feature.id_count; ++i) {
    const int32_t sample = feature.indices[2 * i];
    if (sample < last || sample >= feature.sample_count) {
      return InvalidArgumentError(
          kIndices, StrCat("samples must ascend from 0 and stay below sample_count, which is ",
                           feature.sample_count, "; the one at position ", i, " is ", sample,
                           i > 0 ? StrCat(" after ", last) : ""));
    }
    (*samples)[i] = sample;
    last = sample;
  }
  return OkStatus();
}

Status ReadRaggedSamples(const CooFeature& feature, UninitializedVector<int32_t>* samples) {
  int32_t last = 0;
  for (int64_t i = 0; i <= feature.sample_count; ++i) {
    // Each split is read only once, because another thread may change the input.
    const int32_t split = feature.indices[i];
    const bool good = i == 0                      ? split == 0
                      : i == feature.sample_count ? split == feature.id_count
                                                  : split <= feature.id_count;
    if (!good || split < last) {
      return InvalidArgumentError(
          kIndices, StrCat("row splits must ascend from 0 to the number of ids, which is ",
                           feature.id_count, "; the one at position ", i, " is ", split));
    }
    if (i > 0) {
      std::fill(samples->begin() + last, samples->begin() + split, static_cast<int32_t>(i - 1));
    }
    last = split;
  }
  return OkStatus();
}

// Returns the sample of each id.
Status ReadSamples(const CooFeature& feature, UninitializedVector<int32_t>* samples) {
  samples->resize(feature.id_count);
  switch (feature.form) {
    case CooFeature::kDense:
      for (int64_t i = 0; i < feature.id_count; ++i) (*samples)[i] = static_cast<int32_t>(i);
      return OkStatus();
    case CooFeature::kSparse: return ReadSparseSamples(feature, samples);
    case CooFeature::kRagged: return ReadRaggedSamples(feature, samples);
  }
  return InternalError("unknown form of a feature");
}

// Appends at most `most` triples, sample by sample.
class SampleWriter {
 public:
  SampleWriter(Combiner combiner, int64_t most, Triples* triples)
      : combiner_(combiner), triples_(triples), first_(triples->size()), size_(first_) {
    triples->Resize(size_ + most);
    samples_ = triples->samples.data();
    rows_ = triples->rows.data();
    gains_ = triples->gains.data();
  }

  void Add(int32_t sample, int32_t id, float weight) {
    const double exact = weight;
    if (combiner_ == Combiner::kMean) sum_ += exact;
    if (combiner_ == Combiner::kSqrtN) sum_ += exact * exact;
    if (size_ > first_ && rows_[size_ - 1] == id) {
      gains_[size_ - 1] += weight;
      return;
    }
    samples_[size_] = sample;
    rows_[size_] = id;
    gains_[size_++] = weight;
  }

  // Divides the gains of the current sample by the combiner's denominator.
  Status EndSample() {
    const double denominator = combiner_ == Combiner::kSqrtN ? std::sqrt(sum_) : sum_;
    for (; first_ < size_; ++first_) {
      float& gain = gains_[first_];
      if (combiner_ != Combiner::kSum) {
        gain = denominator == 0 ? 0.f : static_cast<float>(gain / denominator);
      }
      if (std::isfinite(gain)) continue;
      return InvalidArgumentError(
          "weights", StrCat("must combine to finite gains in float32, those of sample ",
                            samples_[first_], " and id ", rows_[first_], " do not"));
    }
    sum_ = 0;
    return OkStatus();
  }

  // Must be called after the last sample.
  void Finish() { triples_->Resize(size_); }

 private:
  const Combiner combiner_;
  Triples* const triples_;
  int32_t *samples_, *rows_;
  float* gains_;
  int64_t first_;   // The first triple of the current sample.
  int64_t size_;    // The number of triples so far.
  double sum_ = 0;  // The sum of the sample's weights, or of their squares.
};

}  // namespace

Status FeatureToTriples(const CooFeature& feature, Combiner combiner, Triples* triples) {
  if (feature.sample_count < 0 || feature.sample_count > kMaxInt32) {
    return InvalidArgumentError(
        "sample_count",
        StrCat("must be at least 0 and at most ", kMaxInt32, ", is ", feature.sample_count));
  }
  UninitializedVector<int32_t> samples;
  OPWRIGHT_RETURN_IF_ERROR(ReadSamples(feature, &samples));
  SampleWriter writer(combiner, feature.id_count, triples);
  for (int64_t i = 0; i < feature.id_count; ++i) {
    const int32_t id = feature.ids[i];
    if (id < 0) {
      return InvalidArgumentError(
          "values", StrCat("ids must not be negative; the one at position ", i, " is ", id));
    }
    const float weight = feature.weights[feature.one_weight ? 0 : i];
    if (!std::isfinite(weight)) {
      return InvalidArgumentError(
          "weights", StrCat("must be finite; the one at position ", i, " is ", Number(weight)));
    }
    if (i > 0 && samples[i] != samples[i - 1]) {
      OPWRIGHT_RETURN_IF_ERROR(writer.EndSample());
    }
    writer.Add(samples[i], id, weight);
  }
  OPWRIGHT_RETURN_IF_ERROR(writer.EndSample());
  writer.Finish();
  return OkStatus();
}

Status CheckStacking(const CooStacking& stacking) {
  // Each of these values is an int32 on the device. Only col_shift may be negative.
  const struct {
    const char* name;
    int64_t value, least;
  } places[] = {{"sample_count", stacking.sample_count, 1},
                {"num_sc_per_chip", stacking.sc_per_chip, 1},
                {"row_offset", stacking.row_offset, 0},
                {"col_offset", stacking.col_offset, 0},
                {"col_shift", stacking.col_shift, std::numeric_limits<int32_t>::min()},
                {"num_sc_shards", stacking.shards, 1},
                {"stacked_table_sample_count", stacking.stacked_samples, 0}};
  for (const auto& [name, value, least] : places) {
    if (value >= least && value <= kMaxInt32) continue;
    return InvalidArgumentError(
        name, StrCat("must be at least ", least, " and at most ", kMaxInt32, ", is ", value));
  }
  if ((stacking.shards & (stacking.shards - 1)) != 0) {
    return InvalidArgumentError("num_sc_shards",
                                StrCat("must be a power of two, is ", stacking.shards));
  }
  if (stacking.sample_count % stacking.sc_per_chip != 0) {
    return InvalidArgumentError("sample_count",
                                StrCat("must be a multiple of num_sc_per_chip, which is ",
                                       stacking.sc_per_chip, ", is ", stacking.sample_count));
  }
  // An upper bound of the last sample of the last SparseCore.
  const Checked last =
      Checked(stacking.row_offset) + stacking.stacked_samples + stacking.sample_count;
  if (!last.AtMost(kMaxInt32)) {
    return InvalidArgumentError(
        "stacked_table_sample_count",
        StrCat("with row_offset and sample_count it must fit in int32, is ",
               stacking.stacked_samples));
  }
  return OkStatus();
}

Status StackTriples(const CooStacking& stacking, Triples* triples,
                    std::vector<int64_t>* begins) {
  const int64_t samples = stacking.sample_count / stacking.sc_per_chip;
  const int64_t offset = stacking.row_offset / stacking.sc_per_chip;
  const int64_t stacked = stacking.stacked_samples / stacking.sc_per_chip;
  begins->assign(stacking.sc_per_chip + 1, triples->size());
  int64_t core = 0;
  (*begins)[0] = 0;
  for (int64_t i = 0; i < triples->size(); ++i) {
    int32_t& sample = triples->samples[i];
    while (core < sample / samples) (*begins)[++core] = i;
    sample = static_cast<int32_t>(sample % samples + offset + core * stacked);
    const int64_t id = triples->rows[i];
    const int64_t column = ((id + stacking.col_shift) & (stacking.shards - 1)) +
                           (id & ~(stacking.shards - 1)) + stacking.col_offset;
    if (column > kMaxInt32) {
      return InvalidArgumentError(
          "values", StrCat("the id ", id, " with col_offset ", stacking.col_offset,
                           " does not fit in int32"));
    }
    triples->rows[i] = static_cast<int32_t>(column);
  }
  return OkStatus();
}

}  // namespace opwright::sparsecore
