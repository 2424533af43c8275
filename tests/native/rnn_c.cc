#include "rnn_c.h"

#include <algorithm>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "core/pieces.h"
#include "core/rnn.h"
#include "pool_host.h"

namespace {

using opwright::Config;
using opwright::Error;
using opwright::Piece;
using opwright::Stack;

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

int32_t Refuse(const Error& error) {
  last_error = error.argument + ": " + error.problem;
  return -1;
}

bool ConfigOf(const rnn_c_config& from, Config* config) {
  if (from.cell < 0 || from.cell > 3) {
    Refuse({"cell", "must lie between 0 and 3, is " + std::to_string(from.cell)});
    return false;
  }
  config->cell = static_cast<opwright::Cell>(from.cell);
  config->skip_input = from.skip_input != 0;
  config->bidirectional = from.bidirectional != 0;
  config->layers = from.layers;
  config->units = from.units;
  config->input_size = from.input_size;
  config->projection = from.projection;
  config->time = from.time;
  config->batch = from.batch;
  const Stack& stack = *config;
  const auto error = opwright::Check(stack);
  if (error) Refuse(*error);
  return !error;
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
    Config config;
    return ConfigOf(*from, &config) ? opwright::ParamsSize(config) : -1;
  });
}

int64_t rnn_c_pieces(const rnn_c_config* from, int32_t biases, int64_t room,
                     rnn_c_piece* pieces) {
  return Try([&]() -> int64_t {
    Config config;
    if (!ConfigOf(*from, &config)) return -1;
    const std::vector<Piece> all =
        biases ? opwright::BiasPieces(config) : opwright::WeightPieces(config);
    const int64_t count = static_cast<int64_t>(all.size());
    for (int64_t i = 0; i < std::min(room, count); ++i) {
      pieces[i] = {all[i].at, all[i].rows, all[i].columns};
    }
    return count;
  });
}

int32_t rnn_c_run(const rnn_c_config* from, const rnn_c_forward* forward,
                  const rnn_c_backward* backward) {
  return Try([&]() -> int32_t {
    Config config;
    if (!ConfigOf(*from, &config)) return -1;
    config.training = backward != nullptr;
    if (auto error = opwright::Check(config)) return Refuse(*error);
    const int64_t size = opwright::ParamsSize(config);
    if (forward->params_size != size) {
      return Refuse({"params_size", "must be " + std::to_string(size) + ", is " +
                                        std::to_string(forward->params_size)});
    }
    opwright::PoolHost host(SharedPool());
    std::vector<float> reserve(
        config.training ? opwright::Reserve(config, sizeof(float)).size : 0);

    opwright::ForwardCall<float> run{};
    run.input = forward->input;
    run.input_h = forward->h;
    run.input_c = forward->c;
    run.params = forward->params;
    run.output = forward->output;
    run.output_h = forward->output_h;
    run.output_c = forward->output_c;
    run.reserve = reserve.data();
    opwright::Forward(config, run, host);
    if (!backward) return 0;

    opwright::BackwardCall<float> back{};
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
    opwright::Backward(config, back, host);
    return 0;
  });
}
