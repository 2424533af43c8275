// A run is a group of ops that succeed or fail together. If a run succeeds, the engine keeps
// the batches and steps that its ops left. If it fails, the engine drops them, except steps
// that are complete.
//
// On a TensorFlow device a run is one execution of a function, or one call of a session's
// run(). The code that runs the ops reports when and how the run ended.
#pragma once

#include <atomic>
#include <memory>

namespace opwright::embedding {

class Run {
 public:
  enum class State {
    kRunning,
    kEnded,   // Other runs may use the batches that it left in queues.
    kFailed,  // The engine drops its batches and its incomplete steps.
  };

  // `has_private_batches`: no other run may receive this run's batches while it runs.
  explicit Run(bool has_private_batches) : has_private_batches_(has_private_batches) {}
  virtual ~Run() = default;

  State state() const { return state_.load(std::memory_order_acquire); }
  bool failed() const { return state() == State::kFailed; }
  bool has_private_batches() const {
    return has_private_batches_ && state() == State::kRunning;
  }

  // Sets the final state. The caller must notify the engine afterwards; see Engine::RunEnded.
  void End(State state) { state_.store(state, std::memory_order_release); }

 private:
  const bool has_private_batches_;
  std::atomic<State> state_{State::kRunning};
};

// Null for an op that belongs to no run. The effects of such an op are never undone.
using RunRef = std::shared_ptr<const Run>;

}  // namespace opwright::embedding
