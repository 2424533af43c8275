// Detects how the run of a function or of a session ended, from the state of its rendezvous.
//
// A failed run aborts its rendezvous, for any cause of failure. A successful run releases it.
#pragma once

#include <memory>

#include "embedding/run.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::embedding {

// The callers must serialize all calls of one detector.
class RunEndDetector {
 public:
  virtual ~RunEndDetector() = default;

  // Returns the current state. `over` is whether the run's cancellation manager has called
  // back.
  virtual Run::State Find(bool over) const = 0;
  // Returns whether the state that Find returns cannot change any more.
  virtual bool IsFinal() const = 0;

  // Watches the rendezvous, for detectors where watching has a cost.
  virtual void Resume(tensorflow::RendezvousInterface*) {}
  virtual void Pause() {}
};

// Creates a detector for the run that the op belongs to. It watches the rendezvous after
// Resume.
std::unique_ptr<RunEndDetector> MakeRunEndDetector(tensorflow::OpKernelContext* context);

}  // namespace opwright::embedding
