// Types that the forward and the backward pass share: the partition of the work, the rows of a
// step, and the input of a layer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/execution_context.h"
#include "base/float16.h"
#include "rnn/kernels/kernels.h"
#include "rnn/layout.h"
#include "rnn/packing.h"
#include "rnn/spec.h"

namespace opwright::rnn {

// A view of a sequence of steps in either layout: [time, batch, width] or [batch, time, width].
template <class T>
struct Sequence {
  T* data = nullptr;
  int64_t time_stride = 0;
  int64_t batch_stride = 0;

  static Sequence View(T* data, const CallSpec& spec, bool time_major, int64_t width) {
    if (time_major) return {data, spec.batch * width, width};
    return {data, width, spec.time * width};
  }
  T* at(int64_t t, int64_t b) const { return data + t * time_stride + b * batch_stride; }
};

// The dropout mask. The mask is a function of the call, the layer and the element, so the
// backward pass can compute the same mask again.
class Dropout {
 public:
  Dropout(const CallSpec& spec, uint64_t nonce, int64_t layer)
      : key_(Mix(Mix(spec.seed) + nonce * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(layer))),
        // A dropout rate of 1 drops all elements. Rates below 1 are rounded down to multiples
        // of 2^-32.
        threshold_(static_cast<uint64_t>(static_cast<double>(spec.dropout) * 4294967296.0)),
        scale_(spec.dropout < 1 ? 1.0 / (1.0 - spec.dropout) : 0.0) {}

  // Returns the factor for element i of the layer's input: zero if the element is dropped.
  double Factor(uint64_t i) const {
    return (Mix(key_ + i * 0x9e3779b97f4a7c15u) >> 32) < threshold_ ? 0.0 : scale_;
  }

 private:
  // The finaliser of SplitMix64.
  static uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

  uint64_t key_;
  uint64_t threshold_;
  double scale_;
};

// Returns the approximate number of operations: the product of the arguments.
template <class... N>
double Operations(int64_t factor, N... counts) {
  return (static_cast<double>(factor) * ... * static_cast<double>(counts));
}

// Runs the tasks in parallel if they have at least 1e6 operations together. Otherwise they run
// in the calling thread, because waking a thread costs microseconds.
template <class Task>
void ParallelFor(ExecutionContext& exec, int64_t count, double operations, const Task& task) {
  if (count == 1 || exec.Threads() == 1 || operations < 1e6) {
    for (int64_t i = 0; i < count; ++i) task(i);
  } else {
    exec.For(count, task);
  }
}

// Runs task(i) for every i below `count`. Each of `cuts` parallel tasks runs one contiguous
// range.
template <class Task>
void ParallelForRanges(ExecutionContext& exec, int64_t cuts, int64_t count, double operations,
                       const Task& task) {
  ParallelFor(exec, cuts, operations, [&](int64_t cut) {
    for (int64_t i = count * cut / cuts; i < count * (cut + 1) / cuts; ++i) task(i);
  });
}

// One direction of one part of the batch. Sequences are independent of each other, so a slice
// runs all steps without waiting for another slice.
struct SliceRange {
  int64_t dir;
  int64_t first, end;  // The range of sequences in the batch.

  int64_t sequences() const { return end - first; }
};

// The partition of one pass over a call. Units are divided into panels, the batch into parts
// for the threads, and steps into chunks.
struct Plan {
  Panels panels;          // The panels of the cell's units.
  Panels projected;       // The panels of the projection's columns. Empty without projection.
  int64_t parts;          // The number of parts of the batch.
  int64_t slices;         // The number of parts times the number of directions.
  int64_t max_sequences;  // The largest number of sequences in a slice.
  int64_t chunk_steps;
  int64_t max_chunk_rows;

  // A chunk has at most `chunk_rows` rows. If one step has more rows, a chunk is one step.
  template <class T>
  Plan(const CallSpec& spec, const Kernels<T>& kernels, const ExecutionContext& exec,
       int64_t chunk_rows)
      : panels(CellPanels(kernels, spec)),
        projected(PlainPanels(kernels.lanes, spec.projection)),
        parts(Parts(spec, exec)),
        slices(spec.dirs() * parts),
        max_sequences((spec.batch + parts - 1) / parts),
        chunk_steps(std::min(spec.time, std::max<int64_t>(1, chunk_rows / max_sequences))),
        max_chunk_rows(chunk_steps * max_sequences),
        dirs_(spec.dirs()),
        batch_(spec.batch) {}

  SliceRange Slice(int64_t i) const {
    const int64_t part = i / dirs_;
    return {i % dirs_, batch_ * part / parts, batch_ * (part + 1) / parts};
  }

  // Returns the number of threads that share the panels of one step's product. The number is
  // above 1 only if there are at least two threads for each slice, and two panels.
  int64_t PanelCuts(const ExecutionContext& exec, int64_t panel_count) const {
    return std::max<int64_t>(1, std::min<int64_t>(exec.Threads() / slices, panel_count));
  }

 private:
  static int64_t Parts(const CallSpec& spec, const ExecutionContext& exec) {
    const double operations = Operations(2, spec.time, spec.batch, spec.gates(), spec.units,
                                         spec.input_size + spec.hidden());
    const int64_t worth = std::max<int64_t>(1, static_cast<int64_t>(operations / 1e6));
    const int64_t threads = (exec.Threads() + spec.dirs() - 1) / spec.dirs();
    return std::min({threads, spec.batch, worth});
  }

  int64_t dirs_, batch_;
};

// Some consecutive steps of a slice's sequences, in the order of processing. A chunk has no
// rows for steps past the length of a sequence.
struct Chunk {
  struct Row {
    int32_t t;
    int32_t b;
  };
  int64_t first_step = 0;
  int64_t steps = 0;
  int64_t rows = 0;
  int64_t* begin = nullptr;  // The first row of each step, [steps + 1].
  Row* row = nullptr;
  // For each row, the index of its sequence in the states of the slice: `b` minus the first
  // sequence of the slice.
  int32_t* state_row = nullptr;

  void Allocate(ExecutionContext& exec, int64_t max_steps, int64_t max_rows) {
    begin = exec.Allocate<int64_t>(max_steps + 1);
    row = exec.Allocate<Row>(max_rows);
    state_row = exec.Allocate<int32_t>(max_rows);
  }

  void Fill(const CallSpec& spec, int64_t dir, const int32_t* lengths, int64_t first_b,
            int64_t end_b, int64_t from_step, int64_t to_step) {
    first_step = from_step;
    steps = to_step - from_step;
    rows = 0;
    for (int64_t s = 0; s < steps; ++s) {
      begin[s] = rows;
      const int64_t step = from_step + s;
      const int64_t t = dir == 0 ? step : spec.time - 1 - step;
      for (int64_t b = first_b; b < end_b; ++b) {
        if (lengths && t >= lengths[b]) continue;
        row[rows] = {static_cast<int32_t>(t), static_cast<int32_t>(b)};
        state_row[rows++] = static_cast<int32_t>(b - first_b);
      }
    }
    begin[steps] = rows;
  }
};

// The input of a layer, as pointers to rows. A pointer leads to the stored row, or to a
// converted copy if dropout or the element type requires one.
template <class T>
class LayerInputs {
 public:
  using S = Compute<T>;

  void Allocate(ExecutionContext& exec, const CallSpec& spec, int64_t max_rows) {
    rows_ = exec.Allocate<const S*>(max_rows);
    if (spec.drops() || !std::is_same<T, S>::value) {
      copies_ = exec.Allocate<S>(max_rows * std::max(spec.input_size, spec.width()));
    }
  }

  // Returns a pointer for each row of the chunk. The rows have the type of computation.
  const S* const* Read(const CallSpec& spec, int64_t layer, const Dropout* dropout,
                       const Sequence<const T>& from, const Chunk& chunk) {
    const int64_t width = spec.layer_input(layer);
    for (int64_t m = 0; m < chunk.rows; ++m) {
      const Chunk::Row row = chunk.row[m];
      const T* stored = from.at(row.t, row.b);
      if constexpr (std::is_same<T, S>::value) {
        rows_[m] = stored;
        if (!dropout) continue;
      }
      S* copy = copies_ + m * width;
      const uint64_t first = static_cast<uint64_t>(row.t * spec.batch + row.b) * width;
      for (int64_t i = 0; i < width; ++i) {
        copy[i] = Load(stored[i]);
        if (dropout) copy[i] *= static_cast<S>(dropout->Factor(first + i));
      }
      rows_[m] = copy;
    }
    return rows_;
  }

 private:
  const S** rows_ = nullptr;
  S* copies_ = nullptr;
};

}  // namespace opwright::rnn
