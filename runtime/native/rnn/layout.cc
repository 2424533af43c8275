#include "rnn/layout.h"

#include <cstring>

namespace opwright::rnn {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccdu;
  return hash ^ (hash >> 33);
}

// A part of the fingerprint in the header of the reserve. If ReserveLayout changes, change this
// constant too. A reserve in another layout is then refused.
constexpr uint64_t kMagic = 0x324e4e5250574f21u;

// The header stores each byte of its two integers as one element (ReserveLayout). Returns the
// element for byte i of `value`, where byte 0 is the lowest.
float ByteOf(uint64_t value, int64_t i) {
  return static_cast<float>((value >> (8 * i)) & 0xff);
}

}  // namespace

Checked CheckedParamsSize(const StackSpec& stack) {
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

int64_t ParamsSize(const StackSpec& stack) { return CheckedParamsSize(stack).value(); }

std::vector<LayerParams> ParamsLayout(const StackSpec& stack) {
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

std::vector<CanonicalParam> CanonicalWeights(const StackSpec& stack) {
  std::vector<CanonicalParam> params;
  const std::vector<LayerParams> layout = ParamsLayout(stack);
  for (size_t i = 0; i < layout.size(); ++i) {
    const int64_t layer = static_cast<int64_t>(i) / stack.dirs();
    const int64_t in = stack.has_input_weights(layer) ? stack.layer_input(layer) : 0;
    for (int64_t gate = 0; gate < stack.gates(); ++gate) {
      params.push_back({layout[i].input_weights + gate * stack.units * in, stack.units, in});
    }
    for (int64_t gate = 0; gate < stack.gates(); ++gate) {
      params.push_back({layout[i].recurrent_weights + gate * stack.units * stack.hidden(),
                        stack.units, stack.hidden()});
    }
    if (stack.projection > 0) {
      params.push_back({layout[i].projection, stack.projection, stack.units});
    }
  }
  return params;
}

std::vector<CanonicalParam> CanonicalBiases(const StackSpec& stack) {
  std::vector<CanonicalParam> params;
  for (const LayerParams& layer : ParamsLayout(stack)) {
    for (const int64_t begin : {layer.input_bias, layer.recurrent_bias}) {
      for (int64_t gate = 0; gate < stack.gates(); ++gate) {
        params.push_back({begin + gate * stack.units, stack.units, -1});
      }
    }
  }
  return params;
}

ReserveLayout::ReserveLayout(const CallSpec& spec) {
  const int64_t steps = spec.time * spec.batch;
  const int64_t stacked = spec.layers * spec.dirs();
  const bool plain = spec.gates() == 1;
  saved_gates = plain ? 0 : 4;
  gates = kHeaderElements;
  cells = gates + stacked * steps * saved_gates * spec.units;
  hidden = cells + (spec.cell == Cell::kLstm ? stacked * steps * spec.units : 0);
  size = hidden + (spec.layers - 1) * steps * spec.width();
}

uint64_t Fingerprint(const CallSpec& spec, int64_t element_bytes) {
  uint32_t dropout;
  std::memcpy(&dropout, &spec.dropout, sizeof dropout);
  uint64_t hash = kMagic;
  for (const int64_t value :
       {static_cast<int64_t>(spec.cell), int64_t{spec.skip_input}, int64_t{spec.bidirectional},
        spec.layers, spec.units, spec.input_size, spec.projection, spec.time, spec.batch,
        int64_t{spec.time_major}, static_cast<int64_t>(dropout),
        static_cast<int64_t>(spec.seed), element_bytes}) {
    hash = Mix(hash, static_cast<uint64_t>(value));
  }
  return hash;
}

template <class T>
void WriteHeader(const CallSpec& spec, uint64_t nonce, T* reserve) {
  const uint64_t fingerprint = Fingerprint(spec, sizeof(T));
  for (int64_t i = 0; i < ReserveLayout::kWordElements; ++i) {
    Store(static_cast<Compute<T>>(ByteOf(fingerprint, i)), reserve + i);
    Store(static_cast<Compute<T>>(ByteOf(nonce, i)),
          reserve + ReserveLayout::kWordElements + i);
  }
}

template <class T>
std::optional<uint64_t> ReadHeader(const CallSpec& spec, const T* reserve) {
  const uint64_t fingerprint = Fingerprint(spec, sizeof(T));
  uint64_t nonce = 0;
  for (int64_t i = 0; i < ReserveLayout::kWordElements; ++i) {
    if (!(Load(reserve[i]) == ByteOf(fingerprint, i))) return std::nullopt;
    const double byte = Load(reserve[ReserveLayout::kWordElements + i]);
    if (!(byte >= 0 && byte < 256)) return std::nullopt;
    nonce |= static_cast<uint64_t>(byte) << (8 * i);
  }
  return nonce;
}

#define OPWRIGHT_HEADER_OF(T)                               \
  template void WriteHeader(const CallSpec&, uint64_t, T*); \
  template std::optional<uint64_t> ReadHeader(const CallSpec&, const T*)
OPWRIGHT_HEADER_OF(float);
OPWRIGHT_HEADER_OF(double);
OPWRIGHT_HEADER_OF(Half);
OPWRIGHT_HEADER_OF(BFloat16);
#undef OPWRIGHT_HEADER_OF

}  // namespace opwright::rnn
