// Updates: an optimizer's step for the rows of a table.
#pragma once

#include <cstdint>
#include <optional>

#include "base/execution_context.h"
#include "base/status.h"
#include "embedding/optimizers.h"
#include "sparsecore/triples.h"

namespace opwright::sparsecore {

// A value of a row that is outside its range. `table` 0 is the weights, then come the slots.
struct RowError {
  int64_t table = 0, row = 0, column = 0;
  float value = 0;
  embedding::Range range = embedding::Range::kFinite;
};

// Applies the optimizer to each row of the triples, with the sum of gain * gradients[sample].
// `tables` are the table and the optimizer's slots, of [rows, width] each; `gradients` is
// [samples, width]. If it returns an error, only some of the other rows are updated.
[[nodiscard]] std::optional<RowError> UpdateRows(const Triples& triples, const float* gradients,
                                                 int64_t width, embedding::Optimizer optimizer,
                                                 const embedding::Hyper& hyper,
                                                 float* const* tables, ExecutionContext& exec);

// Triples that give row indices[i] the gradient i. Of equal indices the last one counts.
Status RowsToTriples(const int32_t* indices, int64_t count, int64_t table_rows,
                     Triples* triples);

}  // namespace opwright::sparsecore
