#include "embedding/packed.h"

#include <string>

#include "base/checked.h"
#include "embedding/copies.h"
#include "embedding/text.h"

namespace opwright::embedding {
namespace {

// Writes each split minus `begin`, the first split. Returns whether the first is `begin` and no
// split is less than the one before it.
template <class T>
bool Rebase(const T* from, int64_t count, int64_t begin, int64_t* to) {
  for (int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<int64_t>(static_cast<uint64_t>(from[i]) - static_cast<uint64_t>(begin));
  }
  int64_t descents = to[0] != 0;
  for (int64_t i = 1; i < count; ++i) descents |= to[i] < to[i - 1];
  return !descents;
}

Ints Slice(const Ints& ints, int64_t first, int64_t count) {
  const int64_t bytes = first * (ints.wide ? 8 : 4);
  return {static_cast<const char*>(ints.data) + bytes, ints.wide, count};
}

Status Bad(const std::string& problem) { return InvalidArgumentError(problem); }

}  // namespace

Combiner PackedBags::combiner(int64_t table) const {
  return combiners.empty() ? Combiner::kSum : At(combiners, table);
}

int64_t PackedBags::count(int64_t feature) const {
  if (row_splits.size == 0) return samples;
  const int64_t first = row_splits[feature * samples],
                end = row_splits[(feature + 1) * samples];
  return first < 0 || end > ids.size || first > end ? ids.size : end - first;
}

Status CountSamples(const Configuration& configuration, int64_t weights, PackedBags* bags) {
  const int64_t features = static_cast<int64_t>(configuration.features.size());
  const bool split = bags->row_splits.size != 0;
  const int64_t all = split ? bags->row_splits.size - 1 : bags->ids.size;
  if (features == 0 || all % features != 0) {
    return Bad((split ? "row_splits: must be one more than" : "ids: must be") +
               std::string(" a multiple of the ") + Text(features) +
               (configuration.by_num_features ? " tables" : " features") +
               " of the configuration, are " + Text(split ? all + 1 : all));
  }
  bags->samples = all / features;
  if (bags->samples == 0 && bags->ids.size != 0) {
    return Bad(
        "row_splits: of no samples must be 0 alone, as there must be no ids; there are " +
        Text(bags->ids.size));
  }
  if (weights != 0 && weights != bags->ids.size) {
    return Bad("weights: must be as many as ids, " + Text(bags->ids.size) + ", or none, are " +
               Text(weights));
  }
  if (!bags->combiners.empty() && bags->combiners.size() != configuration.tables.size()) {
    return Bad("combiners: must be one for each of the " +
               Text(static_cast<int64_t>(configuration.tables.size())) +
               " tables or none, are " + Text(static_cast<int64_t>(bags->combiners.size())));
  }
  return {};
}

// Copies and checks the offsets of some bags. It sets `begin` to the index of their first id,
// and `count` to the number of their ids.
bool UnpackedBags::TakeOffsets(const PackedBags& bags, int64_t first, int64_t samples,
                               int64_t* begin, int64_t* count) {
  const Ints& splits = bags.row_splits;
  if (splits.size == 0) {
    *begin = first;
    *count = samples;
    split_ = weighted_ || scaled_;
    int64_t* const offsets = offsets_.For(split_ ? samples + 1 : 0);
    for (int64_t s = 0; split_ && s <= samples; ++s) offsets[s] = s;
    return true;
  }
  split_ = true;
  *begin = splits[first];
  if (*begin < 0 || *begin > bags.ids.size || (first == 0 && *begin != 0)) return false;
  int64_t* const offsets = offsets_.For(samples + 1);
  const Ints own = Slice(splits, first, samples + 1);
  const bool good =
      own.wide ? Rebase(static_cast<const int64_t*>(own.data), own.size, *begin, offsets)
               : Rebase(static_cast<const int32_t*>(own.data), own.size, *begin, offsets);
  *count = offsets[samples];
  const int64_t left = bags.ids.size - *begin;
  const bool last = first + samples == splits.size - 1;
  return good && (last ? *count == left : *count <= left);
}

bool UnpackedBags::Take(const Configuration& configuration, const PackedBags& bags,
                        int64_t feature, int64_t first, int64_t end) {
  const int64_t table = At(configuration.features, feature).table, samples = end - first;
  const Combiner combiner = bags.combiner(table);
  weighted_ = bags.weights != nullptr;
  scaled_ = combiner != Combiner::kSum;
  int64_t begin, count;
  if (!TakeOffsets(bags, feature * bags.samples + first, samples, &begin, &count)) return false;
  const Ints ids = Slice(bags.ids, begin, count);
  const int64_t rows = At(configuration.tables, table).rows;
  int64_t* const indices = indices_.For(count);
  if (!(ids.wide ? CopyIds(static_cast<const int64_t*>(ids.data), count, rows, indices)
                 : CopyIds(static_cast<const int32_t*>(ids.data), count, rows, indices))) {
    return false;
  }
  if (weighted_ && !CopyWeights(bags.weights + begin, count, weights_.For(count))) return false;
  return !scaled_ || FillScales(combiner, samples, offsets(), per_sample_weights(),
                                scales_.For(samples)) < 0;
}

Status WhyNot(const Configuration& configuration, const PackedBags& bags) {
  const Ints& given = bags.row_splits;
  std::vector<int64_t> splits(static_cast<size_t>(given.size));
  for (int64_t i = 0; i < given.size; ++i) At(splits, i) = given[i];
  if (!splits.empty() && splits.front() != 0) {
    return Bad("row_splits: must begin with 0, begin with " + Text(splits.front()));
  }
  for (int64_t i = 1; i < given.size; ++i) {
    const int64_t before = At(splits, i - 1), split = At(splits, i);
    if (split < before) {
      return Bad("row_splits: must not descend, the one at position " + Text(i) + " is " +
                 Text(split) + " after " + Text(before));
    }
  }
  if (!splits.empty() && splits.back() != bags.ids.size) {
    return Bad("row_splits: the last one must be the number of ids, " + Text(bags.ids.size) +
               ", is " + Text(splits.back()));
  }
  // MakeBags finds the error: it checks each feature as if it were enqueued with this number of
  // samples.
  Configuration free = configuration;
  for (size_t f = 0; f < free.features.size(); ++f) {
    FeatureConfig& config = free.features[f];
    config.shape = {bags.samples};
    const int64_t feature = static_cast<int64_t>(f), first = feature * bags.samples;
    const int64_t begin = splits.empty() ? first : At(splits, first);
    const int64_t end =
        splits.empty() ? first + bags.samples : At(splits, first + bags.samples);
    std::vector<int64_t> own;
    for (int64_t s = 0; s <= bags.samples; ++s) {
      own.push_back(splits.empty() ? s : At(splits, first + s) - begin);
    }
    Lookups lookups;
    lookups.form = Lookups::Form::kSplits;
    lookups.where = {own.data(), true, static_cast<int64_t>(own.size())};
    lookups.ids = Slice(bags.ids, begin, end - begin);
    if (bags.weights) lookups.weights = {bags.weights + begin, false, end - begin};
    const Combiner combiner = bags.combiner(config.table);
    OPWRIGHT_RETURN_IF_ERROR(MakeBags(free, feature, lookups, combiner).status());
  }
  return Bad("ids: changed while they were read");
}

}  // namespace opwright::embedding
