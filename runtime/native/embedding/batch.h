// What one core looks up in one step: the ids of each feature, checked and grouped by sample.
#pragma once

#include <cmath>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/execution_context.h"
#include "embedding/spec.h"

namespace opwright::embedding {

enum class Combiner { kSum, kMean, kSqrtN };

// What a combiner divides by: of a sum of what each weight of a sample adds to it. And the
// factor that comes of that.
OPWRIGHT_RULE double TermOf(Combiner combiner, double weight) {
  return combiner == Combiner::kSqrtN ? weight * weight : weight;
}
OPWRIGHT_RULE double DivisorOf(Combiner combiner, double sum) {
  return combiner == Combiner::kSqrtN ? std::sqrt(sum) : sum;
}
OPWRIGHT_RULE float ScaleOf(double divisor) {
  return divisor == 0 ? 0.f : static_cast<float>(1 / divisor);
}

// Views of what callers bring, in either of the widths that they may use.
struct Ints {
  const void* data = nullptr;
  bool wide = false;  // int64, else int32.
  int64_t size = 0;

  int64_t operator[](int64_t i) const {
    return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};
struct Floats {
  const void* data = nullptr;
  bool wide = false;  // double, else float.
  int64_t size = 0;
};

// The ids of one feature as they are enqueued.
struct Lookups {
  enum class Form {
    kDense,    // One id a row.
    kIndices,  // `where` is [ids, rank]: the coordinates of each id; the last one is only
               // its place within a sample where the others name the sample already.
    kSamples,  // `where` is [ids]: the row of each id.
    kSplits,   // `where` is [rows + 1]: row r has the ids from where[r] to where[r + 1].
  };
  Form form = Form::kDense;
  Ints where;
  int64_t rank = 0;
  Ints ids;
  Floats weights;  // As many as ids, or none: ones.
};

// Ids in the memory of the device that the tables lie on, for the device to check.
struct DeviceLookups {
  Lookups lookups;
  Combiner combiner = Combiner::kSum;
};

// Where the rows of an input go in a num_features configuration, where the features of a table
// share an output. Row r becomes sample r / count * stride + first + r % count. The p-th id of
// a row in a sequence of `sequence` goes p samples further.
struct Placement {
  int64_t count = 1;
  int64_t stride = 1;
  int64_t first = 0;
  int64_t sequence = 0;
};

// Sample s has indices[offsets[s]] ... indices[offsets[s + 1] - 1], in the order in which they
// came.
struct Bags {
  int64_t samples = 0;
  std::unique_ptr<int64_t[]> offsets;
  std::unique_ptr<int64_t[]> indices;           // Rows of the table.
  std::unique_ptr<float[]> per_sample_weights;  // By index; null: ones.
  std::unique_ptr<float[]> scales;     // By sample, what the combiner divides by; null: ones.
  bool single = false;                 // Every sample has one id, and all else is ones.
  Combiner combiner = Combiner::kSum;  // That made the scales.
  // Not null: the ids are on the device alone, and the host has none of the arrays above.
  std::unique_ptr<const DeviceLookups> on_device;

  int64_t count() const {
    if (on_device) return on_device->lookups.ids.size;
    return samples == 0 ? 0 : offsets.get()[samples];
  }
};

struct Batch {
  Mode mode = Mode::kTraining;  // Never kUnspecified.
  std::vector<Bags> features;   // As in the configuration.
  // Keeps alive what lies on the device.
  std::shared_ptr<const void> owner;

  bool on_device() const;  // Some of its ids.
};

// The bags of a described feature, of whose ids threads share many, if there are some. Throws
// std::bad_alloc.
StatusOr<Bags> MakeBags(const Configuration& configuration, int64_t feature,
                        const Lookups& lookups, Combiner combiner,
                        ExecutionContext* exec = nullptr);

// Whether a device can take ids of a described feature as they lie there: they are as many as
// they should be, and none is dropped, as those are that lie beyond the end of a sequence.
// What cannot be taken, MakeBags makes or refuses where the host can read it.
bool CanStayOnDevice(const Configuration& configuration, int64_t feature,
                     const Lookups& lookups);
// The bags of such ids.
Bags MakeDeviceBags(const Configuration& configuration, int64_t feature, const Lookups& lookups,
                    Combiner combiner);

// The bags of a table's only feature in a num_features configuration, from several inputs.
StatusOr<Bags> MakeBags(const Configuration& configuration, int64_t feature,
                        const std::vector<Lookups>& lookups,
                        const std::vector<Placement>& placements, Combiner combiner);

// What one id of a batch adds to the gradient of its row.
struct Contribution {
  const float* gradient;  // Of the sample that the id is in: [dimension].
  float coefficient;
};

}  // namespace opwright::embedding
