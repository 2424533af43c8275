#include "rnn/spec.h"

#include <limits>
#include <string>

#include "base/checked.h"
#include "rnn/layout.h"

namespace opwright::rnn {
namespace {

Status Positive(const char* name, int64_t value) {
  if (value > 0) return OkStatus();
  return InvalidArgumentError(name, "must be positive, is " + std::to_string(value));
}

}  // namespace

Status Validate(const StackSpec& stack) {
  OPWRIGHT_RETURN_IF_ERROR(Positive("num_layers", stack.layers));
  OPWRIGHT_RETURN_IF_ERROR(Positive("num_units", stack.units));
  OPWRIGHT_RETURN_IF_ERROR(Positive("input_size", stack.input_size));
  if (stack.projection < 0 || stack.projection > stack.units) {
    return InvalidArgumentError(
        "num_proj", "must lie between 0 and num_units = " + std::to_string(stack.units) +
                        ", is " + std::to_string(stack.projection));
  }
  if (stack.projection > 0 && stack.cell != Cell::kLstm) {
    return InvalidArgumentError("num_proj", "only an lstm has a projection; must be 0, is " +
                                                std::to_string(stack.projection));
  }
  if (stack.skip_input && stack.input_size != stack.units) {
    return InvalidArgumentError("input_mode",
                                "skip_input needs input_size = num_units, but they are " +
                                    std::to_string(stack.input_size) + " and " +
                                    std::to_string(stack.units));
  }
  if (!CheckedParamsSize(stack).fits()) {
    return InvalidArgumentError(
        "num_units",
        "the number of parameters of num_layers = " + std::to_string(stack.layers) +
            ", num_units = " + std::to_string(stack.units) +
            ", input_size = " + std::to_string(stack.input_size) + " overflows");
  }
  return OkStatus();
}

Status Validate(const CallSpec& spec) {
  const StackSpec& stack = spec;
  OPWRIGHT_RETURN_IF_ERROR(Validate(stack));
  if (spec.time <= 0 || spec.batch <= 0) {
    return InvalidArgumentError("input", "needs at least one step and one sequence, has " +
                                             std::to_string(spec.time) + " and " +
                                             std::to_string(spec.batch));
  }
  const Checked steps = Checked(spec.time) * spec.batch;
  const Checked saved = steps * spec.layers * spec.dirs() * 6 * spec.units;
  if (spec.time > std::numeric_limits<int32_t>::max() ||
      spec.batch > std::numeric_limits<int32_t>::max() || !saved.fits() ||
      !(steps * spec.input_size).fits() || !(steps * spec.width()).fits()) {
    return InvalidArgumentError("input", "its shape, [" + std::to_string(spec.time) +
                                             " steps, " + std::to_string(spec.batch) +
                                             " sequences, " + std::to_string(spec.input_size) +
                                             "], makes sizes overflow");
  }
  return OkStatus();
}

}  // namespace opwright::rnn
