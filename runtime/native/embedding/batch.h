// A batch: the ids that one TensorCore looks up in one step. The ids of each feature are
// checked and grouped by sample.
#pragma once

#include <cmath>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/execution_context.h"
#include "embedding/spec.h"

namespace opwright::embedding {

enum class Combiner { kSum, kMean, kSqrtN };

// The mean and sqrtn combiners divide the weighted sum of a sample's rows by a divisor. The
// divisor is DivisorOf(sum), where `sum` adds TermOf(weight) over the sample's ids. ScaleOf
// returns the factor that the sum is multiplied by instead.
OPWRIGHT_RULE double TermOf(Combiner combiner, double weight) {
  return combiner == Combiner::kSqrtN ? weight * weight : weight;
}
OPWRIGHT_RULE double DivisorOf(Combiner combiner, double sum) {
  return combiner == Combiner::kSqrtN ? std::sqrt(sum) : sum;
}
OPWRIGHT_RULE float ScaleOf(double divisor) {
  return divisor == 0 ? 0.f : static_cast<float>(1 / divisor);
}

// Views of arrays that callers bring, with elements of 32 or 64 bits.
struct Ints {
  const void* data = nullptr;
  bool wide = false;  // int64 if true, int32 if false.
  int64_t size = 0;

  int64_t operator[](int64_t i) const {
    return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};
struct Floats {
  const void* data = nullptr;
  bool wide = false;  // double if true, float if false.
  int64_t size = 0;
};

// The ids of one feature as they are enqueued.
struct Lookups {
  enum class Form {
    // Each row has one id.
    kDense,
    // `where` has the shape [ids, rank] and has the coordinates of each id in the output's
    // shape. If `rank` is one more than the dimensions of that shape, the last coordinate is
    // the id's position within the sample.
    kIndices,
    // `where` has the shape [ids] and has the row of each id.
    kSamples,
    // `where` has the shape [rows + 1]. Row r has the ids from where[r] to where[r + 1] - 1.
    kSplits,
  };
  Form form = Form::kDense;
  Ints where;
  int64_t rank = 0;
  Ints ids;
  Floats weights;  // One for each id. If there are none, all weights are 1.
};

// Ids in the memory of the device that has the tables. The device checks them.
struct DeviceLookups {
  Lookups lookups;
  Combiner combiner = Combiner::kSum;
};

// Which samples of a table's output an input fills, in a num_features configuration. There, the
// output of a table has `stride` samples for each example of the batch. The input fills `count`
// of them, from `first` on: its row r fills sample r / count * stride + first + r % count. If
// `sequence` is not 0, each row is a sequence and fills `sequence` samples, the first of which
// has that number. The id at position p of the row belongs to the sample p places later. Ids
// from position `sequence` on are dropped.
struct Placement {
  int64_t count = 1;
  int64_t stride = 1;
  int64_t first = 0;
  int64_t sequence = 0;
};

// The ids of one feature, grouped by sample. Sample s has indices[offsets[s]] to
// indices[offsets[s + 1] - 1], in the order of the input.
struct Bags {
  int64_t samples = 0;
  std::unique_ptr<int64_t[]> offsets;
  std::unique_ptr<int64_t[]> indices;           // The row of the table for each id.
  std::unique_ptr<float[]> per_sample_weights;  // One for each id. Null if all are 1.
  // One factor for each sample, by which its sum is multiplied. Null if all are 1.
  std::unique_ptr<float[]> scales;
  bool single = false;  // Whether each sample has one id, and all weights and scales are 1.
  Combiner combiner = Combiner::kSum;  // The combiner that `scales` was computed for.
  // The ids if they are in device memory, else null. If this is set, the arrays above are null.
  std::unique_ptr<const DeviceLookups> on_device;

  int64_t count() const {
    if (on_device) return on_device->lookups.ids.size;
    return samples == 0 ? 0 : offsets.get()[samples];
  }
};

struct Batch {
  Mode mode = Mode::kTraining;  // Never kUnspecified.
  std::vector<Bags> features;   // In the order of the configuration's features.
  // Keeps the ids in device memory alive.
  std::shared_ptr<const void> owner;

  bool on_device() const;  // Whether any of its ids are in device memory.
};

// Checks the ids of a feature that the configuration describes, and groups them by sample. If
// `exec` is not null, its threads share the work for many ids. Throws std::bad_alloc.
StatusOr<Bags> MakeBags(const Configuration& configuration, int64_t feature,
                        const Lookups& lookups, Combiner combiner,
                        ExecutionContext* exec = nullptr);

// Returns whether the device can use these ids where they are, in its memory. That requires
// correct sizes, float weights, and rows that are not sequences, because ids beyond the end of
// a sequence must be dropped. If the result is false, the ids are copied to the host, and
// MakeBags accepts or refuses them.
bool CanStayOnDevice(const Configuration& configuration, int64_t feature,
                     const Lookups& lookups);
// Returns the bags of ids that stay in device memory. CanStayOnDevice must be true for these
// ids.
Bags MakeDeviceBags(const Configuration& configuration, int64_t feature, const Lookups& lookups,
                    Combiner combiner);

// MakeBags for num_features configurations. There, a table has one feature, which may have
// several inputs. Checks the ids of all of them, and groups them into the bags of that feature.
// placements[i] says which samples lookups[i] has.
StatusOr<Bags> MakeBags(const Configuration& configuration, int64_t feature,
                        const std::vector<Lookups>& lookups,
                        const std::vector<Placement>& placements, Combiner combiner);

// One id's contribution to the gradient of its row: coefficient * gradient.
struct Contribution {
  const float* gradient;  // The gradient of the id's sample, [dimension].
  float coefficient;
};

}  // namespace opwright::embedding
