// Loops that copy callers' ids and weights and check the copies in the same pass. Compilers
// vectorize these loops. A caller may change its arrays later, but not the checked copies. The
// loops are compiled with the flags of the including file.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "embedding/batch.h"

namespace opwright::embedding {
namespace {

// Copies ids, and returns whether all of them are rows of the table. The result does not
// identify a wrong id: callers search for it only when the check fails.
template <class T>
bool CopyIds(const T* from, int64_t count, int64_t rows, int64_t* to) {
  using Bits = std::make_unsigned_t<T>;
  // The last row that a value of type T can be.
  const Bits last =
      static_cast<Bits>(std::min<int64_t>(rows - 1, std::numeric_limits<T>::max()));
  Bits signs = 0;  // Its top bit is set if any `id` or any `last - id` is negative.
  for (int64_t i = 0; i < count; ++i) {
    const T id = from[i];
    to[i] = id;
    const Bits bits = static_cast<Bits>(id);
    signs |= bits | (last - bits);
  }
  return signs >> (8 * sizeof(T) - 1) == 0;
}

// Copies weights, and returns whether all of them are finite in float32.
template <class T>
bool CopyWeights(const T* from, int64_t count, float* to) {
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<float>(from[i]);
    finite &= std::fabs(to[i]) <= std::numeric_limits<float>::max();
  }
  return finite;
}

// The number that a combiner divides the sum of ids `first` to `end` by. If `weights` is null,
// all weights are 1.
inline double DivisorOfIds(Combiner combiner, int64_t first, int64_t end,
                           const float* weights) {
  double sum = 0;
  for (int64_t i = first; i < end; ++i) sum += TermOf(combiner, weights ? weights[i] : 1);
  return DivisorOf(combiner, sum);
}

// Fills `scales` with the factor that each sample's sum is multiplied by. A row and its
// gradient are multiplied by scale * weight. Returns the first sample where scale * weight is
// not finite, or -1.
inline int64_t FillScales(Combiner combiner, int64_t samples, const int64_t* offsets,
                          const float* weights, float* scales) {
  for (int64_t s = 0; s < samples; ++s) {
    scales[s] = ScaleOf(DivisorOfIds(combiner, offsets[s], offsets[s + 1], weights));
    if (!weights) continue;
    bool finite = std::isfinite(scales[s]);
    for (int64_t i = offsets[s]; i < offsets[s + 1]; ++i) {
      finite &= std::isfinite(scales[s] * weights[i]);
    }
    if (!finite) return s;
  }
  return -1;
}

}  // namespace
}  // namespace opwright::embedding
