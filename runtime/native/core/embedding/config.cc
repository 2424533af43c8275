#include "core/embedding/config.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace opwright {
namespace embedding {
namespace {

// Products of sizes stay far from the end of int64.
constexpr int64_t kMostElements = int64_t{1} << 56;

std::string Text(int64_t value) { return std::to_string(value); }

Maybe CheckOptimizer(const TableConfig& table, const std::string& where) {
  const Hyper& hyper = table.hyper;
  if (!table.dynamic_rate && !std::isfinite(hyper.learning_rate)) {
    return Invalid(where + ": its learning rate must be finite, is " +
                   std::to_string(hyper.learning_rate));
  }
  if (table.optimizer == Optimizer::kFrequencyEstimator && !table.dynamic_rate) {
    return Invalid(where + ": the learning rate of frequency_estimator carries the global "
                           "step and must be dynamic, is a constant");
  }
  const OptimizerFacts& facts = FactsOf(table.optimizer);
  for (int i = 0; i < kMaxHyper && facts.hyper[i]; ++i) {
    if (!std::isfinite(hyper.hyper[i])) {
      return Invalid(where + ": " + facts.field + "." + facts.hyper[i] +
                     " must be finite, is " + std::to_string(hyper.hyper[i]));
    }
  }
  if (table.optimizer == Optimizer::kAdagradMomentum && !(hyper.hyper[2] > 0)) {
    return Invalid(where + ": adagrad_momentum.exponent must be positive, is " +
                   std::to_string(hyper.hyper[2]));
  }
  if (table.optimizer == Optimizer::kFtrl && hyper.hyper[2] > 0) {
    return Invalid(where + ": ftrl.lr_power must not be positive, is " +
                   std::to_string(hyper.hyper[2]));
  }
  const struct {
    const char* name;
    const float* limits;
  } clips[] = {{"gradient_clipping_limits", hyper.clip_gradient},
               {"clipping_limits", hyper.clip_weight}};
  for (const auto& clip : clips) {
    if (!(clip.limits[0] <= clip.limits[1])) {
      return Invalid(where + ": the lower end of " + clip.name + " must not be above the upper, "
                                                                 "they are " +
                     std::to_string(clip.limits[0]) + " and " + std::to_string(clip.limits[1]));
    }
  }
  if (!std::isfinite(hyper.decay)) {
    return Invalid(where + ": weight_decay_factor must be finite, is " +
                   std::to_string(hyper.decay));
  }
  const Quantization& quantization = table.quantization;
  if (quantization.enabled) {
    if (quantization.buckets < 2) {
      return Invalid(where + ": simulated_quantization.num_buckets must be at least 2, is " +
                     Text(quantization.buckets));
    }
    if (!std::isfinite(quantization.lower) || !std::isfinite(quantization.upper) ||
        !(quantization.lower < quantization.upper)) {
      return Invalid(where + ": simulated_quantization.clipping_limits must be finite and "
                             "ascending, are " +
                     std::to_string(quantization.lower) + " and " +
                     std::to_string(quantization.upper));
    }
  }
  return {};
}

Maybe CheckTables(const Configuration& configuration) {
  if (configuration.tables.empty()) return Invalid("there must be at least one table");
  std::set<std::string> names;
  for (size_t i = 0; i < configuration.tables.size(); ++i) {
    const TableConfig& table = configuration.tables[i];
    const std::string where = Describe(configuration, static_cast<int64_t>(i));
    if (!names.insert(table.name).second) {
      return Invalid(where + ": another table has the same name");
    }
    if (table.rows <= 0) {
      return Invalid(where + ": vocabulary_size must be positive, is " + Text(table.rows));
    }
    if (table.dimension <= 0) {
      return Invalid(where + ": dimension must be positive, is " + Text(table.dimension));
    }
    if (table.rows > kMostElements / (table.dimension * (1 + kMaxSlots))) {
      return Invalid(where + ": " + Text(table.rows) + " rows of " + Text(table.dimension) +
                     " elements are more than memory has addresses");
    }
    if (auto refusal = CheckOptimizer(table, where)) return refusal;
  }
  return {};
}

Maybe CheckFeatures(const Configuration& configuration) {
  if (configuration.batch != 0) {
    return Invalid("batch_size_per_tensor_core must be 0 where features are described, is " +
                   Text(configuration.batch));
  }
  std::vector<bool> used(configuration.tables.size());
  for (size_t i = 0; i < configuration.features.size(); ++i) {
    const FeatureConfig& feature = configuration.features[i];
    const std::string where = "feature " + Text(i) + " ('" + feature.name + "')";
    if (feature.table < 0 || feature.table >= static_cast<int64_t>(used.size())) {
      return Invalid(where + ": table_id must be in [0, " + Text(used.size()) + "), is " +
                     Text(feature.table));
    }
    used[feature.table] = true;
    if (feature.shape.empty()) return Invalid(where + ": input_shape must not be empty");
    int64_t left = kMostElements / configuration.tables[feature.table].dimension;
    for (const int64_t size : feature.shape) {
      if (size <= 0) {
        return Invalid(where + ": sizes in input_shape must be positive, one is " + Text(size));
      }
      left /= size;
    }
    if (left == 0) return Invalid(where + ": its input_shape is too large");
  }
  for (size_t i = 0; i < configuration.tables.size(); ++i) {
    const std::string where = Describe(configuration, static_cast<int64_t>(i));
    if (configuration.tables[i].features != 0) {
      return Invalid(where + ": num_features must be 0 where features are described, is " +
                     Text(configuration.tables[i].features));
    }
    if (!used[i]) return Invalid(where + ": no feature is looked up in it");
  }
  return {};
}

Maybe MakeFeatures(Configuration* configuration) {
  if (configuration->batch <= 0) {
    return Invalid("batch_size_per_tensor_core must be positive where no features are "
                   "described, is " +
                   Text(configuration->batch));
  }
  for (size_t i = 0; i < configuration->tables.size(); ++i) {
    const TableConfig& table = configuration->tables[i];
    const std::string where = Describe(*configuration, static_cast<int64_t>(i));
    if (table.features <= 0) {
      return Invalid(where + ": num_features must be positive where no features are described, "
                             "is " +
                     Text(table.features));
    }
    if (configuration->batch > kMostElements / table.dimension / table.features) {
      return Invalid(where + ": batch_size_per_tensor_core * num_features is too large");
    }
    configuration->features.push_back(
        {table.name, static_cast<int64_t>(i), {configuration->batch * table.features}});
  }
  configuration->legacy = true;
  return {};
}

Maybe CheckTags(Configuration* configuration) {
  std::set<int64_t> tags;
  for (size_t i = 0; i < configuration->tables.size(); ++i) {
    const TableConfig& table = configuration->tables[i];
    if (!table.dynamic_rate) continue;
    if (table.tag < 0) {
      return Invalid(Describe(*configuration, static_cast<int64_t>(i)) +
                     ": the tag of its dynamic learning rate must not be negative, is " +
                     Text(table.tag));
    }
    tags.insert(table.tag);
  }
  // n different tags, none missing: the largest is n - 1. So there are never more tags than
  // tables.
  int64_t expected = 0;
  for (const int64_t tag : tags) {
    if (tag != expected) {
      const auto table =
          std::find_if(configuration->tables.begin(), configuration->tables.end(),
                       [tag](const TableConfig& t) { return t.dynamic_rate && t.tag == tag; });
      return Invalid(Describe(*configuration, table - configuration->tables.begin()) +
                     ": the tag of its dynamic learning rate is " + Text(tag) + ", but no table "
                     "has the tag " + Text(expected) + "; " + Text(tags.size()) +
                     " different tags must be 0 to " + Text(tags.size() - 1));
    }
    ++expected;
  }
  configuration->tags = expected;
  return {};
}

}  // namespace

Maybe Complete(Configuration* configuration) {
  if (configuration->hosts <= 0) {
    return Invalid("num_hosts must be positive, is " + Text(configuration->hosts));
  }
  if (configuration->cores <= 0) {
    return Invalid("num_tensor_cores must be positive, is " + Text(configuration->cores));
  }
  if (configuration->cores % configuration->hosts != 0) {
    return Invalid("num_tensor_cores must be a multiple of num_hosts, they are " +
                   Text(configuration->cores) + " and " + Text(configuration->hosts));
  }
  // The queues of more cores than any TPU has would take all memory.
  constexpr int64_t kMostCores = 1 << 16;
  if (configuration->cores > kMostCores) {
    return Invalid("num_tensor_cores must be at most " + Text(kMostCores) + ", is " +
                   Text(configuration->cores));
  }
  if (auto refusal = CheckTables(*configuration)) return refusal;
  if (configuration->features.empty()) {
    if (auto refusal = MakeFeatures(configuration)) return refusal;
  } else {
    if (auto refusal = CheckFeatures(*configuration)) return refusal;
  }
  for (size_t i = 0; i < configuration->tables.size(); ++i) {
    const TableConfig& table = configuration->tables[i];
    if (table.rows < configuration->hosts) {
      return Invalid(Describe(*configuration, static_cast<int64_t>(i)) + ": " +
                     Text(configuration->hosts) + " hosts share its " + Text(table.rows) +
                     " rows, and one would have none");
    }
  }
  return CheckTags(configuration);
}

std::string Describe(const Configuration& configuration, int64_t table) {
  return "table " + Text(table) + " ('" + configuration.tables[table].name + "')";
}

std::string DescribeFeature(const Configuration& configuration, int64_t feature) {
  const FeatureConfig& config = configuration.features[feature];
  return "feature " + Text(feature) + " ('" + config.name + "') of " +
         Describe(configuration, config.table);
}

Shard ShardOf(int64_t rows, int64_t shards, int64_t shard, bool by_remainder) {
  const int64_t each = rows / shards, more = rows % shards;
  const int64_t count = each + (shard < more ? 1 : 0);
  if (by_remainder) return {count, shard, shards};
  return {count, shard * each + std::min(shard, more), 1};
}

}  // namespace embedding
}  // namespace opwright
