// Determines which run an op belongs to and how runs end. A run is one execution of a function,
// one run() of a session, or everything that a Python thread does within one step.
//
// TensorFlow does not give a kernel its run or the end of the run. But each run has a
// cancellation manager and a rendezvous. The manager calls its callbacks when the run fails, is
// cancelled or ends. A failed run aborts the rendezvous, for any cause of failure, and a
// successful run releases it. Together they show how the run ended.
#pragma once

#include <cstdint>

#include "embedding/run.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::embedding {

// Returns the run of an op. Returns null if the op is part of no run, for example in a
// dataset's function. When the run ends, the engine of this process is notified.
RunRef RunOf(tensorflow::OpKernelContext* context);

// Finds runs that have ended without a callback. Ops call this function before they use an
// engine.
void FindEndedRuns();

// Stops watching a run that has left nothing in the engine. Its end does not matter then. If
// the run has another op later, RunOf resumes watching.
void Untrack(const RunRef& run);

// Begins or ends a step of the calling thread. All ops that the thread runs eagerly within the
// step are one run. If the step fails, the runs of the functions that the thread called in it
// fail too. Steps may be nested.
void BeginStep();
void EndStep(bool failed);

// StepOfThread returns the number of the calling thread's innermost step, or 0 outside of a
// step. Another thread that does part of the step's work calls JoinStep, while the first thread
// waits for it. Ops in a step that has ended are refused.
int64_t StepOfThread();
void JoinStep(int64_t step);
void LeaveStep();

}  // namespace opwright::embedding
