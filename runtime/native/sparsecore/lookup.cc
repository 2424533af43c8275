#include "sparsecore/lookup.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/uninitialized_vector.h"
#include "embedding/cpu/rows.h"
#include "embedding/optimizers.h"
#include "sparsecore/parallel.h"

namespace opwright::sparsecore {

using embedding::LookupCall;
using embedding::Quantization;
using embedding::RowKernels;

namespace {

// Triples grouped by sample. The triples of a sample are offsets[sample] to offsets[sample + 1]
// - 1.
struct SampleTriples {
  UninitializedVector<int64_t> offsets, rows;
  UninitializedVector<float> gains;
};

// Sorts by sample. The triples of a sample keep their order. Every thread moves the triples of
// one part to their places.
SampleTriples SortBySample(const Triples& triples, int64_t samples, ExecutionContext& exec) {
  const int64_t size = triples.size();
  // Few triples a sample are not worth the memory of many parts.
  const int64_t parts = std::min(PartsOf(size, exec), 1 + size / std::max<int64_t>(1, samples));
  const auto for_parts = [&](const auto& task) {
    exec.For(parts,
             [&](int64_t part) { task(part, part * size / parts, (part + 1) * size / parts); });
  };
  // For each part and sample, the number of triples, and then the place of the next one.
  std::vector<int64_t> places(static_cast<size_t>(parts * samples));
  for_parts([&](int64_t part, int64_t first, int64_t end) {
    int64_t* const counts = places.data() + part * samples;
    for (int64_t i = first; i < end; ++i) ++counts[triples.samples[i]];
  });
  SampleTriples sorted;
  sorted.offsets.resize(samples + 1);
  int64_t begin = 0;
  for (int64_t sample = 0; sample < samples; ++sample) {
    sorted.offsets[sample] = begin;
    for (int64_t part = 0; part < parts; ++part) {
      begin += std::exchange(places[part * samples + sample], begin);
    }
  }
  sorted.offsets[samples] = begin;
  sorted.rows.resize(size);
  sorted.gains.resize(size);
  for_parts([&](int64_t part, int64_t first, int64_t end) {
    int64_t* const next = places.data() + part * samples;
    for (int64_t i = first; i < end; ++i) {
      const int64_t at = next[triples.samples[i]]++;
      sorted.rows[at] = triples.rows[i];
      sorted.gains[at] = triples.gains[i];
    }
  });
  return sorted;
}

// Subtracts addresses, because pointers into different arrays have no difference in C++.
int64_t FloatsBetween(const float* from, const float* to) {
  const auto bytes =
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from));
  return bytes / static_cast<int64_t>(sizeof(float));
}

}  // namespace

void SumRows(const Triples& triples, const float* table, int64_t width,
             const Quantization& quantization, int64_t samples, float* activations,
             ExecutionContext& exec) {
  SumRows(triples, RowArrays<const float>({table}, 0, width), quantization, samples,
          activations, exec);
}

void SumRows(const Triples& triples, const RowArrays<const float>& table,
             const Quantization& quantization, int64_t samples, float* activations,
             ExecutionContext& exec) {
  const int64_t width = table.width();
  if (width == 0) return;
  SampleTriples sorted = SortBySample(triples, samples, exec);
  LookupCall call{};
  call.table = table.first();
  call.stride = call.dimension = call.out_stride = width;
  if (!table.one()) {
    // Indices count floats from the first array, because the arrays do not begin at rows of
    // each other.
    call.stride = 1;
    for (int64_t& row : sorted.rows) row = FloatsBetween(table.first(), table.row(row));
  }
  call.offsets = sorted.offsets.data();
  call.indices = sorted.rows.data();
  call.per_sample_weights = sorted.gains.data();
  call.quantization = quantization.enabled ? &quantization : nullptr;
  call.out = activations;
  const RowKernels& kernels = embedding::SelectRowKernels();
  ParallelForGroups(sorted.offsets, width, exec, [&](int64_t first, int64_t last) {
    LookupCall part = call;
    part.first = first;
    part.end = last;
    kernels.lookup(part);
  });
}

Status SumRows(const Triples& triples, const int32_t* table, int64_t width, int64_t samples,
               int32_t* activations, ExecutionContext& exec) {
  for (const float gain : triples.gains) {
    if (gain != std::floor(gain) || std::abs(gain) > static_cast<float>(1 << 24)) {
      return InvalidArgumentError(
          "sorted_gains",
          StrCat("must be integers of at most 2^24 for tables of int32, one is ",
                 embedding::Number(gain)));
    }
  }
  const SampleTriples sorted = SortBySample(triples, samples, exec);
  ParallelForGroups(sorted.offsets, width, exec, [&](int64_t first, int64_t last) {
    std::fill(activations + first * width, activations + last * width, 0);
    for (int64_t sample = first; sample < last; ++sample) {
      int32_t* const sum = activations + sample * width;
      for (int64_t i = sorted.offsets[sample]; i < sorted.offsets[sample + 1]; ++i) {
        const int32_t* const row = table + sorted.rows[i] * width;
        const uint32_t gain = static_cast<uint32_t>(static_cast<int32_t>(sorted.gains[i]));
        for (int64_t k = 0; k < width; ++k) {
          sum[k] = static_cast<int32_t>(static_cast<uint32_t>(sum[k]) +
                                        gain * static_cast<uint32_t>(row[k]));
        }
      }
    }
  });
  return OkStatus();
}

}  // namespace opwright::sparsecore
