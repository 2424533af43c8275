#include "rnn/spec.h"

#include <limits>
#include <string>

#include "base/checked.h"
#include "base/text.h"
#include "rnn/layout.h"

namespace opwright::rnn {
namespace {

Status Positive(const char* name, int64_t value) {
  if (value > 0) return OkStatus();
  return InvalidArgumentError(name, StrCat("must be positive, is ", value));
}

}  // namespace

Status Validate(const StackSpec& stack) {
  OPWRIGHT_RETURN_IF_ERROR(Positive("num_layers", stack.layers));
  OPWRIGHT_RETURN_IF_ERROR(Positive("num_units", stack.units));
  OPWRIGHT_RETURN_IF_ERROR(Positive("input_size", stack.input_size));
  if (stack.projection < 0 || stack.projection > stack.units) {
    return InvalidArgumentError(
        "num_proj",
        StrCat("must lie between 0 and num_units = ", stack.units, ", is ", stack.projection));
  }
  if (stack.projection > 0 && stack.cell != Cell::kLstm) {
    return InvalidArgumentError(
        "num_proj", StrCat("only an lstm has a projection; must be 0, is ", stack.projection));
  }
  if (stack.skip_input && stack.input_size != stack.units) {
    return InvalidArgumentError("input_mode",
                                StrCat("skip_input needs input_size = num_units, but they are ",
                                       stack.input_size, " and ", stack.units));
  }
  if (!CheckedParamsSize(stack).fits()) {
    return InvalidArgumentError(
        "num_units", StrCat("the number of parameters of num_layers = ", stack.layers,
                            ", num_units = ", stack.units, ", input_size = ", stack.input_size,
                            " overflows"));
  }
  return OkStatus();
}

Status Validate(const CallSpec& spec) {
  const StackSpec& stack = spec;
  OPWRIGHT_RETURN_IF_ERROR(Validate(stack));
  if (spec.time <= 0 || spec.batch <= 0) {
    return InvalidArgumentError(
        "input", StrCat("needs at least one step and one sequence, has ", spec.time, " and ",
                        spec.batch));
  }
  const Checked steps = Checked(spec.time) * spec.batch;
  const Checked saved = steps * spec.layers * spec.dirs() * 6 * spec.units;
  if (spec.time > std::numeric_limits<int32_t>::max() ||
      spec.batch > std::numeric_limits<int32_t>::max() || !saved.fits() ||
      !(steps * spec.input_size).fits() || !(steps * spec.width()).fits()) {
    return InvalidArgumentError(
        "input", StrCat("its shape, [", spec.time, " steps, ", spec.batch, " sequences, ",
                        spec.input_size, "], makes sizes overflow"));
  }
  return OkStatus();
}

}  // namespace opwright::rnn
