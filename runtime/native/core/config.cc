#include "config.h"

#include <cstring>
#include <limits>

namespace opwright {
namespace {

// Arithmetic that remembers whether it ever overflowed.
class Checked {
 public:
  Checked(int64_t value) : value_(value) {}  // NOLINT: plain numbers mix in.

  Checked operator+(const Checked& other) const {
    Checked sum(0);
    sum.overflowed_ = overflowed_ | other.overflowed_ |
                      __builtin_add_overflow(value_, other.value_, &sum.value_);
    return sum;
  }
  Checked operator*(const Checked& other) const {
    Checked product(0);
    product.overflowed_ = overflowed_ | other.overflowed_ |
                          __builtin_mul_overflow(value_, other.value_, &product.value_);
    return product;
  }
  // Nothing computed later from a size that fits can overflow: bytes, padding to whole
  // vectors, two directions.
  bool fits() const {
    return !overflowed_ && value_ <= std::numeric_limits<int64_t>::max() / 4096;
  }
  int64_t value() const { return value_; }

 private:
  int64_t value_;
  bool overflowed_ = false;
};

Checked CountParams(const Stack& stack) {
  const Checked units(stack.units);
  const Checked gates(stack.gates());
  const Checked recurrent = gates * units * stack.hidden();
  const Checked projection = Checked(stack.projection) * units;
  const Checked biases = gates * units * 2;
  const Checked rest = recurrent + projection + biases;
  const Checked first =
      stack.has_input_weights(0) ? gates * units * stack.input_size + rest : rest;
  const Checked width = Checked(stack.dirs()) * stack.hidden();
  const Checked later = gates * units * width + rest;
  return Checked(stack.dirs()) * (first + later * (stack.layers - 1));
}

std::optional<Error> Positive(const char* name, int64_t value) {
  if (value > 0) return std::nullopt;
  return Error{name, "must be positive, is " + std::to_string(value)};
}

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccdu;
  return hash ^ (hash >> 33);
}

constexpr uint64_t kMagic = 0x314e4e5250574f21u;

uint64_t Fingerprint(const Config& config, int64_t element_bytes) {
  uint32_t dropout;
  std::memcpy(&dropout, &config.dropout, sizeof dropout);
  uint64_t hash = 0;
  for (const int64_t value :
       {static_cast<int64_t>(config.cell), int64_t{config.skip_input},
        int64_t{config.bidirectional}, config.layers, config.units, config.input_size,
        config.projection, config.time, config.batch, int64_t{config.time_major},
        static_cast<int64_t>(dropout), static_cast<int64_t>(config.seed),
        element_bytes}) {
    hash = Mix(hash, static_cast<uint64_t>(value));
  }
  return hash;
}

}  // namespace

std::optional<Error> Check(const Stack& stack) {
  if (auto error = Positive("num_layers", stack.layers)) return error;
  if (auto error = Positive("num_units", stack.units)) return error;
  if (auto error = Positive("input_size", stack.input_size)) return error;
  if (stack.projection < 0 || stack.projection > stack.units) {
    return Error{"num_proj", "must lie between 0 and num_units = " +
                                 std::to_string(stack.units) + ", is " +
                                 std::to_string(stack.projection)};
  }
  if (stack.projection > 0 && stack.cell != Cell::kLstm) {
    return Error{"num_proj", "only an lstm has a projection; must be 0, is " +
                                 std::to_string(stack.projection)};
  }
  if (stack.skip_input && stack.input_size != stack.units) {
    return Error{"input_mode", "skip_input needs input_size = num_units, but they are " +
                                   std::to_string(stack.input_size) + " and " +
                                   std::to_string(stack.units)};
  }
  if (!CountParams(stack).fits()) {
    return Error{"num_units", "the number of parameters of num_layers = " +
                                  std::to_string(stack.layers) + ", num_units = " +
                                  std::to_string(stack.units) + ", input_size = " +
                                  std::to_string(stack.input_size) + " overflows"};
  }
  return std::nullopt;
}

std::optional<Error> Check(const Config& config) {
  const Stack& stack = config;
  if (auto error = Check(stack)) return error;
  if (config.time <= 0 || config.batch <= 0) {
    return Error{"input", "needs at least one step and one sequence, has " +
                              std::to_string(config.time) + " and " +
                              std::to_string(config.batch)};
  }
  const Checked steps = Checked(config.time) * config.batch;
  const Checked kept = steps * config.layers * config.dirs() * 6 * config.units;
  if (config.time > std::numeric_limits<int32_t>::max() ||
      config.batch > std::numeric_limits<int32_t>::max() || !kept.fits() ||
      !(steps * config.input_size).fits() || !(steps * config.width()).fits()) {
    return Error{"input", "its shape, [" + std::to_string(config.time) + " steps, " +
                              std::to_string(config.batch) + " sequences, " +
                              std::to_string(config.input_size) +
                              "], makes sizes overflow"};
  }
  return std::nullopt;
}

int64_t ParamsSize(const Stack& stack) { return CountParams(stack).value(); }

std::vector<LayerParams> ParamsLayout(const Stack& stack) {
  std::vector<LayerParams> layout(stack.layers * stack.dirs());
  const int64_t rows = stack.gates() * stack.units;
  int64_t at = 0;
  for (size_t i = 0; i < layout.size(); ++i) {
    const int64_t layer = static_cast<int64_t>(i) / stack.dirs();
    layout[i].input_weights = at;
    if (stack.has_input_weights(layer)) at += rows * stack.layer_input(layer);
    layout[i].recurrent_weights = at;
    at += rows * stack.hidden();
    layout[i].projection = at;
    at += stack.projection * stack.units;
  }
  for (LayerParams& params : layout) {
    params.input_bias = at;
    params.recurrent_bias = at + rows;
    at += 2 * rows;
  }
  return layout;
}

Reserve::Reserve(const Config& config, int64_t element_bytes) {
  const int64_t steps = config.time * config.batch;
  const int64_t stacked = config.layers * config.dirs();
  const bool plain = config.gates() == 1;
  kept_gates = plain ? 0 : 4;
  gates = kHeaderBytes / element_bytes;
  cells = gates + stacked * steps * kept_gates * config.units;
  hidden = cells + (config.cell == Cell::kLstm ? stacked * steps * config.units : 0);
  size = hidden + (config.layers - 1) * steps * config.width();
}

ReserveHeader MakeHeader(const Config& config, int64_t element_bytes, uint64_t nonce) {
  return {kMagic, Fingerprint(config, element_bytes), nonce};
}

std::optional<uint64_t> ReadHeader(const Config& config, int64_t element_bytes,
                                   const void* reserve) {
  ReserveHeader header;
  std::memcpy(&header, reserve, sizeof header);
  if (header.magic != kMagic ||
      header.fingerprint != Fingerprint(config, element_bytes)) {
    return std::nullopt;
  }
  return header.nonce;
}

}  // namespace opwright
