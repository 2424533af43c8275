#include "embedding/batch.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "embedding/copies.h"
#include "embedding/text.h"

namespace opwright::embedding {
namespace {

std::string DescribeShape(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : ", ") + Text(size);
  return "[" + text + "]";
}

class Builder {
 public:
  // If `exec` is not null, its threads share the work for many ids.
  Builder(const Configuration& configuration, int64_t feature, ExecutionContext* exec = nullptr)
      : exec_(exec),
        configuration_(configuration),
        feature_(feature),
        config_(At(configuration.features, feature)),
        table_(At(configuration.tables, config_.table)),
        samples_(config_.samples()) {}

  // Checks sizes, and copies and checks ids and weights. The caller then assigns them to
  // samples.
  Status Take(const std::vector<Lookups>& lookups) {
    Checked count(0);
    for (const Lookups& one : lookups) {
      if (one.weights.size != 0 && one.weights.size != one.ids.size) {
        return Bad("there must be as many weights as ids or none, there are " +
                   Text(one.weights.size) + " weights and " + Text(one.ids.size) + " ids");
      }
      const bool by_id = one.form == Lookups::Form::kSamples;
      const bool by_coordinate = one.form == Lookups::Form::kIndices;
      const Checked wanted = Checked(one.ids.size) * (by_coordinate ? one.rank : 1);
      if ((by_id || by_coordinate) && (!wanted.fits() || one.where.size != wanted.value())) {
        return Bad("there must be the place of each of the " + Text(one.ids.size) +
                   " ids, there are " + Text(one.where.size) + " numbers for them");
      }
      count += one.ids.size;
      weighted_ = weighted_ || one.weights.size != 0;
    }
    if (!count.fits()) return Bad("there are more ids than memory has addresses");
    count_ = count.value();
    ids_ = Uninitialized<int64_t>(count_);
    if (weighted_) weights_ = Uninitialized<float>(count_);
    int64_t at = 0;
    for (const Lookups& one : lookups) {
      const Ints& ids = one.ids;
      const bool good = ids.wide ? TakeIds(static_cast<const int64_t*>(ids.data), ids.size, at)
                                 : TakeIds(static_cast<const int32_t*>(ids.data), ids.size, at);
      if (!good) return WrongId(at, ids.size);
      if (one.weights.size != 0) {
        const Floats& weights = one.weights;
        const bool finite = weights.wide ? CopyWeights(static_cast<const double*>(weights.data),
                                                       weights.size, weights_.get() + at)
                                         : CopyWeights(static_cast<const float*>(weights.data),
                                                       weights.size, weights_.get() + at);
        if (!finite) return WrongWeight(at, weights.size);
      } else if (weighted_) {
        std::fill_n(weights_.get() + at, ids.size, 1.0f);
      }
      at += ids.size;
    }
    return {};
  }

  // Copies row splits into `checked` and checks the copy, which cannot change after the check.
  Status ReadSplits(const Lookups& lookups, std::unique_ptr<int64_t[]>* checked) const {
    const int64_t size = lookups.where.size, count = lookups.ids.size;
    if (size == 0) return Bad("row splits must begin with 0, are empty");
    *checked = Uninitialized<int64_t>(size);
    int64_t* const splits = checked->get();
    const Ints& where = lookups.where;
    where.wide ? std::copy_n(static_cast<const int64_t*>(where.data), size, splits)
               : std::copy_n(static_cast<const int32_t*>(where.data), size, splits);
    if (splits[0] != 0)
      return Bad("row splits must begin with 0, begin with " + Text(splits[0]));
    int64_t descents = 0;
    for (int64_t i = 1; i < size; ++i) descents |= splits[i] < splits[i - 1];
    for (int64_t i = 1; descents && i < size; ++i) {
      if (splits[i] < splits[i - 1]) {
        return Bad("row split at position " + Text(i) + " is " + Text(splits[i]) + " after " +
                   Text(splits[i - 1]) + "; row splits must not descend");
      }
    }
    if (splits[size - 1] != count) {
      return Bad("the last row split must be the number of ids, " + Text(count) + ", is " +
                 Text(splits[size - 1]));
    }
    return {};
  }

  // Makes each row a sample. The ids are in this order already.
  void SamplesAreRows(std::unique_ptr<int64_t[]> splits) { offsets_ = std::move(splits); }
  // Makes each id a sample.
  void SamplesAreIds() {
    offsets_ = Uninitialized<int64_t>(samples() + 1);
    for (int64_t i = 0; i <= samples_; ++i) offsets_.get()[i] = i;
    single_ = true;
  }

  // The sample of each id, for the caller to fill. Group drops an id whose sample does not
  // exist, such as -1.
  int64_t* SamplesOfIds() {
    if (!sample_of_) sample_of_ = Uninitialized<int64_t>(count_);
    return sample_of_.get();
  }

  // Groups ids by their samples, keeping their order within a sample.
  void Group() {
    offsets_ = Uninitialized<int64_t>(samples() + 1);
    int64_t* const offsets = offsets_.get();
    const int64_t* const sample_of = sample_of_.get();
    std::fill_n(offsets, samples() + 1, 0);
    for (int64_t i = 0; i < count_; ++i) {
      if (IsSample(sample_of[i])) ++offsets[sample_of[i] + 1];
    }
    for (int64_t s = 0; s < samples(); ++s) offsets[s + 1] += offsets[s];
    const int64_t grouped = offsets[samples()];
    auto grouped_ids = Uninitialized<int64_t>(grouped);
    auto grouped_weights = weighted_ ? Uninitialized<float>(grouped) : nullptr;
    auto nexts = Uninitialized<int64_t>(samples());
    int64_t* const ids = grouped_ids.get();
    float* const weights = grouped_weights.get();
    int64_t* const next = nexts.get();
    std::copy_n(offsets, samples(), next);
    for (int64_t i = 0; i < count_; ++i) {
      if (!IsSample(sample_of[i])) continue;
      const int64_t to = next[sample_of[i]]++;
      ids[to] = ids_.get()[i];
      if (weighted_) weights[to] = weights_.get()[i];
    }
    ids_ = std::move(grouped_ids);
    weights_ = std::move(grouped_weights);
  }

  StatusOr<Bags> Finish(Combiner combiner) {
    Bags bags;
    bags.samples = samples();
    bags.combiner = combiner;
    if (combiner != Combiner::kSum) {
      bags.scales = Uninitialized<float>(samples());
      const int64_t* const offsets = offsets_.get();
      const float* const weights = weighted_ ? weights_.get() : nullptr;
      const int64_t s = FillScales(combiner, samples(), offsets, weights, bags.scales.get());
      if (s >= 0) {
        const double divisor = DivisorOfIds(combiner, offsets[s], offsets[s + 1], weights);
        return Bad("the weights of sample " + Text(s) + " combine to " +
                   Number(static_cast<float>(divisor)) +
                   ", and a weight over that is not finite in float32");
      }
    }
    bags.single = single_ && !weighted_ && !bags.scales;
    bags.offsets = std::move(offsets_);
    bags.indices = std::move(ids_);
    bags.per_sample_weights = std::move(weights_);
    return bags;
  }

  int64_t samples() const { return samples_; }

  Status Bad(const std::string& problem) const {
    return InvalidArgumentError(DescribeFeature(configuration_, feature_) + ": " + problem);
  }

 private:
  bool IsSample(int64_t sample) const {
    return static_cast<uint64_t>(sample) < static_cast<uint64_t>(samples_);
  }

  template <class T>
  bool TakeIds(const T* from, int64_t count, int64_t at) const {
    constexpr int64_t kPart = 8192;
    int64_t* const to = ids_.get() + at;
    if (!exec_ || count < 2 * kPart) return CopyIds(from, count, table_.rows, to);
    std::atomic<bool> good{true};
    exec_->For((count + kPart - 1) / kPart, [&](int64_t i) {
      const int64_t first = i * kPart, size = std::min(kPart, count - first);
      if (!CopyIds(from + first, size, table_.rows, to + first)) good = false;
    });
    return good;
  }

  Status WrongId(int64_t at, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t id = ids_.get()[at + i];
      if (id < 0 || id >= table_.rows) {
        return Bad("id at position " + Text(i) + " is " + Text(id) + "; ids must be in [0, " +
                   Text(table_.rows) + "), the rows of the table");
      }
    }
    return Bad("ids changed while they were read");
  }

  Status WrongWeight(int64_t at, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) {
      const float weight = weights_.get()[at + i];
      if (!std::isfinite(weight)) {
        return Bad("weight at position " + Text(i) + " is " + std::to_string(weight) +
                   "; weights must be finite");
      }
    }
    return Bad("weights changed while they were read");
  }

  ExecutionContext* const exec_;
  const Configuration& configuration_;
  const int64_t feature_;
  const FeatureConfig& config_;
  const TableConfig& table_;
  const int64_t samples_;
  int64_t count_ = 0;
  bool weighted_ = false, single_ = false;
  std::unique_ptr<int64_t[]> offsets_, ids_, sample_of_;
  std::unique_ptr<float[]> weights_;
};

// Finds the sample of each id of a sparse tensor. A coordinate beyond the rank of the output's
// shape is a position within a sample. If the shape has several dimensions, the last one is the
// length of a sequence. Ids beyond the end of a sequence are dropped.
Status FromIndices(const Builder& builder, const FeatureConfig& feature, const Lookups& lookups,
                   int64_t* samples) {
  const int64_t rank = lookups.rank, dims = static_cast<int64_t>(feature.shape.size());
  if (rank != dims && rank != dims + 1) {
    return builder.Bad("indices for an output of shape " + DescribeShape(feature.shape) +
                       " must have " + Text(dims) + " or " + Text(dims + 1) +
                       " columns, have " + Text(rank));
  }
  for (int64_t i = 0; i < lookups.ids.size; ++i) {
    int64_t sample = 0;
    for (int64_t d = 0; d < dims; ++d) {
      const int64_t at = lookups.where[i * rank + d], size = At(feature.shape, d);
      const bool sequence = dims > 1 && d == dims - 1;
      if (at < 0 || (at >= size && !sequence)) {
        return builder.Bad("indices must lie in the output's shape " +
                           DescribeShape(feature.shape) + ", index " + Text(i) +
                           " has the coordinate " + Text(at) + " in dimension " + Text(d));
      }
      sample = at >= size ? -1 : sample * size + at;
    }
    samples[i] = sample;
  }
  return {};
}

// Checks that the rows of an input are within the samples, and do not overlap each other.
Status CheckPlacement(const Builder& builder, const Configuration& configuration, size_t input,
                      const Placement& place) {
  const bool sequence = place.sequence != 0;
  const Checked end = Checked(place.first) + (sequence ? place.sequence : place.count);
  const Checked samples = Checked(configuration.batch) * place.stride;
  if (place.count >= 1 && place.sequence >= 0 && (!sequence || place.count == 1) &&
      place.first >= 0 && end.AtMost(place.stride) && samples.AtMost(builder.samples())) {
    return {};
  }
  return builder.Bad("input " + Text(static_cast<int64_t>(input)) + " has " +
                     Text(sequence ? place.sequence : place.count) + " features from " +
                     Text(place.first) + " on, which do not lie within num_features, " +
                     Text(place.stride));
}

}  // namespace

bool Batch::on_device() const {
  return std::any_of(features.begin(), features.end(),
                     [](const Bags& bags) { return bags.on_device != nullptr; });
}

bool CanStayOnDevice(const Configuration& configuration, int64_t feature,
                     const Lookups& lookups) {
  const FeatureConfig& config = At(configuration.features, feature);
  const int64_t samples = config.samples(), count = lookups.ids.size;
  const int64_t places = lookups.where.size;
  const Floats& weights = lookups.weights;
  if (weights.size != 0 && (weights.size != count || weights.wide)) return false;
  switch (lookups.form) {
    case Lookups::Form::kDense: return count == samples;
    case Lookups::Form::kSplits: return places == samples + 1;
    case Lookups::Form::kSamples: return places == count;
    case Lookups::Form::kIndices:
      return config.shape.size() == 1 && (lookups.rank == 1 || lookups.rank == 2) &&
             places % lookups.rank == 0 && places / lookups.rank == count;
  }
  return false;
}

Bags MakeDeviceBags(const Configuration& configuration, int64_t feature, const Lookups& lookups,
                    Combiner combiner) {
  Bags bags;
  bags.samples = At(configuration.features, feature).samples();
  bags.on_device = std::make_unique<const DeviceLookups>(DeviceLookups{lookups, combiner});
  return bags;
}

StatusOr<Bags> MakeBags(const Configuration& configuration, int64_t feature,
                        const Lookups& lookups, Combiner combiner, ExecutionContext* exec) {
  // What to do about a batch of another size.
  constexpr char kSmallerBatch[] =
      ". A smaller last batch of the data: leave it out with dataset.batch(size, "
      "drop_remainder=True), or fill it with samples without ids";
  const FeatureConfig& config = At(configuration.features, feature);
  Builder builder(configuration, feature, exec);
  const int64_t samples = builder.samples();
  std::unique_ptr<int64_t[]> splits;
  if (lookups.form == Lookups::Form::kSplits) {
    OPWRIGHT_RETURN_IF_ERROR(builder.ReadSplits(lookups, &splits));
  }
  if (lookups.form == Lookups::Form::kDense && lookups.ids.size != samples) {
    return builder.Bad("a dense input for an output of shape " + DescribeShape(config.shape) +
                       " must have " + Text(samples) + " ids, has " + Text(lookups.ids.size) +
                       kSmallerBatch);
  }
  OPWRIGHT_RETURN_IF_ERROR(builder.Take({lookups}));
  switch (lookups.form) {
    case Lookups::Form::kDense: builder.SamplesAreIds(); break;
    case Lookups::Form::kSplits: {
      const int64_t rows = lookups.where.size - 1;
      const int64_t length = config.shape.back();
      if (rows == samples) {
        builder.SamplesAreRows(std::move(splits));
      } else if (config.shape.size() > 1 && rows == samples / length) {
        int64_t* const sample_of = builder.SamplesOfIds();
        for (int64_t row = 0; row < rows; ++row) {
          const int64_t first = splits.get()[row], end = splits.get()[row + 1];
          for (int64_t i = first; i < end; ++i) {
            sample_of[i] = i - first < length ? row * length + i - first : -1;
          }
        }
        builder.Group();
      } else {
        return builder.Bad(
            "a ragged input for an output of shape " + DescribeShape(config.shape) +
            " must have " + Text(samples) + " rows" +
            (config.shape.size() > 1 ? ", or " + Text(samples / length) + " of sequences"
                                     : std::string()) +
            ", has " + Text(rows) + kSmallerBatch);
      }
      break;
    }
    case Lookups::Form::kIndices:
      OPWRIGHT_RETURN_IF_ERROR(FromIndices(builder, config, lookups, builder.SamplesOfIds()));
      builder.Group();
      break;
    case Lookups::Form::kSamples: {
      int64_t* const sample_of = builder.SamplesOfIds();
      for (int64_t i = 0; i < lookups.ids.size; ++i) {
        sample_of[i] = lookups.where[i];
        if (sample_of[i] < 0 || sample_of[i] >= samples) {
          return builder.Bad("sample index at position " + Text(i) + " is " +
                             Text(sample_of[i]) + "; sample indices must be in [0, " +
                             Text(samples) + "), the samples of the batch");
        }
      }
      builder.Group();
      break;
    }
  }
  return builder.Finish(combiner);
}

StatusOr<Bags> MakeBags(const Configuration& configuration, int64_t feature,
                        const std::vector<Lookups>& lookups,
                        const std::vector<Placement>& placements, Combiner combiner) {
  Builder builder(configuration, feature);
  std::vector<std::unique_ptr<int64_t[]>> splits(lookups.size());
  for (size_t input = 0; input < lookups.size(); ++input) {
    OPWRIGHT_RETURN_IF_ERROR(CheckPlacement(builder, configuration, input, placements[input]));
    if (lookups[input].form == Lookups::Form::kSplits) {
      OPWRIGHT_RETURN_IF_ERROR(builder.ReadSplits(lookups[input], &splits[input]));
    }
  }
  OPWRIGHT_RETURN_IF_ERROR(builder.Take(lookups));
  int64_t* sample_of = builder.SamplesOfIds();
  for (size_t input = 0; input < lookups.size(); ++input) {
    const Lookups& one = lookups[input];
    const Placement& place = placements[input];
    const int64_t rows = configuration.batch * place.count;
    // The sample of the id at `position` of `row`, or -1 if the id is dropped.
    const auto put = [&](int64_t row, int64_t position) {
      const int64_t sample = row / place.count * place.stride + place.first + row % place.count;
      if (place.sequence == 0) return sample;
      return position < place.sequence ? sample + position : -1;
    };
    switch (one.form) {
      case Lookups::Form::kDense:
      case Lookups::Form::kSplits: {
        const bool dense = one.form == Lookups::Form::kDense;
        const int64_t given = dense ? one.ids.size : one.where.size - 1;
        if (given != rows) {
          return builder.Bad("input " + Text(static_cast<int64_t>(input)) + " must have " +
                             Text(rows) + " rows, has " + Text(given));
        }
        for (int64_t row = 0; row < rows; ++row) {
          const int64_t first = dense ? row : splits[input].get()[row];
          const int64_t end = dense ? row + 1 : splits[input].get()[row + 1];
          for (int64_t i = first; i < end; ++i) sample_of[i] = put(row, i - first);
        }
        break;
      }
      case Lookups::Form::kIndices:
      case Lookups::Form::kSamples: {
        const int64_t rank = one.form == Lookups::Form::kSamples ? 1 : one.rank;
        if (rank < 1 || rank > 2) {
          return builder.Bad("indices must have 1 or 2 columns, have " + Text(rank));
        }
        for (int64_t i = 0; i < one.ids.size; ++i) {
          const int64_t row = one.where[i * rank];
          const int64_t position = rank == 2 ? one.where[i * rank + 1] : 0;
          if (row < 0 || row >= rows || position < 0) {
            return builder.Bad("samples must be in [0, " + Text(rows) +
                               ") and places not negative, index " + Text(i) + " has " +
                               Text(row) + " and " + Text(position));
          }
          sample_of[i] = put(row, position);
        }
        break;
      }
    }
    sample_of += one.ids.size;
  }
  builder.Group();
  return builder.Finish(combiner);
}

}  // namespace opwright::embedding
