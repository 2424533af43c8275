#include "rnn_c.h"

#include <algorithm>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "base/testing/pool.h"
#include "rnn/layout.h"
#include "rnn/rnn.h"

namespace {

using opwright::InvalidArgumentError;
using opwright::Status;
using opwright::rnn::CallSpec;
using opwright::rnn::CanonicalParam;
using opwright::rnn::StackSpec;

thread_local std::string last_error;

// What `call` returns, or -1 for what it threw.
template <class Call>
auto Try(const Call& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& error) {
    last_error = error.what();
    return -1;
  }
}

int32_t Refuse(const Status& status) {
  last_error = status.message();
  return -1;
}

bool SpecOf(const rnn_c_config& from, CallSpec* spec) {
  if (from.cell < 0 || from.cell > 3) {
    Refuse(InvalidArgumentError("cell",
                                "must lie between 0 and 3, is " + std::to_string(from.cell)));
    return false;
  }
  spec->cell = static_cast<opwright::rnn::Cell>(from.cell);
  spec->skip_input = from.skip_input != 0;
  spec->bidirectional = from.bidirectional != 0;
  spec->layers = from.layers;
  spec->units = from.units;
  spec->input_size = from.input_size;
  spec->projection = from.projection;
  spec->time = from.time;
  spec->batch = from.batch;
  const StackSpec& stack = *spec;
  const Status status = opwright::rnn::Validate(stack);
  if (!status.ok()) Refuse(status);
  return status.ok();
}

opwright::Pool& SharedPool() {
  static opwright::Pool pool(
      static_cast<int>(std::max(1u, std::min(16u, std::thread::hardware_concurrency()))));
  return pool;
}

}  // namespace

const char* rnn_c_error(void) { return last_error.c_str(); }

int64_t rnn_c_params_size(const rnn_c_config* from) {
  return Try([&]() -> int64_t {
    CallSpec spec;
    return SpecOf(*from, &spec) ? opwright::rnn::ParamsSize(spec) : -1;
  });
}

int64_t rnn_c_canonical_params(const rnn_c_config* from, int32_t biases, int64_t capacity,
                               rnn_c_canonical_param* params) {
  return Try([&]() -> int64_t {
    CallSpec spec;
    if (!SpecOf(*from, &spec)) return -1;
    const std::vector<CanonicalParam> all =
        biases ? opwright::rnn::CanonicalBiases(spec) : opwright::rnn::CanonicalWeights(spec);
    const int64_t count = static_cast<int64_t>(all.size());
    for (int64_t i = 0; i < std::min(capacity, count); ++i) {
      params[i] = {all[i].at, all[i].rows, all[i].columns};
    }
    return count;
  });
}

int32_t rnn_c_run(const rnn_c_config* from, const rnn_c_forward* forward,
                  const rnn_c_backward* backward) {
  return Try([&]() -> int32_t {
    CallSpec spec;
    if (!SpecOf(*from, &spec)) return -1;
    spec.training = backward != nullptr;
    if (const Status status = opwright::rnn::Validate(spec); !status.ok())
      return Refuse(status);
    const int64_t size = opwright::rnn::ParamsSize(spec);
    if (forward->params_size != size) {
      return Refuse(InvalidArgumentError(
          "params_size",
          "must be " + std::to_string(size) + ", is " + std::to_string(forward->params_size)));
    }
    opwright::PoolContext exec(SharedPool());
    std::vector<float> reserve(spec.training ? opwright::rnn::ReserveLayout(spec).size : 0);

    opwright::rnn::ForwardCall<float> run{};
    run.input = forward->input;
    run.input_h = forward->h;
    run.input_c = forward->c;
    run.params = forward->params;
    run.output = forward->output;
    run.output_h = forward->output_h;
    run.output_c = forward->output_c;
    run.reserve = reserve.data();
    opwright::rnn::Forward(spec, run, exec);
    if (!backward) return 0;

    opwright::rnn::BackwardCall<float> back{};
    back.input = forward->input;
    back.input_h = forward->h;
    back.input_c = forward->c;
    back.params = forward->params;
    back.output = forward->output;
    back.output_backprop = backward->output;
    back.output_h_backprop = backward->output_h;
    back.output_c_backprop = backward->output_c;
    back.reserve = reserve.data();
    back.input_backprop = backward->input;
    back.input_h_backprop = backward->h;
    back.input_c_backprop = backward->c;
    back.params_backprop = backward->params;
    opwright::rnn::Backward(spec, back, exec);
    return 0;
  });
}
