// What the kernels read and write: tables, sources and bags in device memory, and the columns
// of a row that are a thread's.
#pragma once

#include <cstdint>
#include <cstring>

#include "embedding/batch.h"
#include "embedding/cuda/device_errors.h"
#include "embedding/cuda/plan.h"
#include "embedding/optimizers.h"

namespace opwright::embedding::cuda {

// Loops that leave arrays in registers, or loads under way.
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

// For what will be read soon.
OPWRIGHT_RULE void Prefetch(const float* at) {
#if defined(__CUDA_ARCH__)
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#else
  __builtin_prefetch(at);
#endif
}

// What descriptors say is loaded again behind this, and not kept in registers meanwhile.
OPWRIGHT_RULE void LoadHere() {
#if defined(__CUDA_ARCH__)
  asm volatile("" ::: "memory");
#endif
}

// A table in device memory.
struct Rows {
  float* const* chunks = nullptr;  // In device memory, too.
  int64_t rows = 0, stride = 0;
  int shift = 0;

  OPWRIGHT_RULE float* operator[](int64_t row) const {
    return chunks[row >> shift] + (row & ((int64_t{1} << shift) - 1)) * stride;
  }
};

// What lookups and updates know of a table.
struct TableView {
  Rows rows;
  Shape shape = {};
  int64_t first_key = 0;  // Of its first row, where the rows of all tables are numbered.
  bool quantized = false;
  float lower = 0, upper = 0, size = 0;  // Of a quantization: its limits and a bucket's size.
};

// Parts, one behind the other: the threads of each source or table in a kernel of all.
struct Spread {
  const int64_t* first = nullptr;  // [parts + 1], in device memory.
  int64_t parts = 0;
  int64_t begin = 0, end = 0;  // Of the first part and of the last.

  OPWRIGHT_RULE int64_t size() const { return end - begin; }
  // The part that `i` of size() is in; `i` becomes its place there.
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

// The threads of a part that has so many rows to read or write: all at one block of columns,
// then all at the next. Such a thread's number becomes that within its block; false: there is
// nothing for it.
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

// The columns of a row that are a thread's: kFloats side by side if they are aligned for one
// load (kWide), else as many apart as there are lanes.
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

// Columns of a row that any() of is true; zero beyond the last one.
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

// int32 or int64.
struct Integers {
  const void* data = nullptr;
  bool wide = false;

  OPWRIGHT_RULE int64_t operator[](int64_t i) const {
    return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};

// What a call has of one feature: Bags (embedding/batch.h) in device memory.
struct Source {
  int64_t number = 0;  // As errors name it.
  int64_t table = 0;
  int64_t samples = 0, count = 0;
  Integers offsets;                           // [samples + 1], or null: an id a sample.
  Integers indices;                           // [count]
  const float* per_sample_weights = nullptr;  // [count], or null: ones.
  const float* scales = nullptr;              // [samples], or null: ones.
  const float* gradients = nullptr;           // Of an update: [samples, dimension].
};

// The ids of a sample. Offsets that lead nowhere are recorded, and the sample has none then.
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
