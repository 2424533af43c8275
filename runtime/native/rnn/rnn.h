// A stack of recurrent layers over complete sequences: the forward and the backward pass.
//
// Both functions require a CallSpec that passed Validate and arrays of the sizes that it
// implies. Lengths are between 0 and time. If `lengths` is null, all lengths are `time`. States
// are [layer, direction, batch, size] for both values of time_major. The functions throw
// std::bad_alloc and nothing else.
#pragma once

#include <cstdint>

#include "base/execution_context.h"
#include "base/float16.h"
#include "rnn/layout.h"
#include "rnn/spec.h"

namespace opwright::rnn {

class WeightCache;

template <class T>
struct ForwardCall {
  const T* input;
  const T* input_h;
  const T* input_c;  // LSTM only.
  const T* params;
  const int32_t* lengths;
  T* output;
  T* output_h;
  T* output_c;  // LSTM only.
  T* reserve;   // The array has ReserveLayout::size elements. It is used only in training.
  uint64_t nonce;
  WeightCache* cache;  // Inference caches packed weights here. It may be null.
  // If not null, these weights are used in place of `params`. This requires inference, a cache,
  // one layer and one direction.
  const KerasWeights<T>* keras;
};

template <class T>
struct BackwardCall {
  const T* input;
  const T* input_h;
  const T* input_c;
  const T* params;
  const int32_t* lengths;
  const T* output;
  const T* output_backprop;
  const T* output_h_backprop;
  const T* output_c_backprop;
  const T* reserve;
  uint64_t nonce;  // The nonce of the forward call.
  T* input_backprop;
  T* input_h_backprop;
  T* input_c_backprop;
  T* params_backprop;
};

// T is float, double, Half or BFloat16.
template <class T>
void Forward(const CallSpec& spec, const ForwardCall<T>& call, ExecutionContext& exec);
template <class T>
void Backward(const CallSpec& spec, const BackwardCall<T>& call, ExecutionContext& exec);

}  // namespace opwright::rnn
