// Packed bags: the ids of all features in one array, as other libraries pack them. They are
// looked up outside of steps, with any number of samples.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/checked.h"
#include "embedding/batch.h"

namespace opwright::embedding {

// Bag s of feature f has the number f * samples + s.
struct PackedBags {
  int64_t samples = 0;  // The number of bags of each feature.
  Ints row_splits;      // [bags + 1]. If it is empty, each bag has one id.
  Ints ids;
  const float* weights = nullptr;   // One for each id. If it is null, all weights are 1.
  std::vector<Combiner> combiners;  // One for each table. If it is empty, all are kSum.

  Combiner combiner(int64_t table) const;
  // The number of ids of a feature. If the row splits are wrong, it is any number up to that of
  // all ids.
  int64_t count(int64_t feature) const;
};

// Sets `bags->samples`. Returns an error if the sizes do not fit each other or the
// configuration.
Status CountSamples(const Configuration& configuration, int64_t weights, PackedBags* bags);

// A checked copy of some bags of one feature. The copy cannot change after the check.
class UnpackedBags {
 public:
  // Copies and checks bags `first` to `end` of a feature. Returns false if something is wrong
  // with them; WhyNot then finds out what. Throws std::bad_alloc.
  bool Take(const Configuration& configuration, const PackedBags& bags, int64_t feature,
            int64_t first, int64_t end);

  // The arrays are those of Bags. `offsets` is null if the bags have no row splits and all
  // weights and scales are 1. Each sample then has one id.
  const int64_t* offsets() const { return split_ ? offsets_.get() : nullptr; }
  const int64_t* indices() const { return indices_.get(); }
  const float* per_sample_weights() const { return weighted_ ? weights_.get() : nullptr; }
  const float* scales() const { return scaled_ ? scales_.get() : nullptr; }

 private:
  // An array that later calls of Take reuse. It grows when a call needs more elements.
  template <class T>
  class Kept {
   public:
    T* For(int64_t count) {
      if (count > size_) {
        size_ = 0;
        data_ = Uninitialized<T>(count);
        size_ = count;
      }
      return data_.get();
    }
    T* get() const { return data_.get(); }

   private:
    std::unique_ptr<T[]> data_;
    int64_t size_ = 0;
  };

  bool TakeOffsets(const PackedBags& bags, int64_t first, int64_t samples, int64_t* begin,
                   int64_t* count);

  Kept<int64_t> offsets_, indices_;
  Kept<float> weights_, scales_;
  bool split_ = false, weighted_ = false, scaled_ = false;
};

// The error in bags for which Take returned false.
Status WhyNot(const Configuration& configuration, const PackedBags& bags);

}  // namespace opwright::embedding
