// The configuration of an embedding engine: its tables, its features, and how steps run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "embedding/optimizers.h"
#include "embedding/row_dtype.h"

namespace opwright::embedding {

// Simulated quantization of looked up rows, before the combiner. An element is clipped to
// [lower, upper]. The clipped element x then becomes floor((x - lower)/q + 1/2)*q + lower,
// where q = (upper - lower)/(buckets - 1).
struct Quantization {
  bool enabled = false;
  float lower = 0, upper = 0;
  int64_t buckets = 0;

  float step() const { return (upper - lower) / static_cast<float>(buckets - 1); }
  // Whether the limits and their difference are finite in float32, and step() is not too small.
  bool good() const {
    return buckets >= 2 && Within(Range::kFinite, lower) && Within(Range::kFinite, upper) &&
           Within(Range::kFinite, upper - lower) && step() >= FLT_MIN;
  }
};

struct TableConfig {
  std::string name;
  int64_t rows = 0;
  int64_t dimension = 0;
  // num_features. It is 0 if the configuration describes features.
  int64_t features = 0;
  Optimizer optimizer = Optimizer::kSgd;
  // The learning rate is `hyper.learning_rate`. If `dynamic_rate` is true, each step brings the
  // rate for `tag` instead. A table that is never trained needs no learning rate.
  bool has_rate = true;
  bool dynamic_rate = false;
  int64_t tag = 0;
  Hyper hyper;  // Its `decay` is not multiplied by the learning rate yet.
  bool decay_times_rate = false;
  bool accumulate = true;
  // Whether rows that a step did not look up are updated too, with a gradient of zero.
  bool every_row = false;
  Quantization quantization;
  // The dtype of the weights. Slots are float32.
  RowDtype dtype = RowDtype::kFloat32;
  // Row i is row first_row + i * row_step of the whole table, if a host has a shard of it.
  int64_t first_row = 0, row_step = 1;
  // The number of slots of a user-defined program. The traits of kUserDefinedProgram list no
  // slots.
  int64_t program_slots = 0;

  int64_t slots() const {
    return optimizer == Optimizer::kUserDefinedProgram ? program_slots
                                                       : TraitsOf(optimizer).slot_count();
  }
  // The number of columns of the weights (slot -1) or of a slot.
  int64_t columns(int64_t slot) const {
    return slot >= 0 && TraitsOf(optimizer).row_wise ? 1 : dimension;
  }
  // The size of the weights of a row, in floats.
  int64_t row_words() const { return RowWords(dtype, dimension); }
  // The number of floats of all slots of a row. They are adjacent in memory.
  int64_t slot_floats() const { return slots() * columns(0); }
  std::string slot_name(int64_t slot) const {
    return optimizer == Optimizer::kUserDefinedProgram ? "Slot_" + std::to_string(slot)
                                                       : TraitsOf(optimizer).slots[slot].name;
  }
};

struct FeatureConfig {
  std::string name;
  int64_t table = 0;
  std::vector<int64_t> shape;  // The shape of the output, without its last dimension.

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
  int64_t batch = 0;  // batch_size_per_tensor_core. 0 if the configuration describes features.
  int64_t hosts = 1;
  int64_t cores = 1;
  bool shard_by_remainder = false;  // The sharding strategy: MOD if true, else DIV_DEFAULT.
  bool pipelined = false;
  // Whether this is a num_features configuration, which describes no features. Each table then
  // has one feature, of shape [batch * num_features].
  bool by_num_features = false;
  int64_t tags = 0;  // The number of learning rates that each step brings.
};

// The hyperparameters of a table's update in a step with this learning rate.
inline Hyper HyperAt(const TableConfig& table, float rate) {
  Hyper hyper = table.hyper;
  hyper.learning_rate = rate;
  if (table.decay_times_rate) hyper.decay *= rate;
  return hyper;
}

// Checks the optimizer's parameters and the quantization of a table. Error messages begin with
// `where`.
Status CheckNumbers(const TableConfig& table, const std::string& where);

// Checks a configuration as the user gave it. Then it sets the fields that follow from the
// others: the features of a num_features configuration, and `tags`.
Status Complete(Configuration* configuration);

// A table or a feature in a message, such as "table 2 ('users')" or "feature 3 ('clicked') of
// table 1 ('items')".
std::string Describe(const Configuration& configuration, int64_t table);
std::string DescribeFeature(const Configuration& configuration, int64_t feature);

// Rows `first`, `first` + `step`, and so on: `count` rows of a table. ShardOf returns the rows
// of one of `shards` shards. The first rows % shards shards have one row more than the others.
struct Shard {
  int64_t count, first, step;
};
Shard ShardOf(int64_t rows, int64_t shards, int64_t shard, bool by_remainder);

}  // namespace opwright::embedding
