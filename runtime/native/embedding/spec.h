// What an embedding engine is configured with: tables, features, and how steps run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "embedding/optimizers.h"

namespace opwright::embedding {

// Before the combiner, an element x becomes floor((x - lower)/q + 1/2)*q + lower, where
// q = (upper - lower)/(buckets - 1), after clipping to the limits.
struct Quantization {
  bool enabled = false;
  float lower = 0, upper = 0;
  int64_t buckets = 0;

  float step() const { return (upper - lower) / static_cast<float>(buckets - 1); }
  // Whether there is a step, and limits that are no further apart than float32 can say.
  bool good() const {
    return buckets >= 2 && Within(Range::kFinite, lower) && Within(Range::kFinite, upper) &&
           Within(Range::kFinite, upper - lower) && step() >= FLT_MIN;
  }
};

struct TableConfig {
  std::string name;
  int64_t rows = 0;
  int64_t dimension = 0;
  int64_t features = 0;  // num_features; 0 where features are described.
  Optimizer optimizer = Optimizer::kSgd;
  // The learning rate is `hyper.learning_rate`, or what a step brings for `tag`. A table that
  // is never trained needs none.
  bool has_rate = true;
  bool dynamic_rate = false;
  int64_t tag = 0;
  Hyper hyper;  // `decay` is the factor as configured.
  bool decay_times_rate = false;
  bool accumulate = true;
  // Rows without lookups are updated too, with a gradient of zero.
  bool every_row = false;
  Quantization quantization;
  // Of a user-defined program, whose slots the traits cannot know.
  int64_t program_slots = 0;

  int64_t slots() const {
    return optimizer == Optimizer::kUserDefinedProgram ? program_slots
                                                       : TraitsOf(optimizer).slot_count();
  }
  // Of the weights (slot -1) or of a slot.
  int64_t columns(int64_t slot) const {
    return slot >= 0 && TraitsOf(optimizer).row_wise ? 1 : dimension;
  }
  // Of all slots of a row, which are next to each other.
  int64_t slot_floats() const { return slots() * columns(0); }
  std::string slot_name(int64_t slot) const {
    return optimizer == Optimizer::kUserDefinedProgram ? "Slot_" + std::to_string(slot)
                                                       : TraitsOf(optimizer).slots[slot].name;
  }
};

struct FeatureConfig {
  std::string name;
  int64_t table = 0;
  std::vector<int64_t> shape;  // Of the output, without the dimension.

  int64_t samples() const {
    int64_t n = 1;
    for (const int64_t size : shape) n *= size;
    return n;
  }
};

enum class Mode { kUnspecified, kInference, kTraining, kBackwardOnly };

struct Configuration {
  std::vector<TableConfig> tables;
  std::vector<FeatureConfig> features;
  Mode mode = Mode::kUnspecified;
  int64_t batch = 0;  // batch_size_per_tensor_core; 0 where features are described.
  int64_t hosts = 1;
  int64_t cores = 1;
  bool shard_by_remainder = false;  // MOD; else DIV_DEFAULT.
  bool pipelined = false;
  // A num_features configuration: it describes no features. Each table has one, of shape
  // [batch * num_features].
  bool by_num_features = false;
  int64_t tags = 0;  // Learning rates that a step brings.
};

// What a step with this learning rate updates a table with.
inline Hyper HyperAt(const TableConfig& table, float rate) {
  Hyper hyper = table.hyper;
  hyper.learning_rate = rate;
  if (table.decay_times_rate) hyper.decay *= rate;
  return hyper;
}

// Checks what a table is updated and quantized with; `where` begins what is said.
Status CheckNumbers(const TableConfig& table, const std::string& where);

// Checks every rule of a configuration as given, then fills in what follows from it: the
// features of a num_features configuration, and `tags`.
Status Complete(Configuration* configuration);

// "table 2 ('users')", "feature 3 ('clicked', of table 'items')".
std::string Describe(const Configuration& configuration, int64_t table);
std::string DescribeFeature(const Configuration& configuration, int64_t feature);

// The rows of one of `shards` shards of a table: count of them, from `first` on, `step`
// apart. By division the first rows % shards shards have one row more than the others.
struct Shard {
  int64_t count, first, step;
};
Shard ShardOf(int64_t rows, int64_t shards, int64_t shard, bool by_remainder);

}  // namespace opwright::embedding
