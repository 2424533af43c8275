// What the sources of the engine share.
#pragma once

#include "embedding/engine.h"

namespace opwright::embedding {

// Whether no other run may use a run's batches and steps. That is while it runs, and after it
// failed until RunEnded drops them.
inline bool IsPrivate(const Run& run) { return run.has_private_batches() || run.failed(); }

// A callback whose wait is over. To make one moves its members and cannot fail.
struct Engine::Continuation {
  OnGrant on_grant;
  OnQueued on_queued;  // One of the two.
  Status status;
  Grant grant;

  void operator()() const { on_grant ? on_grant(status, grant) : on_queued(status); }
};

}  // namespace opwright::embedding
