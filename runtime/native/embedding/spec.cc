#include "embedding/spec.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/checked.h"
#include "embedding/text.h"

namespace opwright::embedding {
namespace {

// The limit of elements of a table. Products of sizes then stay far below the maximum of int64.
constexpr int64_t kMaxElements = int64_t{1} << 56;
// The limit of samples of all features of a core. Each sample takes memory even if it has no
// id.
constexpr int64_t kMaxSamples = int64_t{1} << 28;
// The limit of dimensions of input_shape. The output of a feature has one dimension more, and a
// tensor has at most 254.
constexpr size_t kMaxDimensions = 253;

Status CheckTables(const Configuration& configuration) {
  if (configuration.tables.empty())
    return InvalidArgumentError("there must be at least one table");
  std::set<std::string> names;
  for (size_t i = 0; i < configuration.tables.size(); ++i) {
    const TableConfig& table = configuration.tables[i];
    const std::string where = Describe(configuration, static_cast<int64_t>(i));
    if (!names.insert(table.name).second) {
      return InvalidArgumentError(where + ": another table has the same name");
    }
    if (table.rows <= 0) {
      return InvalidArgumentError(where + ": vocabulary_size must be positive, is " +
                                  Text(table.rows));
    }
    if (table.dimension <= 0) {
      return InvalidArgumentError(where + ": dimension must be positive, is " +
                                  Text(table.dimension));
    }
    if (!(Checked(table.rows) * table.dimension * (1 + kMaxSlots)).AtMost(kMaxElements)) {
      return InvalidArgumentError(where + ": " + Text(table.rows) + " rows of " +
                                  Text(table.dimension) +
                                  " elements are more than memory has addresses");
    }
    OPWRIGHT_RETURN_IF_ERROR(CheckNumbers(table, where));
  }
  return {};
}

// Checks the number of samples of one feature, and of all features up to it.
Status CheckSamples(const Checked& samples, const Checked& all, int64_t dimension,
                    const std::string& where, const std::string& what) {
  if (!samples.AtMost(kMaxSamples) || !(samples * dimension).AtMost(kMaxElements)) {
    return InvalidArgumentError(where + ": " + what + " is too large, a core has at most " +
                                Text(kMaxSamples) + " samples");
  }
  if (!all.AtMost(kMaxSamples)) {
    return InvalidArgumentError(where + ": with the features before it there are more than " +
                                Text(kMaxSamples) + " samples a core");
  }
  return {};
}

Status CheckFeatures(const Configuration& configuration) {
  if (configuration.batch != 0) {
    return InvalidArgumentError(
        "batch_size_per_tensor_core must be 0 where features are described, is " +
        Text(configuration.batch));
  }
  std::vector<bool> used(configuration.tables.size());
  Checked all = 0;
  for (size_t i = 0; i < configuration.features.size(); ++i) {
    const FeatureConfig& feature = configuration.features[i];
    const std::string where = "feature " + Text(i) + " ('" + feature.name + "')";
    if (feature.table < 0 || feature.table >= static_cast<int64_t>(used.size())) {
      return InvalidArgumentError(where + ": table_id must be in [0, " + Text(used.size()) +
                                  "), is " + Text(feature.table));
    }
    At(used, feature.table) = true;
    if (feature.shape.empty())
      return InvalidArgumentError(where + ": input_shape must not be empty");
    if (feature.shape.size() > kMaxDimensions) {
      return InvalidArgumentError(where + ": input_shape must have at most " +
                                  Text(kMaxDimensions) + " dimensions, has " +
                                  Text(feature.shape.size()));
    }
    Checked samples = 1;
    for (const int64_t size : feature.shape) {
      if (size <= 0) {
        return InvalidArgumentError(where + ": sizes in input_shape must be positive, one is " +
                                    Text(size));
      }
      samples *= size;
    }
    all += samples;
    const TableConfig& table = At(configuration.tables, feature.table);
    OPWRIGHT_RETURN_IF_ERROR(
        CheckSamples(samples, all, table.dimension, where, "its input_shape"));
  }
  for (size_t i = 0; i < configuration.tables.size(); ++i) {
    const std::string where = Describe(configuration, static_cast<int64_t>(i));
    if (configuration.tables[i].features != 0) {
      return InvalidArgumentError(where +
                                  ": num_features must be 0 where features are described, is " +
                                  Text(configuration.tables[i].features));
    }
    if (!used[i]) return InvalidArgumentError(where + ": no feature is looked up in it");
  }
  return {};
}

Status MakeFeatures(Configuration* configuration) {
  if (configuration->batch <= 0) {
    return InvalidArgumentError(
        "batch_size_per_tensor_core must be positive where no features are "
        "described, is " +
        Text(configuration->batch));
  }
  Checked all = 0;
  for (size_t i = 0; i < configuration->tables.size(); ++i) {
    const TableConfig& table = configuration->tables[i];
    const std::string where = Describe(*configuration, static_cast<int64_t>(i));
    if (table.features <= 0) {
      return InvalidArgumentError(
          where +
          ": num_features must be positive where no features are described, "
          "is " +
          Text(table.features));
    }
    const Checked samples = Checked(configuration->batch) * table.features;
    all += samples;
    OPWRIGHT_RETURN_IF_ERROR(CheckSamples(samples, all, table.dimension, where,
                                          "batch_size_per_tensor_core * num_features"));
    configuration->features.push_back({table.name, static_cast<int64_t>(i), {samples.value()}});
  }
  configuration->by_num_features = true;
  return {};
}

Status CheckTags(Configuration* configuration) {
  std::set<int64_t> tags;
  for (size_t i = 0; i < configuration->tables.size(); ++i) {
    const TableConfig& table = configuration->tables[i];
    if (!table.dynamic_rate) continue;
    if (table.tag < 0) {
      return InvalidArgumentError(
          Describe(*configuration, static_cast<int64_t>(i)) +
          ": the tag of its dynamic learning rate must not be negative, is " + Text(table.tag));
    }
    tags.insert(table.tag);
  }
  // n different tags must be 0 to n - 1. There are therefore never more tags than tables.
  int64_t expected = 0;
  for (const int64_t tag : tags) {
    if (tag != expected) {
      const auto table =
          std::find_if(configuration->tables.begin(), configuration->tables.end(),
                       [tag](const TableConfig& t) { return t.dynamic_rate && t.tag == tag; });
      return InvalidArgumentError(
          Describe(*configuration, table - configuration->tables.begin()) +
          ": the tag of its dynamic learning rate is " + Text(tag) +
          ", but no table "
          "has the tag " +
          Text(expected) + "; " + Text(tags.size()) + " different tags must be 0 to " +
          Text(tags.size() - 1));
    }
    ++expected;
  }
  configuration->tags = expected;
  return {};
}

}  // namespace

Status CheckNumbers(const TableConfig& table, const std::string& where) {
  const Hyper& hyper = table.hyper;
  if (!table.dynamic_rate && !Within(Range::kFinite, hyper.learning_rate)) {
    return InvalidArgumentError(where + ": its learning rate must be finite, is " +
                                Number(hyper.learning_rate));
  }
  if (table.optimizer == Optimizer::kFrequencyEstimator && !table.dynamic_rate) {
    return InvalidArgumentError(where +
                                ": the learning rate of frequency_estimator carries the global "
                                "step and must be dynamic, is a constant");
  }
  const OptimizerTraits& traits = TraitsOf(table.optimizer);
  for (int i = 0; i < kMaxHyper && traits.hyper[i].name; ++i) {
    if (!Within(traits.hyper[i].range, hyper.values[i])) {
      return InvalidArgumentError(where + ": " + traits.field + "." + traits.hyper[i].name +
                                  " must be " + Words(traits.hyper[i].range) + ", is " +
                                  Number(hyper.values[i]));
    }
  }
  const struct {
    const char* name;
    const float (&limits)[2];
  } clips[] = {{"gradient_clipping_limits", hyper.clip_gradient},
               {"clipping_limits", hyper.clip_weight}};
  for (const auto& clip : clips) {
    if (!Hyper::AreLimits(clip.limits)) {
      return InvalidArgumentError(
          where + ": the lower end of " + clip.name +
          " must not be above the upper, and finite numbers must lie between; "
          "they are " +
          Number(clip.limits[0]) + " and " + Number(clip.limits[1]));
    }
  }
  // If the decay depends on the learning rate, WrongRate checks it again in each step.
  const Range decays = table.decay_times_rate ? Range::kFinite : Range::kFraction;
  if (!Within(decays, hyper.decay)) {
    return InvalidArgumentError(where + ": weight_decay_factor must be " + Words(decays) +
                                ", is " + Number(hyper.decay));
  }
  const Quantization& quantization = table.quantization;
  if (quantization.enabled) {
    if (quantization.buckets < 2) {
      return InvalidArgumentError(
          where + ": simulated_quantization.num_buckets must be at least 2, is " +
          Text(quantization.buckets));
    }
    if (!quantization.good()) {
      return InvalidArgumentError(where +
                                  ": simulated_quantization.clipping_limits must be finite, "
                                  "ascending and as far apart as float32 can say, are " +
                                  Number(quantization.lower) + " and " +
                                  Number(quantization.upper));
    }
  }
  return {};
}

Status Complete(Configuration* configuration) {
  if (configuration->hosts <= 0) {
    return InvalidArgumentError("num_hosts must be positive, is " + Text(configuration->hosts));
  }
  if (configuration->cores <= 0) {
    return InvalidArgumentError("num_tensor_cores must be positive, is " +
                                Text(configuration->cores));
  }
  if (configuration->cores % configuration->hosts != 0) {
    return InvalidArgumentError("num_tensor_cores must be a multiple of num_hosts, they are " +
                                Text(configuration->cores) + " and " +
                                Text(configuration->hosts));
  }
  // The queues of more cores than any TPU has would take all memory.
  constexpr int64_t kMaxCores = 1 << 16;
  if (configuration->cores > kMaxCores) {
    return InvalidArgumentError("num_tensor_cores must be at most " + Text(kMaxCores) +
                                ", is " + Text(configuration->cores));
  }
  OPWRIGHT_RETURN_IF_ERROR(CheckTables(*configuration));
  if (configuration->features.empty()) {
    OPWRIGHT_RETURN_IF_ERROR(MakeFeatures(configuration));
  } else {
    OPWRIGHT_RETURN_IF_ERROR(CheckFeatures(*configuration));
  }
  for (size_t i = 0; i < configuration->tables.size(); ++i) {
    const TableConfig& table = configuration->tables[i];
    if (table.rows < configuration->hosts) {
      return InvalidArgumentError(Describe(*configuration, static_cast<int64_t>(i)) + ": " +
                                  Text(configuration->hosts) + " hosts share its " +
                                  Text(table.rows) + " rows, and one would have none");
    }
  }
  return CheckTags(configuration);
}

std::string Describe(const Configuration& configuration, int64_t table) {
  return "table " + Text(table) + " ('" + At(configuration.tables, table).name + "')";
}

std::string DescribeFeature(const Configuration& configuration, int64_t feature) {
  const FeatureConfig& config = At(configuration.features, feature);
  return "feature " + Text(feature) + " ('" + config.name + "') of " +
         Describe(configuration, config.table);
}

Shard ShardOf(int64_t rows, int64_t shards, int64_t shard, bool by_remainder) {
  const int64_t each = rows / shards, more = rows % shards;
  const int64_t count = each + (shard < more ? 1 : 0);
  if (by_remainder) return {count, shard, shards};
  return {count, shard * each + std::min(shard, more), 1};
}

}  // namespace opwright::embedding
