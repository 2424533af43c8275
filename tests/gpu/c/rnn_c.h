/* The native recurrent layers in C, in float32, for programs that are neither in C++ nor have
 * TensorFlow: tests/gpu compares them with cuDNN.
 *
 * Everything is time-major. What can fail returns -1, and rnn_c_error() says why. */
#ifndef OPWRIGHT_TESTS_RNN_C_H_
#define OPWRIGHT_TESTS_RNN_C_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RNN_C_API __attribute__((visibility("default")))

typedef struct {
  int32_t cell; /* 0: relu, 1: tanh, 2: LSTM, 3: GRU; cuDNN's numbers. */
  int32_t skip_input, bidirectional;
  int64_t layers, units, input_size, projection;
  int64_t time, batch; /* Of a run; the layout needs neither. */
} rnn_c_config;

/* CanonicalParam of rnn/layout.h. */
typedef struct {
  int64_t at, rows, columns;
} rnn_c_canonical_param;

/* What a run reads, and what it leaves. input: [time, batch, input_size]; output: [time, batch,
 * directions * hidden]; h, c: [layers * directions, batch, hidden or units]; c of LSTMs only.
 * `params` are as many as `params_size`. */
typedef struct {
  const float *input, *h, *c, *params;
  int64_t params_size;
  float *output, *output_h, *output_c;
} rnn_c_forward;
/* Gradients of what a run leaves, and those of what it reads. */
typedef struct {
  const float *output, *output_h, *output_c;
  float *input, *h, *c, *params;
} rnn_c_backward;

RNN_C_API const char* rnn_c_error(void);

RNN_C_API int64_t rnn_c_params_size(const rnn_c_config* config);
/* The canonical weights (biases: 0) or biases, in their order; how many there are is returned,
 * `capacity` of them at most are written. */
RNN_C_API int64_t rnn_c_canonical_params(const rnn_c_config* config, int32_t biases,
                                         int64_t capacity, rnn_c_canonical_param* params);

/* In inference; with `backward`, in training and then the gradients. */
RNN_C_API int32_t rnn_c_run(const rnn_c_config* config, const rnn_c_forward* forward,
                            const rnn_c_backward* backward);

#ifdef __cplusplus
}
#endif

#endif /* OPWRIGHT_TESTS_RNN_C_H_ */
