// The kernels of an update, in the form of kernels.h. They check gradients and ids, sort ids by
// row, sum the gradients of each row, and apply the optimizer.
#pragma once

#include <cstdint>
#include <type_traits>

#include "embedding/cuda/device_errors.h"
#include "embedding/cuda/plan.h"
#include "embedding/cuda/views.h"
#include "embedding/optimizers.h"

namespace opwright::embedding::cuda {

// Checks that the gradients of a source are finite. Records those that are not as errors.
template <bool kWide>
struct CheckValues {
  const float* values;
  int64_t count;
  int64_t number;  // The number of the source.
  DeviceErrors* errors;

  OPWRIGHT_RULE void operator()(int64_t thread) const {
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
      if (!IsFinite(four.x[k])) errors->Record(kBadGradient, number, first + k);
    }
  }
};

// The properties of one source that an update reads.
struct UpdateSource {
  Source source;
  int64_t position;   // The position of its first id among the ids of all sources.
  uint32_t* touched;  // One bit for each row of its table, or null.
  int lane_bits;      // log2 of the number of threads that share the ids of a sample.
};

// Checks that all gradients are finite.
struct CheckGradients {
  Spread spread;  // The distribution of the threads over the sources.
  const TableView* tables;
  const UpdateSource* sources;
  DeviceErrors* errors;

  OPWRIGHT_RULE int64_t threads() const { return spread.size(); }
  OPWRIGHT_RULE void operator()(int64_t thread, int64_t) const {
    const Source& source = sources[spread.Enter(&thread)].source;
    const int64_t count = source.samples * tables[source.table].shape.dimension;
    if (Aligned(source.gradients)) {
      CheckValues<true>{source.gradients, count, source.number, errors}(thread);
    } else {
      CheckValues<false>{source.gradients, count, source.number, errors}(thread);
    }
  }
};

// The keys of an update's ids. Keys number the rows of all tables consecutively. They have 32
// bits, or 64 if `wide`.
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

// Checks the ids of all sources, and writes for each id its key and what it adds to its row.
struct Expand {
  Spread spread;  // The distribution of the threads over the sources.
  const TableView* tables;
  const UpdateSource* sources;
  Keys keys;
  uint32_t* positions;
  Contribution* contributions;
  DeviceErrors* errors;

  OPWRIGHT_RULE int64_t threads() const { return spread.size(); }
  OPWRIGHT_RULE void operator()(int64_t thread, int64_t) const {
    const UpdateSource& of = sources[spread.Enter(&thread)];
    const Source& source = of.source;
    const TableView& table = tables[source.table];
    const int64_t sample = thread >> of.lane_bits;
    if (sample >= source.samples) return;
    const int64_t lanes = int64_t{1} << of.lane_bits;
    const Bag bag(source, sample, errors);
    const float scale = source.scales ? source.scales[sample] : 1.f;
    for (int64_t i = bag.begin + (thread & (lanes - 1)); i < bag.end; i += lanes) {
      const int64_t id = source.indices[i];
      const float coefficient =
          source.per_sample_weights ? scale * source.per_sample_weights[i] : scale;
      if (!IsFinite(coefficient)) errors->Record(kBadWeight, source.number, i);
      if (id < 0 || id >= table.rows.rows) {
        errors->Record(kBadId, source.number, i);
        continue;
      }
      const int64_t at = of.position + i;
      keys.Set(at, table.first_key + id);
      positions[at] = static_cast<uint32_t>(at);
      contributions[at] = {source.gradients + sample * table.shape.dimension, coefficient};
      if (of.touched) {
        const uint32_t bit = uint32_t{1} << (id % 32);
#if defined(__CUDA_ARCH__)
        atomicOr(&of.touched[id / 32], bit);
#else
        of.touched[id / 32] |= bit;
#endif
      }
    }
  }
};

// The values of a thread's columns of a row during an update.
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
  // Results are rounded to float after each update, because a table stores floats.
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

// All ids of an update, sorted by row. Ids of the same row stay in the order of the batch and
// form a run. The ids of a table are contiguous and are divided into tiles.
struct Sorted {
  Keys keys;
  const uint32_t* positions;
  const Contribution* contributions;
  int64_t tile;

  OPWRIGHT_RULE Contribution At(int64_t i) const { return contributions[positions[i]]; }
};

// The part of an update that belongs to one table.
struct Part {
  Rows rows;
  Shape shape;
  int64_t first_key;
  int64_t begin, end;  // The range of the table's ids among all sorted ids.
  int64_t tiles;       // The number of tiles of these ids.
  // For each tile two sums of gradients. The first is of the run that continues from the tile
  // before. The second is of the run that begins in this tile and continues in the next.
  double* partials;         // [tiles, 2, dimension]
  const uint32_t* touched;  // One bit for each row. If null, rows without ids do not change.

  OPWRIGHT_RULE double* Partial(int64_t t, int which) const {
    return partials + (2 * t + which) * shape.dimension;
  }
  // Returns whether the run of `key`, which begins in tile t, spans more than kShortTiles
  // tiles.
  OPWRIGHT_RULE bool IsLong(const Sorted& sorted, int64_t t, int64_t key) const {
    const int64_t far = begin + (t + kShortTiles) * sorted.tile;
    return far < end && sorted.keys[far] == key;
  }
  // Returns the last tile of the run that begins in tile t and continues in the next.
  OPWRIGHT_RULE int64_t LastTile(const Sorted& sorted, int64_t t) const {
    const int64_t key = sorted.keys[begin + (t + 1) * sorted.tile];
    int64_t last = t + 1, beyond = tiles;
    while (beyond - last > 1) {
      const int64_t middle = last + (beyond - last) / 2;
      (sorted.keys[begin + middle * sorted.tile] == key ? last : beyond) = middle;
    }
    return last;
  }
};

// The update of one table.
template <class Rule>
struct Task {
  Part part;
  Step<Rule> step;
};

// The update of all tables with the same rule.
template <class Rule>
struct Group {
  Spread threads;  // The threads that process the tiles of each task.
  Spread tiles;    // The tiles of each task.
  Spread rest;     // The threads that process the rows of each task that may have no ids.
  const Task<Rule>* tasks;
  Sorted sorted;
  // The tiles in which a run begins that continues in the next tile. Short runs are entered
  // from the front and long runs from the back.
  int32_t* crossing;   // [tiles.size()]
  uint32_t* counters;  // The numbers of short runs and of long runs, [2].
  // The largest lane_bits of the tasks' shapes. 2^lane_bits lanes share a run in `crossing`.
  int lane_bits;
  const DeviceErrors* errors;

  OPWRIGHT_RULE void Cross(int64_t task, int64_t t, bool is_long) const {
#if defined(__CUDA_ARCH__)
    const int64_t n = atomicAdd(&counters[is_long], 1u);
#else
    const int64_t n = counters[is_long]++;
#endif
    crossing[is_long ? tiles.size() - 1 - n : n] =
        static_cast<int32_t>(tiles.first[task] - tiles.begin + t);
  }
};

// Sums the gradients of each run. Updates the rows whose runs lie within one tile.
template <class Rule, bool kWide>
struct UpdateTiles {
  Group<Rule> group;

  OPWRIGHT_RULE int64_t threads() const {
    return group.errors->any() ? 0 : group.threads.size();
  }
  OPWRIGHT_RULE void operator()(int64_t thread, int64_t) const {
    const int64_t number = group.threads.Enter(&thread);
    const Part& part = group.tasks[number].part;
    int64_t block;
    if (!Enter(part.shape, part.tiles, &thread, &block)) return;
    const Columns<kWide> columns(part.shape, thread, block);
    if (!columns.any()) return;
    const Sorted& sorted = group.sorted;
    const Rows rows = part.rows;
    const int64_t first_key = part.first_key;
    // 32 bits suffice, because there are at most kMaxIds ids. They need fewer registers.
    const uint32_t all = static_cast<uint32_t>(part.end);
    const uint32_t t = static_cast<uint32_t>(thread >> part.shape.lane_bits);
    const uint32_t begin = static_cast<uint32_t>(part.begin + t * sorted.tile);
    const uint32_t end = static_cast<uint32_t>(Min(begin + sorted.tile, all));
    int64_t key = sorted.keys[begin];
    bool before = t > 0 && sorted.keys[begin - 1] == key;
    // Gradients are loaded one id ahead, and their addresses two ids ahead.
    Contribution next = sorted.At(begin);
    Four<float> gradient = Get(columns, next.gradient);
    float coefficient = next.coefficient;
    if (begin + 1 < end) next = sorted.At(begin + 1);
    double sum[kFloats] = {};
    for (uint32_t i = begin; i < end; ++i) {
      const Four<float> g = gradient;
      const float c = coefficient;
      const int64_t next_key = i + 1 < all ? sorted.keys[i + 1] : -1;
      if (i + 1 < end) {
        gradient = Get(columns, next.gradient);
        coefficient = next.coefficient;
        if (next_key != key) {
          const float* const ahead = rows[next_key - first_key] + columns.first;
          OPWRIGHT_UNROLL(4)
          for (int p = 0; p <= Rule::kSlots; ++p) Prefetch(ahead + p * columns.dimension);
        }
      }
      if (i + 2 < end) next = sorted.At(i + 2);
      OPWRIGHT_UNROLL(4)
      for (int k = 0; k < kFloats; ++k) sum[k] += static_cast<double>(c) * g.x[k];
      const bool goes_on = next_key == key;
      if (goes_on && i + 1 < end) continue;
      LoadHere();
      if (before || goes_on) {
        Four<double> four;
        for (int k = 0; k < kFloats; ++k) four.x[k] = sum[k];
        Put(columns, part.Partial(t, !before), four);
        if (!before && columns.first == 0) {
          group.Cross(number, t, part.IsLong(sorted, t, key));
        }
      } else {
        float* const at = rows[key - first_key];
        Held<Rule, kWide> held(columns, at);
        held.Update(group.tasks[number].step, sum);
        held.Store(columns, at);
      }
      for (double& x : sum) x = 0;
      key = next_key;
      before = false;
    }
  }
};

// A run (Sorted) that begins in one tile and continues in others. `Of` finds the task of a run,
// because one list has the runs of all tasks of the group. The kernels add the run's partial
// sums, and then update its row.
template <class Rule, bool kWide>
struct Crossing {
  const Sorted& sorted;
  const Task<Rule>& task;
  int64_t t;  // The tile in which the run begins.
  Columns<kWide> columns;

  OPWRIGHT_RULE static Crossing Of(const Group<Rule>& group, int64_t tile, int64_t thread,
                                   int64_t block) {
    const int64_t number = group.tiles.Enter(&tile);
    const Task<Rule>& task = group.tasks[number];
    const Shape shape{task.part.shape.dimension, group.lane_bits, 0};
    return {group.sorted, task, tile, Columns<kWide>(shape, thread, block)};
  }

  // Adds part `n` of `parts` of the run's partial sums, in their order.
  OPWRIGHT_RULE void Sum(int64_t n, int64_t parts, double (&sum)[kFloats]) const {
    const Part& part = task.part;
    const int64_t all = part.LastTile(sorted, t) - t + 1;
    const int64_t end = all * (n + 1) / parts;
    OPWRIGHT_UNROLL(8)
    for (int64_t p = all * n / parts; p < end; ++p) {
      const Four<double> four =
          Get(columns, static_cast<const double*>(part.Partial(t + p, p == 0)));
      OPWRIGHT_UNROLL(4)
      for (int k = 0; k < kFloats; ++k) sum[k] += four.x[k];
    }
  }
  OPWRIGHT_RULE void Apply(const double (&sum)[kFloats]) const {
    const Part& part = task.part;
    float* const at =
        part.rows[sorted.keys[part.begin + (t + 1) * sorted.tile] - part.first_key];
    Held<Rule, kWide> held(columns, at);
    held.Update(task.step, sum);
    held.Store(columns, at);
  }
};

// Updates the rows of short runs. The threads of a row add its partial sums one after the
// other.
template <class Rule, bool kWide>
struct CombineShort {
  Group<Rule> group;

  OPWRIGHT_RULE int64_t threads() const {
    return group.errors->any() ? 0 : static_cast<int64_t>(group.counters[0]) << group.lane_bits;
  }
  OPWRIGHT_RULE void operator()(int64_t thread, int64_t block) const {
    const auto run = Crossing<Rule, kWide>::Of(group, group.crossing[thread >> group.lane_bits],
                                               thread, block);
    if (!run.columns.any()) return;
    double sum[kFloats] = {};
    run.Sum(0, 1, sum);
    run.Apply(sum);
  }
};

// Updates the rows of long runs. First all threads of a thread block call Gather, each for its
// part of a run. Then they call Finish.
template <class Rule, bool kWide>
struct CombineLong {
  static constexpr int kTogether = 512;  // The number of threads of a thread block.
  using Shared = double[kTogether][kFloats];
  Group<Rule> group;

  OPWRIGHT_RULE int64_t items() const { return group.errors->any() ? 0 : group.counters[1]; }
  OPWRIGHT_RULE Crossing<Rule, kWide> RunOf(int64_t item, int64_t thread, int64_t block) const {
    return Crossing<Rule, kWide>::Of(group, group.crossing[group.tiles.size() - 1 - item],
                                     thread, block);
  }
  OPWRIGHT_RULE void Gather(int64_t item, int64_t thread, int64_t block, Shared& shared) const {
    const auto run = RunOf(item, thread, block);
    double sum[kFloats] = {};
    if (run.columns.any()) {
      run.Sum(thread >> group.lane_bits, kTogether >> group.lane_bits, sum);
    }
    OPWRIGHT_UNROLL(4)
    for (int k = 0; k < kFloats; ++k) shared[thread][k] = sum[k];
  }
  OPWRIGHT_RULE void Finish(int64_t item, int64_t thread, int64_t block,
                            const Shared& shared) const {
    const int64_t lanes = int64_t{1} << group.lane_bits;
    if (thread >= lanes) return;
    const auto run = RunOf(item, thread, block);
    if (!run.columns.any()) return;
    double sum[kFloats] = {};
    for (int64_t other = thread; other < kTogether; other += lanes) {
      OPWRIGHT_UNROLL(4)
      for (int k = 0; k < kFloats; ++k) sum[k] += shared[other][k];
    }
    run.Apply(sum);
  }
};

// Updates rows without gradient accumulation: one update for each id of a run, in order. The
// threads of the tile in which a run begins do all updates of the run.
template <class Rule, bool kWide>
struct UpdateEach {
  Group<Rule> group;

  OPWRIGHT_RULE int64_t threads() const {
    return group.errors->any() ? 0 : group.threads.size();
  }
  OPWRIGHT_RULE void operator()(int64_t thread, int64_t) const {
    const Task<Rule>& task = group.tasks[group.threads.Enter(&thread)];
    const Part& part = task.part;
    int64_t block;
    if (!Enter(part.shape, part.tiles, &thread, &block)) return;
    const Columns<kWide> columns(part.shape, thread, block);
    if (!columns.any()) return;
    const Sorted& sorted = group.sorted;
    const int64_t all = part.end;
    int64_t i = part.begin + (thread >> part.shape.lane_bits) * sorted.tile;
    const int64_t end = Min(i + sorted.tile, all);
    while (i > part.begin && i < end && sorted.keys[i] == sorted.keys[i - 1]) ++i;
    while (i < end) {
      const int64_t key = sorted.keys[i];
      float* const at = part.rows[key - part.first_key];
      Held<Rule, kWide> held(columns, at);
      do {
        const Contribution one = sorted.At(i++);
        const Four<float> four = Get(columns, one.gradient);
        double gradient[kFloats];
        OPWRIGHT_UNROLL(4)
        for (int k = 0; k < kFloats; ++k) {
          gradient[k] = static_cast<double>(one.coefficient) * four.x[k];
        }
        LoadHere();
        held.Update(task.step, gradient);
      } while (i < all && sorted.keys[i] == key);
      held.Store(columns, at);
    }
  }
};

// Whether the optimizer of a rule has a field that updates all rows: use_non_lazy_adam or
// use_non_lazy_lion.
template <class Rule>
constexpr bool kMayUpdateEveryRow =
    std::is_same_v<Rule, rules::Adam> || std::is_same_v<Rule, rules::Lion>;

// Updates the rows without ids, with a gradient of zero.
template <class Rule, bool kWide>
struct UpdateRest {
  Group<Rule> group;

  OPWRIGHT_RULE int64_t threads() const { return group.errors->any() ? 0 : group.rest.size(); }
  OPWRIGHT_RULE void operator()(int64_t thread, int64_t) const {
    const Task<Rule>& task = group.tasks[group.rest.Enter(&thread)];
    const Part& part = task.part;
    int64_t block;
    if (!Enter(part.shape, part.rows.rows, &thread, &block)) return;
    const Columns<kWide> columns(part.shape, thread, block);
    const int64_t row = thread >> part.shape.lane_bits;
    if (!columns.any() || part.touched[row / 32] >> (row % 32) & 1) return;
    const float gradient[kFloats] = {};
    float* const at = part.rows[row];
    Held<Rule, kWide> held(columns, at);
    held.Update(task.step, gradient);
    held.Store(columns, at);
  }
};

}  // namespace opwright::embedding::cuda
