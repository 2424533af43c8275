// How the run of a function or of a session ended, as far as its rendezvous shows.
//
// A run that fails aborts its rendezvous, whatever the reason; one that succeeds releases it.
#pragma once

#include <memory>

#include "embedding/run.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::embedding {

// Its callers serialize all calls.
class RunEndDetector {
 public:
  virtual ~RunEndDetector() = default;

  // The state by now. `over`: whether the run's cancellation manager has called back.
  virtual Run::State Find(bool over) const = 0;
  // Whether that state cannot change any more.
  virtual bool IsFinal() const = 0;

  // Watches the rendezvous, if that costs anything only while it is watched.
  virtual void Resume(tensorflow::RendezvousInterface*) {}
  virtual void Pause() {}
};

// For the run that an op belongs to. It watches the rendezvous from Resume on.
std::unique_ptr<RunEndDetector> MakeRunEndDetector(tensorflow::OpKernelContext* context);

}  // namespace opwright::embedding
