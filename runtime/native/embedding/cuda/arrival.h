// Ids that lie on the device as they came: what is still made of them there, where the ids of a
// sample begin and what its combiner divides by, and what is found wrong with them. Kernels, as
// in kernels.h.
#pragma once

#include <cstdint>

#include "embedding/batch.h"
#include "embedding/cuda/kernels.h"

namespace opwright::embedding::cuda {

// The ids of one feature.
struct Arrived {
  Source source;
  // Of a sparse one, the sample of each id, with `step` numbers from one to the next: where
  // they begin is still to be found.
  Integers samples;
  int64_t step = 1;
  int64_t* starts = nullptr;  // source.offsets
  // Combiners that divide have factors to be found.
  Combiner combiner = Combiner::kSum;
  float* scales = nullptr;  // source.scales

  OPWRIGHT_RULE int64_t SampleOf(int64_t id) const { return samples[id * step]; }
  // Threads of the two kernels.
  int64_t ToStart() const {
    return !starts ? 0 : source.count > source.samples ? source.count : source.samples + 1;
  }
  int64_t ToWeigh() const { return scales || source.per_sample_weights ? source.samples : 0; }
};

// By halving, so that wherever samples lead, starts rise from 0 to the number of ids; but what
// they say is right only if samples do not descend.
struct FindStarts {
  Spread spread;
  const Arrived* all;
  DeviceErrors* errors;

  OPWRIGHT_RULE int64_t threads() const { return spread.size(); }
  OPWRIGHT_RULE void operator()(int64_t thread, int64_t) const {
    const Arrived& one = all[spread.Enter(&thread)];
    const int64_t count = one.source.count, samples = one.source.samples;
    if (thread < count) {
      const int64_t sample = one.SampleOf(thread);
      const int64_t least = thread == 0 ? 0 : one.SampleOf(thread - 1);
      if (sample < 0 || sample < least || sample >= samples) {
        errors->Record(kBadSample, one.source.number, thread);
      }
    }
    if (thread > samples) return;
    int64_t first = 0, end = count;
    while (first < end) {
      const int64_t middle = first + (end - first) / 2;
      if (one.SampleOf(middle) < thread) {
        first = middle + 1;
      } else {
        end = middle;
      }
    }
    one.starts[thread] = first;
  }
};

// The factor of each sample, and whether it and its weights make finite ones.
struct Weigh {
  Spread spread;
  const Arrived* all;
  DeviceErrors* errors;

  OPWRIGHT_RULE int64_t threads() const { return spread.size(); }
  OPWRIGHT_RULE void operator()(int64_t thread, int64_t) const {
    const Arrived& one = all[spread.Enter(&thread)];
    const Source& source = one.source;
    if (thread >= source.samples) return;
    const Bag bag(source, thread, errors);
    const float* const weights = source.per_sample_weights;
    float scale = 1;
    if (one.scales) {
      double sum = 0;
      for (int64_t i = bag.begin; i < bag.end && weights; ++i) {
        sum += TermOf(one.combiner, weights[i]);
      }
      if (!weights) sum = static_cast<double>(bag.end - bag.begin);
      scale = ScaleOf(DivisorOf(one.combiner, sum));
      one.scales[thread] = scale;
    }
    for (int64_t i = bag.begin; i < bag.end && weights; ++i) {
      if (!IsFinite(scale * weights[i])) errors->Record(kBadWeight, source.number, i);
    }
  }
};

// What was found wrong with a batch, the update that it is part of takes over: there its
// sources are numbered from `first` on.
struct TakeOver {
  const DeviceErrors* found;
  int64_t first;
  DeviceErrors* errors;

  OPWRIGHT_RULE int64_t threads() const { return kErrorKinds; }
  OPWRIGHT_RULE void operator()(int64_t kind, int64_t) const {
    const unsigned long long one = found->first[kind];
    if (one != DeviceErrors::kNone) {
      AtomicMin(&errors->first[kind], one + (static_cast<unsigned long long>(first) << 48));
    }
  }
};

}  // namespace opwright::embedding::cuda
