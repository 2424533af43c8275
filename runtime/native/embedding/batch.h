// What one core looks up in one step: the ids of each feature, checked and grouped by sample.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "embedding/spec.h"

namespace opwright::embedding {

enum class Combiner { kSum, kMean, kSqrtN };

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

// Where the rows of an input go in the legacy form, where the features of a table share an
// output: row r becomes sample r / count * stride + first + r % count, and the p-th id of
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
  std::unique_ptr<float[]> scales;  // By sample, what the combiner divides by; null: ones.

  int64_t count() const { return samples == 0 ? 0 : offsets.get()[samples]; }
};

struct Batch {
  Mode mode = Mode::kTraining;  // Never kUnspecified.
  std::vector<Bags> features;   // As in the configuration.
};

// The bags of a described feature. Throws std::bad_alloc.
StatusOr<Bags> MakeBags(const Configuration& configuration, int64_t feature,
                        const Lookups& lookups, Combiner combiner);

// The bags of a table's only feature in the legacy form, from several inputs.
StatusOr<Bags> MakeBags(const Configuration& configuration, int64_t feature,
                        const std::vector<Lookups>& lookups,
                        const std::vector<Placement>& placements, Combiner combiner);

// What one id of a batch adds to the gradient of its row.
struct Contribution {
  const float* gradient;  // Of the sample that the id is in: [dimension].
  float coefficient;
};

}  // namespace opwright::embedding
