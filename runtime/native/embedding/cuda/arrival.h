// Kernels for ids that are in device memory already when they are enqueued. The kernels compute
// where the ids of each sample begin, compute the scales of combiners, and check the ids. They
// are objects like the kernels of kernels.h.
#pragma once

#include <cstdint>

#include "embedding/batch.h"
#include "embedding/cuda/kernels.h"

namespace opwright::embedding::cuda {

// The ids of one feature.
struct Arrived {
  Source source;
  // For a sparse feature: the sample of id i is samples[i * step], because `samples` may be a
  // column of a matrix. The kernel FindStarts computes where the ids of each sample begin.
  Integers samples;
  int64_t step = 1;
  int64_t* starts = nullptr;  // The address that source.offsets reads. FindStarts writes it.
  // For combiners with a divisor, the kernel Weigh computes the scales.
  Combiner combiner = Combiner::kSum;
  float* scales = nullptr;  // The address that source.scales reads. Weigh writes it.

  OPWRIGHT_RULE int64_t SampleOf(int64_t id) const { return samples[id * step]; }
  // ToStart and ToWeigh return the numbers of threads of the kernels FindStarts and Weigh.
  int64_t ToStart() const {
    return !starts ? 0 : source.count > source.samples ? source.count : source.samples + 1;
  }
  int64_t ToWeigh() const { return scales || source.per_sample_weights ? source.samples : 0; }
};

// Finds where each sample's ids begin, by binary search. The starts are correct only if samples
// do not descend, which this kernel also checks. Otherwise the starts still ascend and are
// between 0 and the number of ids, so later kernels stay within their arrays.
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

// Computes the scale of each sample. Checks that the products of scales and weights are finite.
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

// Adds the errors of a batch to the errors of its update. In the update, source 0 of the batch
// has the number `first`.
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
