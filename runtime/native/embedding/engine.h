// The steps of an embedding engine: which batch is looked up when, and with which updates
// before it.
//
// Each core has a queue of batches. Enqueue appends to it, Receive takes from it, Send brings
// the gradients of what was received. What the cores receive for training makes steps, a batch
// of each core; a step updates the tables once all cores have sent. Without pipelining, a step
// is looked up after the update of the one before; with it, before that and after the update
// of the last but one. Batches for inference are looked up in the order of the queue, after
// every update that can be made.
//
// Runs are isolated. A run receives its own batches, or batches left by runs that have ended,
// the oldest first. Its gradients are those of what it received. The steps that it is part of
// are its own as long as it has batches for their other cores. When a run fails, RunEnded
// undoes what it enqueued, received and has not sent for all cores. A step that all cores have
// sent stays: all of it will be applied.
//
// Receive and Enqueue never wait: they take a continuation, which may be called at once. It is
// called without a lock held, from the thread that ended the wait. Every other call does what
// work has become possible before it returns, on its own execution context.
//
// What a device finds wrong with an update after that was made, the next Receive, Send or Use
// says, which does nothing else then.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "embedding/distributed_store.h"
#include "embedding/run.h"
#include "embedding/store.h"

namespace opwright::embedding {

class Engine {
 public:
  // Batches that a core's queue holds before Enqueue has to wait.
  static constexpr int64_t kMaxQueued = 128;
  // Steps whose gradients one core may send before the others have sent the first of them:
  // without lookups, nothing else holds it back.
  static constexpr int64_t kMaxStepsAhead = 16;

  static StatusOr<std::shared_ptr<Engine>> Create(const Configuration& configuration,
                                                  std::unique_ptr<TableStore> store);
  static StatusOr<std::shared_ptr<Engine>> Create(const Configuration& configuration,
                                                  std::unique_ptr<DistributedStore> store);

  ~Engine();

  const Configuration& configuration() const { return configuration_; }

  // A batch that may be looked up. Ends with its Lookup.
  struct Grant {
    int64_t core = 0;
    std::shared_ptr<const Batch> batch;
    RunRef run;            // That enqueued it.
    PreparedRef prepared;  // Null: its lookup prepares it.
  };
  using OnGrant = std::function<void(Status, Grant)>;
  using OnQueued = std::function<void(Status)>;
  using WaiterId = int64_t;  // Of an op that waits; 0: it did not have to.

  // Appends a checked batch to a core's queue, once that has capacity. With memory for its
  // activations, its lookup may begin before it is received.
  WaiterId Enqueue(ExecutionContext* exec, int64_t core, Batch batch, OnQueued on_queued,
                   const RunRef& run = {}, const AllocateOutputs& allocate_outputs = {});
  // Requests the next batch of a core.
  WaiterId Receive(ExecutionContext* exec, int64_t core, OnGrant on_grant,
                   const RunRef& run = {});
  // Tells other hosts why a batch is not enqueued.
  void Refuse(const Status& why);
  // Ends a wait. False if its continuation was called or is about to be.
  bool Cancel(WaiterId waiter);
  // What an op waits for, as text; empty if it does not wait.
  std::string WhatFor(WaiterId waiter);

  // Looks up a granted batch, outputs as in TableStore, and goes on with what waited
  // for that. Refused, or with something else that is `wrong`, the batch is the next one of
  // its core again.
  Status Lookup(ExecutionContext* exec, const Grant& grant, float* const* outputs,
                Status wrong = {});

  // The gradients of the oldest step of a core that lacks them, and one learning rate a tag.
  // `values` are checked and, with `owner`, kept until the update. That may come at once:
  // an error is this call's too, but the gradients are taken and the update is put off.
  Status Send(ExecutionContext* exec, int64_t core, const std::vector<const float*>& values,
              Owner owner, const std::vector<float>& tagged_rates, const RunRef& run = {});

  // Calls `read`, which leaves the tables as they are, concurrently with lookups and after
  // every update that can be made.
  Status Read(ExecutionContext* exec, const std::function<Status(TableStore*)>& read);
  // Calls `use` with exclusive use of the tables, after every update that can be made.
  Status Use(ExecutionContext* exec, const std::function<Status(TableStore*)>& use);

  // Does what follows from the end of a run, whose state says how it ended. If the failure is
  // not `sure`, the next Enqueue, Receive or Send reports what was dropped, and is refused.
  void RunEnded(const RunRef& run, bool sure = true);
  // Drops the batches and steps without gradients of runs that have ended, and returns how
  // many. What all cores have sent stays. With `tell`, the next call reports more than a step's
  // batches, as above.
  int64_t Abandon(bool tell);
  // Whether a run has batches or steps here that are not done.
  bool Holds(const RunRef& run);

  // Training steps that all cores have sent: each has updated the tables or will.
  int64_t Steps();

  // Refuses everything that waits and will come.
  void Close(const std::string& why);

  Status CheckCore(int64_t core) const;

 private:
  struct Queued {
    std::shared_ptr<const Batch> batch;
    RunRef run;
    PreparedRef prepared;  // Null: later. Stores that are shared prepare ahead, always.
  };
  using Queue = std::deque<Queued>;
  // What a core has of a step.
  struct Part {
    std::shared_ptr<const Batch> batch;  // Null: it has not begun.
    RunRef run;
    PreparedRef prepared;  // Null: the update will want it.
    bool looked_up = false;
    bool sharing = false;  // Its gradients are under way: its Send alone ends or drops it.
    bool sent = false;
    std::vector<const float*> gradients;
    Owner owner;
    std::vector<float> rates;  // By table; none before they come with its gradients.
  };
  using Step = std::vector<Part>;  // By core.
  struct Receiver {
    WaiterId waiter;
    int64_t core;
    RunRef run;
    OnGrant on_grant;
  };
  struct Sender {
    WaiterId waiter;
    int64_t core;
    RunRef run;
    std::shared_ptr<const Batch> batch;
    PreparedRef prepared;
    OnQueued on_queued;
  };
  // What the next gradients of a core are for.
  struct GradientTarget {
    Part* part = nullptr;  // Null: no batch that was received awaits them.
    size_t step = 0;
    bool backward_only = false;   // They are for `batch`, which has no lookup.
    Queue::const_iterator batch;  // The next one of the core, or the end.
  };
  struct Continuation;
  using Continuations = std::vector<Continuation>;

  Engine(const Configuration& configuration, std::unique_ptr<TableStore> store,
         DistributedStore* distributed);
  static StatusOr<std::shared_ptr<Engine>> Allocate(std::shared_ptr<Engine> engine);

  // Whether an op of this run may go on.
  Status CheckOpen(const RunRef& run);
  // Prepares a batch before its lookup is due, or begins its lookup if it is the `next` one.
  Status PrepareAhead(ExecutionContext* exec, const std::shared_ptr<const Batch>& batch,
                      bool next, const AllocateOutputs& allocate_outputs,
                      PreparedRef* prepared);
  Status AddSender(int64_t core, const RunRef& run, const std::shared_ptr<const Batch>& batch,
                   const PreparedRef& prepared, OnQueued* on_queued);
  // The rates of tables, or why they cannot be.
  StatusOr<std::vector<float>> RatesOf(const std::vector<float>& tagged_rates) const;
  GradientTarget FindTarget(int64_t core, const RunRef& run);
  Status CheckTarget(int64_t core, const GradientTarget& target,
                     const std::vector<float>& rates) const;
  Part* BeginBackwardOnly(int64_t core, const RunRef& run, Queue::const_iterator batch);
  Status Share(ExecutionContext* exec, std::unique_lock<std::mutex>* lock, int64_t core,
               Part** part, const Status& own, const std::vector<const float*>& gradients,
               const std::vector<float>& rates);
  // Does what has become possible: updates, lookups and places in queues.
  // Continuations are collected for the caller; updates release the lock meanwhile.
  Status Advance(ExecutionContext* exec, std::unique_lock<std::mutex>* lock,
                 Continuations* continuations);
  // Makes every update that can be made; then no other call uses the tables.
  Status UpdateAll(ExecutionContext* exec, std::unique_lock<std::mutex>* lock);
  bool UpdateIsDue() const;
  static bool IsComplete(const Step& step);
  bool StepIsComplete() const { return !steps_.empty() && IsComplete(steps_.front()); }
  bool InferenceWaits() const;
  Status Update(ExecutionContext* exec, std::unique_lock<std::mutex>* lock);
  void GrantWaiters(Continuations* continuations);
  void GrantReceivers(Continuations* continuations, bool* more);
  void GrantSenders(Continuations* continuations, bool* more);

  // Whether a batch that comes now is looked up next, in the tables as they are.
  bool WouldBeNext(int64_t core, const Batch& batch) const;
  // The batch that a run receives next, or the end.
  Queue::const_iterator Next(int64_t core, const RunRef& run) const;
  static bool HasOwn(const Queue& queue, const RunRef& run);
  // The place of the step that a core's next batch for training is part of; perhaps a new one.
  size_t StepFor(int64_t core, const RunRef& run) const;
  bool MayJoin(const Step& step, int64_t core, const RunRef& run) const;
  bool MayBegin(int64_t core, const RunRef& run, const Batch& batch) const;
  Part* Begin(int64_t core, const RunRef& run, const std::shared_ptr<const Batch>& batch);
  // The oldest part of a core that awaits gradients and may have those of this run.
  Part* Unsent(int64_t core, const RunRef& run, size_t* step);
  Part* PartOf(int64_t core, const Batch* batch);
  void RemoveEmptySteps();
  void DropPrepared(const PreparedRef& prepared);
  int64_t Drop(const std::function<bool(const RunRef&)>& whose);
  void SetLost(int64_t batches);
  Status RefuseIfLost();
  Status RefuseIfClosed() const;
  static Status RefuseIfFailed(const RunRef& run);
  Status RefuseBackwardOnly(int64_t core, const RunRef& run) const;

  const Configuration configuration_;
  const std::unique_ptr<TableStore> store_;
  DistributedStore* const distributed_;  // The same store; null: one host has the tables.

  std::mutex mutex_;
  std::condition_variable idle_;  // No lookup or update is under way.
  std::vector<Queue> queues_;     // By core.
  std::deque<Step> steps_;        // From number `applied_` on.
  std::deque<Receiver> receivers_;
  std::deque<Sender> senders_;
  WaiterId last_waiter_ = 0;
  int64_t applied_ = 0;  // Steps that have updated the tables.
  int64_t lookups_ = 0;  // Under way.
  int64_t claims_ = 0;   // Calls that want the tables to themselves.
  bool writing_ = false;
  std::optional<std::string> closed_;
  std::optional<std::string> lost_;  // Not yet reported.
};

}  // namespace opwright::embedding
