/* Embedding tables in the memory of a GPU, for callers in any language.
 *
 * All pointers to data are to memory that the device can reach; streams are cudaStream_t, null
 * the default one. Calls queue work and return; opwright_cuda_check() waits and says what was
 * wrong with ids or gradients. A table's calls are for one stream, or
 * for streams that the caller orders. Every other call that can fail returns a
 * status, and opwright_cuda_error() has the words of the calling thread's last failure. */
#ifndef OPWRIGHT_CUDA_H_
#define OPWRIGHT_CUDA_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OPWRIGHT_CUDA_API __attribute__((visibility("default")))

enum {
  OPWRIGHT_CUDA_OK = 0,
  OPWRIGHT_CUDA_INVALID_ARGUMENT = 1,
  OPWRIGHT_CUDA_FAILED_PRECONDITION = 2,
  OPWRIGHT_CUDA_UNIMPLEMENTED = 3,
  OPWRIGHT_CUDA_OUT_OF_MEMORY = 4,
  OPWRIGHT_CUDA_INTERNAL = 5,
};

typedef struct opwright_cuda_table opwright_cuda_table;

typedef struct {
  const char* name;
  const char* optimizer; /* As OptimizationParameters names it: "adagrad". */
  int64_t rows, dimension;
  float hyper[6]; /* Values of the fields that the optimizer's traits name, a bool as 0 or 1. */
  float clip_gradient[2], clip_weight[2]; /* Infinities: no limit. */
  float decay;                            /* The part of a weight lost at each update, */
  int32_t decay_times_rate;               /* times the learning rate if not 0. */
  int32_t accumulate;                     /* 0: one update an id, one after the other. */
  int32_t every_row; /* Not 0, of Adam and Lion: rows without ids are updated, with zero. */
  int32_t quantized;
  float lower, upper;
  int64_t buckets;
  int64_t chunk_bytes; /* Of an allocation at most, if 64 are enough; 0: 4 GiB. */
} opwright_cuda_config;

/* Sample s has indices[offsets[s]] ... indices[offsets[s + 1] - 1]; its output is
 * scales[s] * sum of per_sample_weights[i] * row indices[i]. */
typedef struct {
  int64_t samples, count;
  const int64_t* offsets;          /* [samples + 1] or null: an id a sample. */
  const int64_t* indices;          /* [count] */
  const float* per_sample_weights; /* [count] or null: ones. */
  const float* scales;             /* [samples] or null: ones. */
} opwright_cuda_bags;

OPWRIGHT_CUDA_API const char* opwright_cuda_error(void);

/* A table of zeros on the current device. */
OPWRIGHT_CUDA_API int32_t opwright_cuda_create(const opwright_cuda_config* config, void* stream,
                                               opwright_cuda_table** table);
/* Waits for the device. */
OPWRIGHT_CUDA_API void opwright_cuda_destroy(opwright_cuda_table* table);

/* Rows first, first + step, ... of the weights (slot -1) or of a slot: [count, dimension]. */
OPWRIGHT_CUDA_API int32_t opwright_cuda_write(opwright_cuda_table* table, int64_t slot,
                                              int64_t first, int64_t step, int64_t count,
                                              const float* from, void* stream);
OPWRIGHT_CUDA_API int32_t opwright_cuda_read(opwright_cuda_table* table, int64_t slot,
                                             int64_t first, int64_t step, int64_t count,
                                             float* to, void* stream);

/* out: [samples, dimension]. */
OPWRIGHT_CUDA_API int32_t opwright_cuda_lookup(opwright_cuda_table* table,
                                               const opwright_cuda_bags* bags, float* out,
                                               void* stream);

/* Bytes that an update of so many ids in so many sources works in. */
OPWRIGHT_CUDA_API int32_t opwright_cuda_update_bytes(opwright_cuda_table* table,
                                                     int64_t sources, int64_t count,
                                                     int64_t* bytes);
/* One update from `sources` bags with gradients of [samples, dimension]. */
OPWRIGHT_CUDA_API int32_t opwright_cuda_update(opwright_cuda_table* table, int64_t sources,
                                               const opwright_cuda_bags* bags,
                                               const float* const* gradients,
                                               float learning_rate, void* workspace,
                                               int64_t workspace_bytes, void* stream);

/* Waits for the stream; refuses if a lookup or update since the last check was bad, in
 * which case no row has changed since. */
OPWRIGHT_CUDA_API int32_t opwright_cuda_check(opwright_cuda_table* table, void* stream);

#ifdef __cplusplus
}
#endif

#endif /* OPWRIGHT_CUDA_H_ */
