// Internals of the engine that engine.cc and engine_waiters.cc share.
#pragma once

#include "embedding/engine.h"

namespace opwright::embedding {

// Whether only this run may use its batches and steps. This is true of a run with private
// batches while it runs. It is true of every failed run, whose batches RunEnded drops.
inline bool IsPrivate(const Run& run) { return run.has_private_batches() || run.failed(); }

// The callback of a call whose wait is over. Its members are moved into it, which cannot fail.
struct Engine::Continuation {
  OnGrant on_grant;
  OnQueued on_queued;  // Exactly one of the two callbacks is set.
  Status status;
  Grant grant;

  void operator()() const { on_grant ? on_grant(status, grant) : on_queued(status); }
};

}  // namespace opwright::embedding
