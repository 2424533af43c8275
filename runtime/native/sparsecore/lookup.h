// Lookups compute the activations of triples.
#pragma once

#include <cstdint>

#include "base/execution_context.h"
#include "base/status.h"
#include "embedding/batch.h"
#include "sparsecore/row_arrays.h"
#include "sparsecore/triples.h"

namespace opwright::sparsecore {

// Computes activations[sample] = sum of gain * table[row], with shape [samples, width].
void SumRows(const Triples& triples, const float* table, int64_t width,
             const embedding::Quantization& quantization, int64_t samples, float* activations,
             ExecutionContext& exec);
void SumRows(const Triples& triples, const RowArrays<const float>& table,
             const embedding::Quantization& quantization, int64_t samples, float* activations,
             ExecutionContext& exec);
// Computes the same sums for integers. The gains must be integers, and the sums wrap around.
Status SumRows(const Triples& triples, const int32_t* table, int64_t width, int64_t samples,
               int32_t* activations, ExecutionContext& exec);

}  // namespace opwright::sparsecore
