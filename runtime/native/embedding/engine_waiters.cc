// The part of the engine that forms steps of batches, and ends the waits of ops.
#include "embedding/engine_waiters.h"

#include <algorithm>
#include <utility>

namespace opwright::embedding {

bool Engine::WouldBeNext(int64_t core, const Batch& batch) const {
  return batch.mode != Mode::kBackwardOnly && queues_[core].empty() && senders_.empty() &&
         steps_.empty() && !writing_ && claims_ == 0;
}

Engine::Queue::const_iterator Engine::Next(int64_t core, const RunRef& run) const {
  const Queue& queue = queues_[core];
  const auto next = std::find_if(queue.begin(), queue.end(), [&](const Queued& one) {
    return !one.run || one.run == run || !IsPrivate(*one.run);
  });
  if (next != queue.end()) return next;
  // All batches in the full queue belong to other runs. One of these runs may itself wait for
  // space in the queue. This run therefore takes one of their batches, because otherwise both
  // runs could wait forever.
  if (static_cast<int64_t>(queue.size()) < kMaxQueued) return queue.end();
  return std::find_if(queue.begin(), queue.end(),
                      [](const Queued& one) { return !one.run->failed(); });
}

bool Engine::HasOwn(const Queue& queue, const RunRef& run) {
  return run && std::any_of(queue.begin(), queue.end(),
                            [&](const Queued& one) { return one.run == run; });
}

// Returns whether a batch of `run` for `core` may join a step. Runs that use different cores
// may share a step. Runs that use a common core must not. In that case, one run has queued
// batches for a core of the other run.
bool Engine::MayJoin(const Step& step, int64_t core, const RunRef& run) const {
  for (size_t c = 0; c < step.size(); ++c) {
    const RunRef& other = step[c].run;
    if (!other || other == run || !IsPrivate(*other)) continue;
    if (other->failed()) return false;
    if (HasOwn(queues_[core], other) || HasOwn(queues_[c], run)) return false;
  }
  return true;
}

size_t Engine::StepFor(int64_t core, const RunRef& run) const {
  for (const bool own : {true, false}) {
    for (size_t s = 0; s < steps_.size(); ++s) {
      if (steps_[s][core].batch) continue;
      const bool is_own = run && std::any_of(steps_[s].begin(), steps_[s].end(),
                                             [&](const Part& p) { return p.run == run; });
      if (own ? is_own : MayJoin(steps_[s], core, run)) return s;
    }
  }
  return steps_.size();
}

bool Engine::MayBegin(int64_t core, const RunRef& run, const Batch& batch) const {
  if (batch.mode == Mode::kInference) return !StepIsComplete();
  return StepFor(core, run) < (configuration_.pipelined ? 2 : 1);
}

// Makes a batch part of a step. Callers do nothing after it that may fail.
Engine::Part* Engine::Begin(int64_t core, const RunRef& run,
                            const std::shared_ptr<const Batch>& batch) {
  const size_t step = StepFor(core, run);
  if (step == steps_.size()) steps_.emplace_back(queues_.size());
  Part& part = steps_[step][core];
  part.batch = batch;
  part.run = run;
  return &part;
}

Engine::Part* Engine::Unsent(int64_t core, const RunRef& run, size_t* step) {
  for (const bool own : {true, false}) {
    for (*step = 0; *step < steps_.size(); ++*step) {
      Part& part = steps_[*step][core];
      if (!part.batch || part.sharing || part.sent) continue;
      const bool is_own = part.run == run;
      const bool is_free = !part.run || !IsPrivate(*part.run);
      if (own ? is_own : is_free) return &part;
    }
  }
  return nullptr;
}

Engine::Part* Engine::PartOf(int64_t core, const Batch* batch) {
  for (Step& step : steps_) {
    if (step[core].batch.get() == batch) return &step[core];
  }
  return nullptr;
}

void Engine::RemoveEmptySteps() {
  steps_.erase(std::remove_if(steps_.begin(), steps_.end(),
                              [](const Step& step) {
                                return std::none_of(step.begin(), step.end(),
                                                    [](const Part& p) { return p.batch; });
                              }),
               steps_.end());
}

void Engine::DropPrepared(const PreparedRef& prepared) {
  if (distributed_ && prepared) distributed_->Drop(prepared);
}

void Engine::GrantWaiters(Continuations* continuations) {
  if (writing_ || claims_ > 0) return;
  for (bool more = true; more;) {
    more = false;
    GrantReceivers(continuations, &more);
    GrantSenders(continuations, &more);
  }
}

void Engine::GrantReceivers(Continuations* continuations, bool* more) {
  std::vector<bool> passed(queues_.size());  // Whether an earlier call of the core waits.
  for (auto one = receivers_.begin(); one != receivers_.end();) {
    if (one->run && one->run->failed()) {  // The op is about to be cancelled.
      ++one;
      continue;
    }
    const auto next = Next(one->core, one->run);
    const bool found = next != queues_[one->core].end();
    const bool in_turn = !passed[one->core] || HasOwn(queues_[one->core], one->run);
    const bool backward_only = found && next->batch->mode == Mode::kBackwardOnly;
    if (!found || !in_turn || !(backward_only || MayBegin(one->core, one->run, *next->batch))) {
      passed[one->core] = true;
      ++one;
      continue;
    }
    Continuation continuation;
    continuation.grant.core = one->core;
    if (backward_only) {
      continuation.status = RefuseBackwardOnly(one->core, one->run);
    } else {
      continuation.grant.batch = next->batch;
      continuation.grant.run = next->run;
      continuation.grant.prepared = next->prepared;
    }
    continuations->reserve(continuations->size() + 1);
    if (!backward_only) {
      if (next->batch->mode == Mode::kTraining) {
        Begin(one->core, one->run, next->batch)->prepared = next->prepared;
      }
      queues_[one->core].erase(next);
      ++lookups_;
    }
    continuation.on_grant = std::move(one->on_grant);
    continuations->push_back(std::move(continuation));
    one = receivers_.erase(one);
    *more = true;
  }
}

void Engine::GrantSenders(Continuations* continuations, bool* more) {
  std::vector<bool> passed(queues_.size());
  for (auto one = senders_.begin(); one != senders_.end();) {
    Queue& queue = queues_[one->core];
    if (one->run && one->run->failed()) {
      ++one;
      continue;
    }
    if (passed[one->core] || static_cast<int64_t>(queue.size()) >= kMaxQueued) {
      passed[one->core] = true;
      ++one;
      continue;
    }
    continuations->reserve(continuations->size() + 1);
    queue.push_back({one->batch, one->run, one->prepared});
    Continuation continuation;
    continuation.on_queued = std::move(one->on_queued);
    continuations->push_back(std::move(continuation));
    one = senders_.erase(one);
    *more = true;
  }
}

}  // namespace opwright::embedding
