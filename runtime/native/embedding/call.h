// A call: what its ops do to an engine stands or falls together.
//
// On a TensorFlow device that is the run of a function or of a session; whoever runs ops
// says when one has ended, and how.
#pragma once

#include <atomic>
#include <memory>

namespace opwright::embedding {

class Call {
 public:
  enum class State {
    kRunning,
    kEnded,   // What it left in queues is anybody's.
    kFailed,  // What it began is undone.
  };

  // Whether batches that it enqueues are for itself as long as it runs.
  explicit Call(bool keeps_batches) : keeps_batches_(keeps_batches) {}
  virtual ~Call() = default;

  State state() const { return state_.load(std::memory_order_acquire); }
  bool failed() const { return state() == State::kFailed; }
  bool keeps_batches() const { return keeps_batches_ && state() == State::kRunning; }

  // Engines that it was given to have to be told; see Engine::CallEnded.
  void End(State state) { state_.store(state, std::memory_order_release); }

 private:
  const bool keeps_batches_;
  std::atomic<State> state_{State::kRunning};
};

// Null: an op that belongs to none. What it does stands.
using CallRef = std::shared_ptr<const Call>;

}  // namespace opwright::embedding
