// Ids and weights as callers bring them, copied and checked in one pass, in vectors. They
// cannot change after the check. Compiled with the flags of the file that includes this.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "embedding/batch.h"

namespace opwright::embedding {
namespace {

// Whether all ids are rows. They are looked at one by one only to name the one that is wrong.
template <class T>
bool CopyIds(const T* from, int64_t count, int64_t rows, int64_t* to) {
  using Bits = std::make_unsigned_t<T>;
  const Bits last = static_cast<Bits>(
      std::min<int64_t>(rows - 1, std::numeric_limits<T>::max()));  // That an id can name.
  Bits signs = 0;  // Of all ids, and of how far each is below the last one.
  for (int64_t i = 0; i < count; ++i) {
    const T id = from[i];
    to[i] = id;
    const Bits bits = static_cast<Bits>(id);
    signs |= bits | (last - bits);
  }
  return signs >> (8 * sizeof(T) - 1) == 0;
}

// Whether all weights are finite in float32.
template <class T>
bool CopyWeights(const T* from, int64_t count, float* to) {
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<float>(from[i]);
    finite &= std::fabs(to[i]) <= std::numeric_limits<float>::max();
  }
  return finite;
}

// What a combiner divides the sum of ids `first` to `end` by; weights may be null: ones.
inline double DivisorOfIds(Combiner combiner, int64_t first, int64_t end,
                           const float* weights) {
  double sum = 0;
  for (int64_t i = first; i < end; ++i) sum += TermOf(combiner, weights ? weights[i] : 1);
  return DivisorOf(combiner, sum);
}

// What the sum of each sample is multiplied by. Returns the first sample of which a weight
// times that, which its row and gradient are multiplied by, is not finite; or -1.
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
