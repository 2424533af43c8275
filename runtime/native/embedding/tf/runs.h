// Which run an op belongs to, and how runs end: the run of a function or of a session, or
// what a Python thread does within one step.
//
// TensorFlow tells kernels of neither. But each run has a cancellation manager, whose callbacks
// are called when it fails, is cancelled or is over; and a rendezvous, which a run that fails
// aborts, whatever the reason, and one that succeeds lets go. Together they say which it was.
#pragma once

#include <cstdint>

#include "embedding/run.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::embedding {

// The run of an op; null if it is part of none, as in a dataset's function. The engine of
// this process hears of its end.
RunRef RunOf(tensorflow::OpKernelContext* context);

// Finds runs that have ended without a callback. Ops call it before they use an engine.
void FindEndedRuns();

// The run has left nothing in the engine: its end does not matter, unless another op of it
// comes.
void Untrack(const RunRef& run);

// A step of the calling thread: ops that it runs eagerly are one run, and functions that it
// runs fail with the step. Steps nest.
void BeginStep();
void EndStep(bool failed);

// The innermost step of the calling thread by its number, 0 outside of one. Another thread that
// does a part of its work joins it, while the first one waits for it. What it does in a step
// that has ended is refused.
int64_t StepOfThread();
void JoinStep(int64_t step);
void LeaveStep();

}  // namespace opwright::embedding
