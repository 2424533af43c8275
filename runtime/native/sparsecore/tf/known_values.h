// What updates know of the values of variables, so that a step does not read all rows twice.
#pragma once

#include <optional>

#include "embedding/optimizers.h"
#include "tensorflow/core/framework/resource_var.h"

namespace opwright::sparsecore {

// An update leaves values in their ranges, so the next one need not check them. Other ops may
// write to a variable in between. A record therefore holds a reference to the variable's
// tensor. Ops of TensorFlow do not write to a tensor with several references: they give the
// variable another tensor.
//
// The functions need an exclusive lock on the variable.

// Keeps whether all values of the variable are in a range.
void KeepKnown(tensorflow::Var* var, embedding::Range range, bool within);
// Returns what is known of the values of the variable's present tensor. Drops the record.
std::optional<bool> TakeKnown(tensorflow::Var* var, embedding::Range range);
// Drops all records, and with them the memory of tensors that variables do not have any more.
void ForgetKnown();

}  // namespace opwright::sparsecore
