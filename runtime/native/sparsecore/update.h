// Updates apply one step of an optimizer to the rows of a table.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/execution_context.h"
#include "base/status.h"
#include "base/uninitialized_vector.h"
#include "embedding/optimizers.h"
#include "sparsecore/row_arrays.h"
#include "sparsecore/stable_sort.h"
#include "sparsecore/triples.h"

namespace opwright::sparsecore {

// A value in a row that is outside its valid range. `table` 0 means the weights. Larger values
// mean the slots.
struct RowError {
  int64_t table = 0, row = 0, column = 0;
  float value = 0;
  embedding::Range range = embedding::Range::kFinite;
};

// One step of an optimizer on the rows of triples. A row's gradient is the sum of gain *
// gradients[sample]. `tables` contains the table and then the optimizer's slots. The triples
// and all arrays must outlive the object.
class TableStep {
 public:
  TableStep(const Triples& triples, RowArrays<const float> gradients,
            embedding::Optimizer optimizer, const embedding::Hyper& hyper,
            std::vector<RowArrays<float>> tables, ExecutionContext& exec);

  // Returns the first value in the rows of the triples that is outside its range.
  [[nodiscard]] std::optional<RowError> FindError(ExecutionContext& exec) const;
  // Updates the rows. If it returns an error, an unspecified part of the other rows is updated.
  [[nodiscard]] std::optional<RowError> Apply(ExecutionContext& exec) const;
  // Updates the rows. FindError must have returned none, and the rows must be the same still.
  void ApplyChecked(ExecutionContext& exec) const;

 private:
  friend class RowUpdater;

  int64_t width() const { return tables_[0].width(); }
  const UninitializedVector<int64_t>& rows() const { return groups_.keys; }
  int64_t parts() const { return static_cast<int64_t>(tables_.size()); }
  embedding::Range range(int64_t part) const;
  // Whether all values in the rows of these groups are in their ranges.
  bool AreInRange(int64_t first, int64_t last) const;
  RowError FirstError() const;

  const Triples& triples_;
  const Groups groups_;  // A group is the triples of one row.
  const RowArrays<const float> gradients_;
  const embedding::Optimizer optimizer_;
  const embedding::Hyper hyper_;
  const std::vector<RowArrays<float>> tables_;
};

// Applies the optimizer to each row of the triples, as a TableStep does. `tables` contains the
// table and then the optimizer's slots, [rows, width] each. `gradients` is [samples, width]. If
// the function returns an error, an unspecified part of the other rows is updated.
[[nodiscard]] std::optional<RowError> UpdateRows(const Triples& triples, const float* gradients,
                                                 int64_t width, embedding::Optimizer optimizer,
                                                 const embedding::Hyper& hyper,
                                                 float* const* tables, ExecutionContext& exec);

// Returns triples that give row indices[i] the gradient i. If indices are equal, only the last
// one counts.
Status RowsToTriples(const int32_t* indices, int64_t count, int64_t table_rows,
                     Triples* triples, ExecutionContext& exec);

}  // namespace opwright::sparsecore
