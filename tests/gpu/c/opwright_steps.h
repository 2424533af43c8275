/* Steps of an engine with its tables in the memory of a GPU, for benchmarks: all tables have
 * one shape and one feature each, all samples as many ids.
 *
 * Status and words of what fails are those of opwright_cuda.h. */
#ifndef OPWRIGHT_STEPS_H_
#define OPWRIGHT_STEPS_H_

#include "opwright_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct opwright_steps opwright_steps;

/* On the current device; all work is queued on `stream`. The optimizer is Adagrad. */
OPWRIGHT_CUDA_API int32_t opwright_steps_create(int64_t tables, int64_t rows, int64_t dimension,
                                                int64_t samples, int64_t ids_per_sample,
                                                void* stream, opwright_steps** made);
/* Waits for the device. */
OPWRIGHT_CUDA_API void opwright_steps_destroy(opwright_steps* steps);

/* By table [samples * ids_per_sample] in the memory of the host: their copy begins. */
OPWRIGHT_CUDA_API int32_t opwright_steps_enqueue(opwright_steps* steps,
                                                 const int64_t* const* ids);
/* Queues the lookup of the oldest batch; by table [samples, dimension] on the device. */
OPWRIGHT_CUDA_API int32_t opwright_steps_receive(opwright_steps* steps, float* const* outputs);
/* Queues the update; by table [samples, dimension] on the device, which stay until then. */
OPWRIGHT_CUDA_API int32_t opwright_steps_send(opwright_steps* steps,
                                              const float* const* gradients);

#ifdef __cplusplus
}
#endif

#endif /* OPWRIGHT_STEPS_H_ */
