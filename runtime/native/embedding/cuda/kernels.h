// The kernels: what one thread of each does, as plain functions without a warp's or a block's
// help. tables.cu compiles them for GPUs; the tests on the CPU run them thread by thread.
//
// A kernel is an object: threads() says how many threads it wants, and operator()(thread,
// block) is one of them. Threads that share a row are neighbours, so that they read it
// together. One kernel does the work of all features, or of all tables with the same rule:
// what it has to know of each is an array in device memory, and a Spread says whose a thread
// is.
#pragma once

#include <cstdint>

#include "embedding/cuda/device_errors.h"
#include "embedding/cuda/plan.h"
#include "embedding/cuda/update_kernels.h"
#include "embedding/cuda/views.h"

namespace opwright::embedding::cuda {

// Where lookups write, by source: [samples, dimension].
struct Outputs {
  float* of[kMaxOutputs];
};

// out[s] = scale * sum of weight * row, as embedding/cpu/rows.h has it, with float sums in
// the order of the ids. An id that is out of range is recorded and adds nothing. kPlain: all
// rows and outputs are aligned, and no table is quantized; that takes fewer registers.
template <bool kPlain>
struct Lookup {
  static constexpr int kAhead = 4;  // Rows loaded at once.
  Spread spread;                    // Of the sources.
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

// A shard's rows of the weights or of a slot, [count, dimension], to a table or from it.
template <bool kWide, bool kToTable>
struct CopyRows {
  Rows rows;
  Shape shape;
  int64_t count, first, step;
  int64_t offset;  // Of the weights or slot within a row.
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
