// A run: the engine keeps or undoes all that its ops did.
//
// On a TensorFlow device that is the run of a function or of a session. The caller that runs
// ops reports when and how a run ended.
#pragma once

#include <atomic>
#include <memory>

namespace opwright::embedding {

class Run {
 public:
  enum class State {
    kRunning,
    kEnded,   // Other runs may use what it left in queues.
    kFailed,  // What it began is undone.
  };

  // Whether batches that it enqueues are for itself as long as it runs.
  explicit Run(bool has_private_batches) : has_private_batches_(has_private_batches) {}
  virtual ~Run() = default;

  State state() const { return state_.load(std::memory_order_acquire); }
  bool failed() const { return state() == State::kFailed; }
  bool has_private_batches() const {
    return has_private_batches_ && state() == State::kRunning;
  }

  // Its engine has to be notified; see Engine::RunEnded.
  void End(State state) { state_.store(state, std::memory_order_release); }

 private:
  const bool has_private_batches_;
  std::atomic<State> state_{State::kRunning};
};

// Null: an op that belongs to none. What it does stands.
using RunRef = std::shared_ptr<const Run>;

}  // namespace opwright::embedding
