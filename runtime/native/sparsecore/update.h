// Updates apply one step of an optimizer to the rows of a table.
#pragma once

#include <cstdint>
#include <optional>

#include "base/execution_context.h"
#include "base/status.h"
#include "embedding/optimizers.h"
#include "sparsecore/triples.h"

namespace opwright::sparsecore {

// A value in a row that is outside its valid range. `table` 0 means the weights. Larger values
// mean the slots.
struct RowError {
  int64_t table = 0, row = 0, column = 0;
  float value = 0;
  embedding::Range range = embedding::Range::kFinite;
};

// Applies the optimizer to each row of the triples. The row's gradient is the sum of gain *
// gradients[sample]. `tables` contains the table and then the optimizer's slots, [rows, width]
// each. `gradients` is [samples, width]. If the function returns an error, an unspecified part
// of the other rows is updated.
[[nodiscard]] std::optional<RowError> UpdateRows(const Triples& triples, const float* gradients,
                                                 int64_t width, embedding::Optimizer optimizer,
                                                 const embedding::Hyper& hyper,
                                                 float* const* tables, ExecutionContext& exec);

// Returns triples that give row indices[i] the gradient i. If indices are equal, only the last
// one counts.
Status RowsToTriples(const int32_t* indices, int64_t count, int64_t table_rows,
                     Triples* triples);

}  // namespace opwright::sparsecore
