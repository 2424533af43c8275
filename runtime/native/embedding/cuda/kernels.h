// The kernels: what one thread of each does, as plain functions without a warp's or a block's
// help. tables.cu compiles them for GPUs; the tests on the CPU run them thread by thread.
//
// A kernel is an object: threads() says how many threads it wants, and operator()(thread,
// block) is one of them at one block of columns. Threads that share a row are neighbours, so
// that they read it together.
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

// A table in device memory.
struct Rows {
  float* chunks[kMaxChunks];
  int64_t rows, stride;
  int shift;

  OPWRIGHT_RULE float* operator[](int64_t row) const {
    return chunks[row >> shift] + (row & ((int64_t{1} << shift) - 1)) * stride;
  }
};

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

// What a call has of one feature: Bags (embedding/batch.h) in device memory.
struct Source {
  int64_t number = 0;  // As errors name it.
  int64_t samples = 0, count = 0;
  const int64_t* offsets = nullptr;           // [samples + 1]
  const int64_t* indices = nullptr;           // [count]
  const float* per_sample_weights = nullptr;  // [count], or null: ones.
  const float* scales = nullptr;              // [samples], or null: ones.
  const float* gradients = nullptr;           // Of an update: [samples, dimension].
};

// The ids of a sample. Offsets that lead nowhere are recorded, and the sample has none then.
struct Bag {
  int64_t begin, end;

  OPWRIGHT_RULE Bag(const Source& source, int64_t sample, DeviceErrors* errors)
      : begin(source.offsets[sample]), end(source.offsets[sample + 1]) {
    const bool bad = begin < 0 || end < begin || end > source.count ||
                     (sample == 0 && begin != 0) ||
                     (sample == source.samples - 1 && end != source.count);
    if (bad) {
      errors->Record(kBadOffset, source.number, sample);
      begin = end = 0;
    }
  }
};

// out[s] = scale * sum of weight * row, as embedding/cpu/rows.h has it, with float sums in
// the order of the ids. An id that is out of range is recorded and adds nothing.
template <bool kWide, bool kQuantized>
struct Lookup {
  static constexpr int kAhead = 4;  // Rows loaded at once.
  Rows rows;
  Shape shape;
  Source source;
  float lower = 0, upper = 0, size = 0;  // Of a quantization: its limits and a bucket's size.
  float* out;
  DeviceErrors* errors;

  OPWRIGHT_RULE int64_t threads() const { return source.samples << shape.lane_bits; }
  OPWRIGHT_RULE void operator()(int64_t thread, int64_t block) const {
    const int64_t sample = thread >> shape.lane_bits;
    const Columns<kWide> columns(shape, thread, block);
    if (!columns.any()) return;
    const Bag bag(source, sample, errors);
    Four<float> sum = {};
    for (int64_t i = bag.begin; i < bag.end; i += kAhead) {
      Four<float> row[kAhead] = {};
      float weight[kAhead] = {};
      OPWRIGHT_UNROLL(4)
      for (int j = 0; j < kAhead; ++j) {
        if (i + j >= bag.end) continue;
        const int64_t id = source.indices[i + j];
        if (id < 0 || id >= rows.rows) {
          errors->Record(kBadId, source.number, i + j);
          continue;
        }
        weight[j] = source.per_sample_weights ? source.per_sample_weights[i + j] : 1.f;
        row[j] = Get(columns, static_cast<const float*>(rows[id]));
      }
      OPWRIGHT_UNROLL(4)
      for (int j = 0; j < kAhead; ++j) {
        OPWRIGHT_UNROLL(4)
        for (int k = 0; k < kFloats; ++k) sum.x[k] += weight[j] * Read(row[j].x[k]);
      }
    }
    const float scale = source.scales ? source.scales[sample] : 1.f;
    OPWRIGHT_UNROLL(4)
    for (int k = 0; k < kFloats; ++k) sum.x[k] *= scale;
    Put(columns, out + sample * shape.dimension, sum);
  }

  OPWRIGHT_RULE float Read(float x) const {
    if (!kQuantized) return x;
    x = rules::Between(lower, upper, x);
    return rules::Min(upper, floorf((x - lower) / size + 0.5f) * size + lower);
  }
};

// Whether all of a source's gradients are finite, or other values within a range.
template <bool kWide>
struct CheckValues {
  const float* values;
  int64_t count;
  int64_t number;  // Of the source.
  DeviceErrors* errors;
  Range range = Range::kFinite;
  ErrorKind kind = kBadGradient;

  OPWRIGHT_RULE int64_t threads() const { return (count + kFloats - 1) / kFloats; }
  OPWRIGHT_RULE void operator()(int64_t thread, int64_t) const {
    const int64_t first = thread * kFloats;
    Four<float> four = {};
    if (kWide && first + kFloats <= count) {
      four = *reinterpret_cast<const Four<float>*>(values + first);
    } else {
      OPWRIGHT_UNROLL(4)
      for (int k = 0; k < kFloats; ++k) {
        if (first + k < count) four.x[k] = values[first + k];
      }
    }
    OPWRIGHT_UNROLL(4)
    for (int k = 0; k < kFloats; ++k) {
      if (!Within(range, BitsOf(four.x[k]))) errors->Record(kind, number, first + k);
    }
  }
};

// The rows of a batch's ids, in as many bits as the table needs.
struct Keys {
  void* data;
  bool wide;

  OPWRIGHT_RULE int64_t operator[](int64_t i) const {
    return wide ? static_cast<int64_t>(static_cast<const uint64_t*>(data)[i])
                : static_cast<int64_t>(static_cast<const uint32_t*>(data)[i]);
  }
  OPWRIGHT_RULE void Set(int64_t i, int64_t row) const {
    if (wide) {
      static_cast<uint64_t*>(data)[i] = static_cast<uint64_t>(row);
    } else {
      static_cast<uint32_t*>(data)[i] = static_cast<uint32_t>(row);
    }
  }
};

// Checks the ids of a source and says of each what it adds to its row.
struct Expand {
  Source source;
  int64_t position;  // Of the source's first id.
  int64_t rows, dimension;
  int lane_bits;
  Keys keys;
  uint32_t* positions;
  Contribution* contributions;
  uint32_t* touched;  // By row, a bit; or null.
  DeviceErrors* errors;

  OPWRIGHT_RULE int64_t threads() const { return source.samples << lane_bits; }
  OPWRIGHT_RULE void operator()(int64_t thread, int64_t) const {
    const int64_t sample = thread >> lane_bits;
    const int64_t lanes = int64_t{1} << lane_bits;
    const Bag bag(source, sample, errors);
    const float scale = source.scales ? source.scales[sample] : 1.f;
    for (int64_t i = bag.begin + (thread & (lanes - 1)); i < bag.end; i += lanes) {
      const int64_t id = source.indices[i];
      const float coefficient =
          source.per_sample_weights ? scale * source.per_sample_weights[i] : scale;
      if (!IsFinite(coefficient)) errors->Record(kBadWeight, source.number, i);
      if (id < 0 || id >= rows) {
        errors->Record(kBadId, source.number, i);
        continue;
      }
      const int64_t at = position + i;
      keys.Set(at, id);
      positions[at] = static_cast<uint32_t>(at);
      contributions[at] = {source.gradients + sample * dimension, coefficient};
      if (touched) {
        const uint32_t bit = uint32_t{1} << (id % 32);
#if defined(__CUDA_ARCH__)
        atomicOr(&touched[id / 32], bit);
#else
        touched[id / 32] |= bit;
#endif
      }
    }
  }
};

// A thread's columns of a row while it is updated.
template <class Rule, bool kWide>
struct Held {
  using F = typename Rule::F;
  static constexpr int kParts = 1 + Rule::kSlots;
  F x[kParts][kFloats];

  OPWRIGHT_RULE Held(const Columns<kWide>& columns, const float* row) {
    OPWRIGHT_UNROLL(4)
    for (int p = 0; p < kParts; ++p) {
      const Four<float> four = Get(columns, row + p * columns.dimension);
      OPWRIGHT_UNROLL(4)
      for (int k = 0; k < kFloats; ++k) x[p][k] = four.x[k];
    }
  }
  // A table holds floats, so each update starts from floats.
  template <class G>
  OPWRIGHT_RULE void Update(const Step<Rule>& step, const G (&gradient)[kFloats]) {
    OPWRIGHT_UNROLL(4)
    for (int k = 0; k < kFloats; ++k) {
      F slots[kParts];
      OPWRIGHT_UNROLL(4)
      for (int p = 1; p < kParts; ++p) slots[p - 1] = x[p][k];
      step(static_cast<F>(gradient[k]), x[0][k], slots);
      x[0][k] = static_cast<float>(x[0][k]);
      OPWRIGHT_UNROLL(4)
      for (int p = 1; p < kParts; ++p) x[p][k] = static_cast<float>(slots[p - 1]);
    }
  }
  OPWRIGHT_RULE void Store(const Columns<kWide>& columns, float* row) const {
    OPWRIGHT_UNROLL(4)
    for (int p = 0; p < kParts; ++p) {
      Four<float> four;
      OPWRIGHT_UNROLL(4)
      for (int k = 0; k < kFloats; ++k) four.x[k] = static_cast<float>(x[p][k]);
      Put(columns, row + p * columns.dimension, four);
    }
  }
};

// An update's ids, sorted by row and in the order of the batch within each: runs of equal
// rows, cut into tiles.
struct Sorted {
  Rows rows;
  Shape shape;
  Keys keys;
  const uint32_t* positions;
  const Contribution* contributions;
  int64_t count, tile, tiles;
  // By tile two sums of gradients: of the run that comes from the tile before, and of the
  // one that begins here and goes on in the next tile.
  double* partials;  // [tiles, 2, dimension]
  // Tiles where such a run begins: short ones from the front, long ones from the back.
  int32_t* crossing;   // [tiles]
  uint32_t* counters;  // [2]: how many of each.
  const DeviceErrors* errors;

  OPWRIGHT_RULE Contribution At(int64_t i) const { return contributions[positions[i]]; }
  OPWRIGHT_RULE double* Partial(int64_t t, int which) const {
    return partials + (2 * t + which) * shape.dimension;
  }
  OPWRIGHT_RULE void Cross(int64_t t, int64_t row) const {
    const int64_t far = (t + kShortTiles) * tile;
    const bool is_long = far < count && keys[far] == row;
#if defined(__CUDA_ARCH__)
    const int64_t n = atomicAdd(&counters[is_long], 1u);
#else
    const int64_t n = counters[is_long]++;
#endif
    crossing[is_long ? tiles - 1 - n : n] = static_cast<int32_t>(t);
  }
  // The last tile of a run that begins in tile t and goes on.
  OPWRIGHT_RULE int64_t LastTile(int64_t t) const {
    const int64_t row = keys[(t + 1) * tile];
    int64_t last = t + 1, beyond = tiles;
    while (beyond - last > 1) {
      const int64_t middle = last + (beyond - last) / 2;
      (keys[middle * tile] == row ? last : beyond) = middle;
    }
    return last;
  }
};

// Sums the gradients of each run, and updates the rows whose runs lie within a tile.
template <class Rule, bool kWide>
struct UpdateTiles {
  Sorted sorted;
  Step<Rule> step;

  OPWRIGHT_RULE int64_t threads() const {
    return sorted.errors->any() ? 0 : sorted.tiles << sorted.shape.lane_bits;
  }
  OPWRIGHT_RULE void operator()(int64_t thread, int64_t block) const {
    const Columns<kWide> columns(sorted.shape, thread, block);
    if (!columns.any()) return;
    const int64_t t = thread >> sorted.shape.lane_bits;
    const int64_t begin = t * sorted.tile;
    const int64_t end = Min(begin + sorted.tile, sorted.count);
    int64_t row = sorted.keys[begin];
    bool before = begin > 0 && sorted.keys[begin - 1] == row;
    // Gradients are loaded one id ahead, and where they are, two.
    Contribution next = sorted.At(begin);
    Four<float> gradient = Get(columns, next.gradient);
    float coefficient = next.coefficient;
    if (begin + 1 < end) next = sorted.At(begin + 1);
    double sum[kFloats] = {};
    for (int64_t i = begin; i < end; ++i) {
      const Four<float> g = gradient;
      const float c = coefficient;
      const int64_t next_row = i + 1 < sorted.count ? sorted.keys[i + 1] : -1;
      if (i + 1 < end) {
        gradient = Get(columns, next.gradient);
        coefficient = next.coefficient;
        if (next_row != row) {
          const float* const ahead = sorted.rows[next_row] + columns.first;
          OPWRIGHT_UNROLL(4)
          for (int p = 0; p <= Rule::kSlots; ++p) Prefetch(ahead + p * columns.dimension);
        }
      }
      if (i + 2 < end) next = sorted.At(i + 2);
      OPWRIGHT_UNROLL(4)
      for (int k = 0; k < kFloats; ++k) sum[k] += static_cast<double>(c) * g.x[k];
      const bool goes_on = next_row == row;
      if (goes_on && i + 1 < end) continue;
      if (before || goes_on) {
        Four<double> four;
        for (int k = 0; k < kFloats; ++k) four.x[k] = sum[k];
        Put(columns, sorted.Partial(t, !before), four);
        if (!before && columns.first == 0) sorted.Cross(t, row);
      } else {
        float* const at = sorted.rows[row];
        Held<Rule, kWide> held(columns, at);
        held.Update(step, sum);
        held.Store(columns, at);
      }
      for (double& x : sum) x = 0;
      row = next_row;
      before = false;
    }
  }
};

// Puts together the sums of a run that begins in one tile and goes on, and updates its row.
template <class Rule, bool kWide>
struct Combine {
  Sorted sorted;
  Step<Rule> step;

  // Of part `group` of `groups` of the run's sums, in their order.
  OPWRIGHT_RULE void Sum(int64_t t, int64_t group, int64_t groups,
                         const Columns<kWide>& columns, double (&sum)[kFloats]) const {
    const int64_t parts = sorted.LastTile(t) - t + 1;
    const int64_t end = parts * (group + 1) / groups;
    OPWRIGHT_UNROLL(8)
    for (int64_t p = parts * group / groups; p < end; ++p) {
      const Four<double> four =
          Get(columns, static_cast<const double*>(sorted.Partial(t + p, p == 0)));
      OPWRIGHT_UNROLL(4)
      for (int k = 0; k < kFloats; ++k) sum[k] += four.x[k];
    }
  }
  OPWRIGHT_RULE void Apply(int64_t t, const Columns<kWide>& columns,
                           const double (&sum)[kFloats]) const {
    float* const at = sorted.rows[sorted.keys[(t + 1) * sorted.tile]];
    Held<Rule, kWide> held(columns, at);
    held.Update(step, sum);
    held.Store(columns, at);
  }
};

// Of short runs: one after the other by the threads of a row.
template <class Rule, bool kWide>
struct CombineShort {
  Combine<Rule, kWide> combine;

  OPWRIGHT_RULE int64_t threads() const {
    const Sorted& sorted = combine.sorted;
    return sorted.errors->any()
               ? 0
               : static_cast<int64_t>(sorted.counters[0]) << sorted.shape.lane_bits;
  }
  OPWRIGHT_RULE void operator()(int64_t thread, int64_t block) const {
    const Sorted& sorted = combine.sorted;
    const Columns<kWide> columns(sorted.shape, thread, block);
    if (!columns.any()) return;
    const int64_t t = sorted.crossing[thread >> sorted.shape.lane_bits];
    double sum[kFloats] = {};
    combine.Sum(t, 0, 1, columns, sum);
    combine.Apply(t, columns, sum);
  }
};

// Of long runs: all threads of a block Gather() their parts of a run, then Finish() it.
template <class Rule, bool kWide>
struct CombineLong {
  static constexpr int kTogether = 512;  // Threads of a block.
  using Shared = double[kTogether][kFloats];
  Combine<Rule, kWide> combine;

  OPWRIGHT_RULE int64_t items() const {
    return combine.sorted.errors->any() ? 0 : combine.sorted.counters[1];
  }
  OPWRIGHT_RULE int64_t TileOf(int64_t item) const {
    return combine.sorted.crossing[combine.sorted.tiles - 1 - item];
  }
  OPWRIGHT_RULE void Gather(int64_t item, int64_t thread, int64_t block, Shared& shared) const {
    const Shape& shape = combine.sorted.shape;
    const Columns<kWide> columns(shape, thread, block);
    double sum[kFloats] = {};
    if (columns.any()) {
      combine.Sum(TileOf(item), thread >> shape.lane_bits, kTogether >> shape.lane_bits,
                  columns, sum);
    }
    OPWRIGHT_UNROLL(4)
    for (int k = 0; k < kFloats; ++k) shared[thread][k] = sum[k];
  }
  OPWRIGHT_RULE void Finish(int64_t item, int64_t thread, int64_t block,
                            const Shared& shared) const {
    const Shape& shape = combine.sorted.shape;
    const Columns<kWide> columns(shape, thread, block);
    if (thread >= shape.lanes() || !columns.any()) return;
    double sum[kFloats] = {};
    for (int64_t other = thread; other < kTogether; other += shape.lanes()) {
      OPWRIGHT_UNROLL(4)
      for (int k = 0; k < kFloats; ++k) sum[k] += shared[other][k];
    }
    combine.Apply(TileOf(item), columns, sum);
  }
};

// Without accumulation: an update for each id of a run, one after the other. Who has the tile
// where a run begins makes them all.
template <class Rule, bool kWide>
struct UpdateEach {
  Sorted sorted;
  Step<Rule> step;

  OPWRIGHT_RULE int64_t threads() const {
    return sorted.errors->any() ? 0 : sorted.tiles << sorted.shape.lane_bits;
  }
  OPWRIGHT_RULE void operator()(int64_t thread, int64_t block) const {
    const Columns<kWide> columns(sorted.shape, thread, block);
    if (!columns.any()) return;
    int64_t i = (thread >> sorted.shape.lane_bits) * sorted.tile;
    const int64_t end = Min(i + sorted.tile, sorted.count);
    while (i > 0 && i < end && sorted.keys[i] == sorted.keys[i - 1]) ++i;
    while (i < end) {
      const int64_t row = sorted.keys[i];
      float* const at = sorted.rows[row];
      Held<Rule, kWide> held(columns, at);
      do {
        const Contribution one = sorted.At(i++);
        const Four<float> four = Get(columns, one.gradient);
        double gradient[kFloats];
        OPWRIGHT_UNROLL(4)
        for (int k = 0; k < kFloats; ++k) {
          gradient[k] = static_cast<double>(one.coefficient) * four.x[k];
        }
        held.Update(step, gradient);
      } while (i < sorted.count && sorted.keys[i] == row);
      held.Store(columns, at);
    }
  }
};

// Rows that nobody looked up, with a gradient of zero.
template <class Rule, bool kWide>
struct UpdateRest {
  Rows rows;
  Shape shape;
  const uint32_t* touched;
  const DeviceErrors* errors;
  Step<Rule> step;

  OPWRIGHT_RULE int64_t threads() const {
    return errors->any() ? 0 : rows.rows << shape.lane_bits;
  }
  OPWRIGHT_RULE void operator()(int64_t thread, int64_t block) const {
    const Columns<kWide> columns(shape, thread, block);
    const int64_t row = thread >> shape.lane_bits;
    if (!columns.any() || touched[row / 32] >> (row % 32) & 1) return;
    const float gradient[kFloats] = {};
    Held<Rule, kWide> held(columns, rows[row]);
    held.Update(step, gradient);
    held.Store(columns, rows[row]);
  }
};

// A shard's rows of the weights or of a slot, [count, dimension], to a table or from it.
template <bool kWide, bool kToTable>
struct CopyRows {
  Rows rows;
  Shape shape;
  int64_t count, first, step;
  int64_t offset;  // Of the weights or slot within a row.
  float* values;
  const DeviceErrors* errors = nullptr;  // Of a write.

  OPWRIGHT_RULE int64_t threads() const { return count << shape.lane_bits; }
  OPWRIGHT_RULE void operator()(int64_t thread, int64_t block) const {
    if (kToTable && errors && errors->any()) return;
    const Columns<kWide> columns(shape, thread, block);
    if (!columns.any()) return;
    const int64_t i = thread >> shape.lane_bits;
    float* const row = rows[first + i * step] + offset;
    float* const value = values + i * shape.dimension;
    Put(columns, kToTable ? row : value, Get<kWide, float>(columns, kToTable ? value : row));
  }
};

// Makes each float the one with these bits.
struct Fill {
  uint32_t bits;
  int64_t count;
  uint32_t* to;

  OPWRIGHT_RULE int64_t threads() const { return count; }
  OPWRIGHT_RULE void operator()(int64_t thread, int64_t) const { to[thread] = bits; }
};

// Where the first float is that is outside of a range, if it comes before `first`.
struct FindOutsideRange {
  Range range;
  int64_t count;
  const uint32_t* values;
  unsigned long long* first;

  OPWRIGHT_RULE int64_t threads() const { return count; }
  OPWRIGHT_RULE void operator()(int64_t thread, int64_t) const {
    if (Within(range, values[thread])) return;
    AtomicMin(first, static_cast<unsigned long long>(thread));
  }
};

}  // namespace opwright::embedding::cuda
