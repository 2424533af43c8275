// What both directions of the pass share: how work is cut up, which rows a step has, and
// what a layer reads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "config.h"
#include "host.h"
#include "kernels.h"
#include "number.h"
#include "panels.h"

namespace opwright {

// A sequence of steps in either layout: [time, batch, width] or [batch, time, width].
template <class T>
struct Sequence {
  T* data = nullptr;
  int64_t time_stride = 0;
  int64_t batch_stride = 0;

  static Sequence Of(T* data, const Config& config, bool time_major, int64_t width) {
    if (time_major) return {data, config.batch * width, width};
    return {data, width, config.time * width};
  }
  T* at(int64_t t, int64_t b) const { return data + t * time_stride + b * batch_stride; }
};

// Which elements dropout keeps: a function of the call, the layer and the element, so that
// the backward pass finds the same ones.
class Dropout {
 public:
  Dropout(const Config& config, uint64_t nonce, int64_t layer)
      : key_(Mix(Mix(config.seed) + nonce * 0x9e3779b97f4a7c15u +
                 static_cast<uint64_t>(layer))),
        // A probability of 1 drops everything; below it, one in 2^32 is the grain.
        threshold_(static_cast<uint64_t>(static_cast<double>(config.dropout) *
                                         4294967296.0)),
        scale_(config.dropout < 1 ? 1.0 / (1.0 - config.dropout) : 0.0) {}

  // What to multiply element i of the layer's input by.
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

// Runs tasks at once if they are worth it: waking a thread costs microseconds.
template <class Task>
void Run(Host& host, int64_t count, double operations, const Task& task) {
  if (count == 1 || host.Threads() == 1 || operations < 1e6) {
    for (int64_t i = 0; i < count; ++i) task(i);
  } else {
    host.For(count, task);
  }
}

// How many parts to cut the batch into: sequences are independent, so each part runs
// through all steps without waiting for another.
inline int64_t CutBatch(const Config& config, const Host& host) {
  const double operations = 2.0 * config.time * config.batch * config.gates() *
                            config.units * (config.input_size + config.hidden());
  const int64_t worth = std::max<int64_t>(1, static_cast<int64_t>(operations / 1e6));
  const int64_t threads = (host.Threads() + config.dirs() - 1) / config.dirs();
  return std::min({threads, config.batch, worth});
}

// How many threads share the panels of one step, where batch and directions leave some idle.
inline int64_t CutPanels(const Host& host, int64_t slices, int64_t panels) {
  return std::max<int64_t>(1, std::min<int64_t>(host.Threads() / slices, panels));
}

// Runs task(i) for every i below count, in `cuts` runs of them.
template <class Task>
void RunCut(Host& host, int64_t cuts, int64_t count, double operations, const Task& task) {
  Run(host, cuts, operations, [&](int64_t cut) {
    for (int64_t i = count * cut / cuts; i < count * (cut + 1) / cuts; ++i) task(i);
  });
}

// Some steps of some sequences in the order of processing, without those past a length.
struct Chunk {
  struct Row {
    int32_t t;
    int32_t b;
  };
  int64_t first_step = 0;
  int64_t steps = 0;
  int64_t rows = 0;
  int64_t* begin = nullptr;  // [steps + 1], the first row of each step.
  Row* row = nullptr;
  int32_t* place = nullptr;  // By row: b - first sequence.

  void Allocate(Host& host, int64_t most_steps, int64_t most_rows) {
    begin = host.Allocate<int64_t>(most_steps + 1);
    row = host.Allocate<Row>(most_rows);
    place = host.Allocate<int32_t>(most_rows);
  }

  void Fill(const Config& config, int64_t dir, const int32_t* lengths, int64_t first_b,
            int64_t end_b, int64_t from_step, int64_t to_step) {
    first_step = from_step;
    steps = to_step - from_step;
    rows = 0;
    for (int64_t s = 0; s < steps; ++s) {
      begin[s] = rows;
      const int64_t step = from_step + s;
      const int64_t t = dir == 0 ? step : config.time - 1 - step;
      for (int64_t b = first_b; b < end_b; ++b) {
        if (lengths && t >= lengths[b]) continue;
        row[rows] = {static_cast<int32_t>(t), static_cast<int32_t>(b)};
        place[rows++] = static_cast<int32_t>(b - first_b);
      }
    }
    begin[steps] = rows;
  }
};

// What a layer reads: rows of the storage type as they are, or a computed copy where
// dropout or the type asks for one.
template <class T>
class Inputs {
 public:
  using S = Compute<T>;

  void Allocate(Host& host, const Config& config, int64_t most_rows) {
    rows_ = host.Allocate<const S*>(most_rows);
    if (config.drops() || !std::is_same<T, S>::value) {
      copies_ = host.Allocate<S>(most_rows *
                                 std::max(config.input_size, config.width()));
    }
  }

  // Row pointers of a chunk, in the type of computation.
  const S* const* Read(const Config& config, int64_t layer, const Dropout* dropout,
                       const Sequence<const T>& from, const Chunk& chunk) {
    const int64_t width = config.layer_input(layer);
    for (int64_t m = 0; m < chunk.rows; ++m) {
      const Chunk::Row row = chunk.row[m];
      const T* stored = from.at(row.t, row.b);
      if constexpr (std::is_same<T, S>::value) {
        rows_[m] = stored;
        if (!dropout) continue;
      }
      S* copy = copies_ + m * width;
      const uint64_t first = static_cast<uint64_t>(row.t * config.batch + row.b) * width;
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

}  // namespace opwright
