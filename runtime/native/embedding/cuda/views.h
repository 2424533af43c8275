// The data that kernels read and write: tables, sources and bags in device memory. Also the
// columns of a row that belong to a thread.
#pragma once

#include <cstdint>
#include <cstring>

#include "embedding/batch.h"
#include "embedding/cuda/device_errors.h"
#include "embedding/cuda/plan.h"
#include "embedding/optimizers.h"

namespace opwright::embedding::cuda {

// Unrolls a loop. An array that the loop indexes can then stay in registers, and several loads
// can be in flight.
#if defined(__CUDA_ARCH__)
#define OPWRIGHT_PRAGMA(x) _Pragma(#x)
#define OPWRIGHT_UNROLL(n) OPWRIGHT_PRAGMA(unroll n)
#else
#define OPWRIGHT_UNROLL(n)
#endif

OPWRIGHT_RULE int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }
OPWRIGHT_RULE uint32_t BitsOf(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
#endif
}
OPWRIGHT_RULE bool IsFinite(float x) { return Within(Range::kFinite, BitsOf(x)); }

// Prefetches data that will be read soon.
OPWRIGHT_RULE void Prefetch(const float* at) {
#if defined(__CUDA_ARCH__)
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#else
  __builtin_prefetch(at);
#endif
}

// A compiler barrier. The compiler loads fields of descriptors again after it, and so does not
// keep them in registers.
OPWRIGHT_RULE void LoadHere() {
#if defined(__CUDA_ARCH__)
  asm volatile("" ::: "memory");
#endif
}

// The rows of a table in device memory.
struct Rows {
  float* const* chunks = nullptr;  // The array of addresses is in device memory too.
  int64_t rows = 0, stride = 0;
  int shift = 0;

  OPWRIGHT_RULE float* operator[](int64_t row) const {
    return chunks[row >> shift] + (row & ((int64_t{1} << shift) - 1)) * stride;
  }
};

// The properties of a table that lookups and updates read.
struct TableView {
  Rows rows;
  Shape shape = {};
  // The key of the table's first row. Keys number the rows of all tables consecutively.
  int64_t first_key = 0;
  bool quantized = false;
  // For a quantized table: the limits, and the size of a bucket.
  float lower = 0, upper = 0, size = 0;
};

// The distribution of a kernel's threads over parts. A part is the threads of one source or
// table, and parts follow one another.
struct Spread {
  // The first thread of each part, [parts + 1], in device memory.
  const int64_t* first = nullptr;
  int64_t parts = 0;
  // The first thread of the first part, and the end of the last part.
  int64_t begin = 0, end = 0;

  OPWRIGHT_RULE int64_t size() const { return end - begin; }
  // Returns the part of thread `*i`, which is below size(). Replaces `*i` by the thread's
  // number within the part.
  OPWRIGHT_RULE int64_t Enter(int64_t* i) const {
    *i += begin;
    int64_t part = 0, beyond = parts;
    while (beyond - part > 1) {
      const int64_t middle = part + (beyond - part) / 2;
      (first[middle] <= *i ? part : beyond) = middle;
    }
    *i -= first[part];
    return part;
  }
};

// ThreadsOf returns the number of threads of a part with `rows` rows. The first threads process
// all rows at the first block of columns, the next threads at the second block, and so on.
// Enter sets the block of a thread and its number within the block. It returns false if the
// thread has no work.
OPWRIGHT_RULE int64_t ThreadsOf(const Shape& shape, int64_t rows) {
  return (rows << shape.lane_bits) * shape.blocks;
}
OPWRIGHT_RULE bool Enter(const Shape& shape, int64_t rows, int64_t* thread, int64_t* block) {
  const int64_t all = rows << shape.lane_bits;
  *block = shape.blocks == 1 ? 0 : *thread / all;
  *thread -= *block * all;
  return *thread < all && *block < shape.blocks;
}

OPWRIGHT_RULE bool Aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0;
}

// The columns of a row that belong to a thread. If kWide, they are kFloats adjacent columns
// that are aligned for one load. Otherwise the distance between two columns is the number of
// lanes.
template <bool kWide>
struct Columns {
  int64_t first, dimension;
  int step;

  OPWRIGHT_RULE Columns(const Shape& shape, int64_t thread, int64_t block)
      : dimension(shape.dimension) {
    const int64_t lane = thread & (shape.lanes() - 1);
    step = kWide ? 1 : static_cast<int>(shape.lanes());
    first = (block << shape.lane_bits) * kFloats + (kWide ? lane * kFloats : lane);
  }
  OPWRIGHT_RULE bool any() const { return first < dimension; }
  OPWRIGHT_RULE bool has(int k) const { return kWide || first + k * step < dimension; }
};

template <class X>
struct alignas(4 * sizeof(X) < 16 ? 4 * sizeof(X) : 16) Four {
  X x[kFloats];
};

// Get reads a thread's columns. columns.any() must be true. Columns beyond the last one are
// zero.
template <bool kWide, class X>
OPWRIGHT_RULE Four<X> Get(const Columns<kWide>& columns, const X* row) {
  Four<X> four;
  if constexpr (kWide) {
    four = *reinterpret_cast<const Four<X>*>(row + columns.first);
  } else {
    OPWRIGHT_UNROLL(4)
    for (int k = 0; k < kFloats; ++k) {
      four.x[k] = columns.has(k) ? row[columns.first + k * columns.step] : X(0);
    }
  }
  return four;
}
template <bool kWide, class X>
OPWRIGHT_RULE void Put(const Columns<kWide>& columns, X* row, const Four<X>& four) {
  if constexpr (kWide) {
    *reinterpret_cast<Four<X>*>(row + columns.first) = four;
  } else {
    OPWRIGHT_UNROLL(4)
    for (int k = 0; k < kFloats; ++k) {
      if (columns.has(k)) row[columns.first + k * columns.step] = four.x[k];
    }
  }
}

// An array of int32 or, if `wide`, of int64.
struct Integers {
  const void* data = nullptr;
  bool wide = false;

  OPWRIGHT_RULE int64_t operator[](int64_t i) const {
    return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};

// The ids of one feature in a call. It is the equivalent of Bags (embedding/batch.h) in device
// memory.
struct Source {
  int64_t number = 0;  // The number that errors report.
  int64_t table = 0;
  int64_t samples = 0, count = 0;
  Integers offsets;  // [samples + 1], or null if each sample has one id.
  Integers indices;  // [count]
  const float* per_sample_weights = nullptr;  // [count], or null if all weights are 1.
  const float* scales = nullptr;              // [samples], or null if all scales are 1.
  const float* gradients = nullptr;           // Only for an update: [samples, dimension].
};

// The range of a sample's ids. If its offsets are invalid, the constructor records an error and
// the range is empty.
struct Bag {
  int64_t begin, end;

  OPWRIGHT_RULE Bag(const Source& source, int64_t sample, DeviceErrors* errors)
      : begin(sample), end(sample + 1) {
    if (!source.offsets.data) return;
    begin = source.offsets[sample];
    end = source.offsets[sample + 1];
    const bool bad = begin < 0 || end < begin || end > source.count ||
                     (sample == 0 && begin != 0) ||
                     (sample == source.samples - 1 && end != source.count);
    if (bad) {
      errors->Record(kBadOffset, source.number, sample);
      begin = end = 0;
    }
  }
};

}  // namespace opwright::embedding::cuda
