// The ids of all features in one piece, as other libraries pack them: a lookup that is no part
// of a step, and may have any number of samples.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/checked.h"
#include "embedding/batch.h"

namespace opwright::embedding {

// Bag s of feature f is number f * samples + s.
struct PackedBags {
  int64_t samples = 0;  // Of each feature.
  Ints row_splits;      // One more than bags; or none: one id a bag.
  Ints ids;
  const float* weights = nullptr;   // As many as ids; or null: ones.
  std::vector<Combiner> combiners;  // By table; or none: sums.

  Combiner combiner(int64_t table) const;
  // As many ids, if the row splits are right; else anything from 0 to all.
  int64_t count(int64_t feature) const;
};

// Finds out how many samples there are, or why the sizes do not fit each other or what is
// configured.
Status CountSamples(const Configuration& configuration, int64_t weights, PackedBags* bags);

// Some bags of one feature, copied and checked, which cannot change after the check.
class UnpackedBags {
 public:
  // Throws std::bad_alloc. False: something is wrong with them, which WhyNot says.
  bool Take(const Configuration& configuration, const PackedBags& bags, int64_t feature,
            int64_t first, int64_t end);

  // By sample, one more, and by id, as in Bags. Offsets are null if each sample has one id and
  // all else is ones.
  const int64_t* offsets() const { return split_ ? offsets_.get() : nullptr; }
  const int64_t* indices() const { return indices_.get(); }
  const float* per_sample_weights() const { return weighted_ ? weights_.get() : nullptr; }
  const float* scales() const { return scaled_ ? scales_.get() : nullptr; }

 private:
  // What was made for a part serves the next ones.
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

// What is wrong with bags that were not taken.
Status WhyNot(const Configuration& configuration, const PackedBags& bags);

}  // namespace opwright::embedding
