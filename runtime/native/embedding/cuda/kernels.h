// The kernels: plain functions that do the work of one thread. They call no operation of a warp
// or a thread block, such as a shuffle or a barrier. tables.cu compiles them for GPUs. Tests
// run them on the CPU, thread by thread.
//
// A kernel is an object. threads() returns how many threads it needs. operator()(thread, block)
// does the work of one thread at one block of columns. Threads that share a row have adjacent
// numbers, so that their loads are coalesced. One kernel processes many features, or all tables
// of a group (UpdateCall). The descriptors of the features or tables are an array in device
// memory. A Spread determines to which of them a thread belongs.
#pragma once

#include <cstdint>

#include "embedding/cuda/device_errors.h"
#include "embedding/cuda/plan.h"
#include "embedding/cuda/update_kernels.h"
#include "embedding/cuda/views.h"

namespace opwright::embedding::cuda {

// The outputs of a lookup, by source: [samples, dimension].
struct Outputs {
  float* of[kMaxOutputs];
};

// Computes out[s] = scale * sum of weight * row, like embedding/cpu/rows.h. Sums are in float,
// in the order of the ids. An id that is out of range is recorded as an error and adds nothing.
// kPlain requires that all rows and outputs are aligned and that no table is quantized. It
// needs fewer registers.
template <bool kPlain>
struct Lookup {
  // The number of rows that are loaded before the first of them is added.
  static constexpr int kAhead = 4;
  Spread spread;  // The distribution of the threads over the sources.
  const TableView* tables;
  const Source* sources;
  DeviceErrors* errors;
  Outputs outputs;

  OPWRIGHT_RULE int64_t threads() const { return spread.size(); }
  OPWRIGHT_RULE void operator()(int64_t thread, int64_t) const {
    const int64_t part = spread.Enter(&thread);
    const Source& source = sources[part];
    const TableView& table = tables[source.table];
    int64_t block;
    if (!Enter(table.shape, source.samples, &thread, &block)) return;
    float* const out = outputs.of[part];
    if constexpr (kPlain) {
      LookUp<true, false>(source, table, out, thread, block);
    } else if (table.shape.dimension % kFloats == 0 && Aligned(out)) {
      table.quantized ? LookUp<true, true>(source, table, out, thread, block)
                      : LookUp<true, false>(source, table, out, thread, block);
    } else {
      table.quantized ? LookUp<false, true>(source, table, out, thread, block)
                      : LookUp<false, false>(source, table, out, thread, block);
    }
  }

  template <bool kWide, bool kQuantized>
  OPWRIGHT_RULE void LookUp(const Source& source, const TableView& table, float* out,
                            int64_t thread, int64_t block) const {
    const Shape shape = table.shape;
    const Rows rows = table.rows;
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
        for (int k = 0; k < kFloats; ++k) {
          sum.x[k] += weight[j] * (kQuantized ? Quantized(table, row[j].x[k]) : row[j].x[k]);
        }
      }
    }
    const float scale = source.scales ? source.scales[sample] : 1.f;
    OPWRIGHT_UNROLL(4)
    for (int k = 0; k < kFloats; ++k) sum.x[k] *= scale;
    Put(columns, out + sample * shape.dimension, sum);
  }

  static OPWRIGHT_RULE float Quantized(const TableView& table, float x) {
    x = rules::Between(table.lower, table.upper, x);
    return rules::Min(table.upper,
                      floorf((x - table.lower) / table.size + 0.5f) * table.size + table.lower);
  }
};

// Copies a shard's rows of the weights or of a slot, [count, dimension], to a table or from it.
template <bool kWide, bool kToTable>
struct CopyRows {
  Rows rows;
  Shape shape;
  int64_t count, first, step;
  int64_t offset;  // The offset of the weights or of the slot within a row.
  float* values;

  OPWRIGHT_RULE int64_t threads() const { return count << shape.lane_bits; }
  OPWRIGHT_RULE void operator()(int64_t thread, int64_t block) const {
    const Columns<kWide> columns(shape, thread, block);
    if (!columns.any()) return;
    const int64_t i = thread >> shape.lane_bits;
    float* const row = rows[first + i * step] + offset;
    float* const value = values + i * shape.dimension;
    Put(columns, kToTable ? row : value, Get<kWide, float>(columns, kToTable ? value : row));
  }
};

}  // namespace opwright::embedding::cuda
