// A stack of recurrent layers over complete sequences: the forward and the backward pass.
//
// Both functions require a CallSpec that passed Validate, arrays of the sizes it implies, and
// lengths between 0 and time (null: all are `time`). The states are [layer, direction, batch,
// size] for both values of time_major. They throw std::bad_alloc and nothing else.
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
  T* reserve;   // Training only: ReserveLayout::size elements.
  uint64_t nonce;
  WeightCache* cache;  // Used in inference; null for none.
  // Used in place of `params` for one layer and direction, in inference, with a cache.
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
  uint64_t nonce;  // The forward call's.
  T* input_backprop;
  T* input_h_backprop;
  T* input_c_backprop;
  T* params_backprop;
};

// T: float, double, Half, BFloat16.
template <class T>
void Forward(const CallSpec& spec, const ForwardCall<T>& call, ExecutionContext& exec);
template <class T>
void Backward(const CallSpec& spec, const BackwardCall<T>& call, ExecutionContext& exec);

}  // namespace opwright::rnn
