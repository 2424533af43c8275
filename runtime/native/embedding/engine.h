// The steps of an embedding engine. The engine decides when each batch is looked up, and which
// updates of the tables come before that lookup.
//
// A core is a TensorCore of the configuration. Each core has a queue of batches. Enqueue
// appends a batch to the queue, and Receive takes the next batch from it. Send brings the
// gradients of a batch that was received. The cores' training batches make steps: a step has
// one batch of each core. A step updates the tables once all cores have sent its gradients.
// Without pipelining, a step is looked up after the update of the previous step. With
// pipelining, it is looked up before that update, and after the update of the step before the
// previous one. Batches for inference are looked up in the order of the queue, after every
// update that can be made.
//
// Runs (run.h) are isolated from each other. A run receives its own batches, or batches that
// ended runs have left in the queue, the oldest first. A run sends the gradients of batches
// that it received, or that ended runs received. Runs that use different cores may share a
// step. Runs that use a common core may not (MayJoin). When a run fails, RunEnded drops its
// queued batches and its parts of incomplete steps. A step is complete once all cores have sent
// its gradients. A complete step stays although a run fails, and will update the tables.
//
// Receive and Enqueue never wait: they take a continuation, which may be called before they
// return. The continuation is called without a lock held, by the thread that ended the wait.
// Every other call also makes the updates that have become possible, and ends the waits that
// these updates end. It does so before it returns, on its own execution context.
//
// A device may find an error in an update after the update has returned. The next Receive, Send
// or Use returns that error and does nothing else.
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
  // The number of batches in a core's queue from which on Enqueue has to wait.
  static constexpr int64_t kMaxQueued = 128;
  // The number of steps whose gradients one core may send before the other cores have sent
  // those of the first of these steps. A core that trains without lookups has no other limit.
  static constexpr int64_t kMaxStepsAhead = 16;

  static StatusOr<std::shared_ptr<Engine>> Create(const Configuration& configuration,
                                                  std::unique_ptr<TableStore> store);
  static StatusOr<std::shared_ptr<Engine>> Create(const Configuration& configuration,
                                                  std::unique_ptr<DistributedStore> store);

  ~Engine();

  const Configuration& configuration() const { return configuration_; }

  // A received batch. The receiver must pass it to Lookup: no update is made before that.
  struct Grant {
    int64_t core = 0;
    std::shared_ptr<const Batch> batch;
    RunRef run;            // The run that enqueued the batch.
    PreparedRef prepared;  // Null if Lookup has to prepare the batch.
  };
  using OnGrant = std::function<void(Status, Grant)>;
  using OnQueued = std::function<void(Status)>;
  using WaiterId = int64_t;  // Identifies the wait of an op. 0 if the op was refused at once.

  // Appends a checked batch to a core's queue, once the queue has capacity. The lookup may
  // begin before the batch is received, with its outputs in memory from `allocate_outputs`.
  WaiterId Enqueue(ExecutionContext* exec, int64_t core, Batch batch, OnQueued on_queued,
                   const RunRef& run = {}, const AllocateOutputs& allocate_outputs = {});
  // Requests the next batch of a core.
  WaiterId Receive(ExecutionContext* exec, int64_t core, OnGrant on_grant,
                   const RunRef& run = {});
  // Sends other hosts the reason why this host does not enqueue its next batch.
  void Refuse(const Status& why);
  // Ends a wait. Returns false if its continuation was called or is about to be called.
  bool Cancel(WaiterId waiter);
  // Describes what an op waits for, as text for a log. Empty if the op does not wait.
  std::string WhatFor(WaiterId waiter);

  // Looks up a granted batch, with outputs as in TableStore::Lookup. Then does the work that
  // had to wait for this lookup. If the lookup fails or `wrong` is an error, the batch goes
  // back to the front of its core's queue.
  Status Lookup(ExecutionContext* exec, const Grant& grant, float* const* outputs,
                Status wrong = {});

  // Takes a core's gradients for the oldest step whose gradients the core has not sent, and one
  // learning rate for each tag. Before that, the store's CheckGradients checks `values`. They
  // are used until the update, and the engine keeps `owner` until then to keep them alive. This
  // call may make the update itself. If the update fails, this call returns its error, although
  // it has taken the gradients. A later call then tries the update again.
  Status Send(ExecutionContext* exec, int64_t core, const std::vector<const float*>& values,
              Owner owner, const std::vector<float>& tagged_rates, const RunRef& run = {});

  // Calls `read` after every update that can be made, concurrently with lookups. `read` must
  // not change the tables.
  Status Read(ExecutionContext* exec, const std::function<Status(TableStore*)>& read);
  // Calls `use` with exclusive use of the tables, after every update that can be made.
  Status Use(ExecutionContext* exec, const std::function<Status(TableStore*)>& use);

  // Drops the batches of a run if its state is failed, and starts work that waited for its end.
  // `sure` is false if the failure is only assumed. Then the next Enqueue, Receive or Send
  // returns an error that reports the dropped batches.
  void RunEnded(const RunRef& run, bool sure = true);
  // Drops queued batches and parts of incomplete steps. It keeps only those of runs that are
  // still running, and drops those that belong to no run. Returns how many batches it dropped.
  // If `tell` is true and it dropped more batches than there are cores, which is more than one
  // step, the next Enqueue, Receive or Send returns an error that reports them.
  int64_t Abandon(bool tell);
  // The number of batches in a core's queue. Zero for an unknown core.
  int64_t QueuedBatches(int64_t core);
  // Whether a run has queued batches, or parts of incomplete steps.
  bool Holds(const RunRef& run);

  // The number of training steps whose gradients all cores have sent. Each of them has updated
  // the tables, or will.
  int64_t Steps();

  // Refuses all calls that wait, and all later ones.
  void Close(const std::string& why);

  Status CheckCore(int64_t core) const;

 private:
  struct Queued {
    std::shared_ptr<const Batch> batch;
    RunRef run;
    PreparedRef prepared;  // Null if it is prepared later; never null in a DistributedStore.
  };
  using Queue = std::deque<Queued>;
  // One core's part of a step.
  struct Part {
    std::shared_ptr<const Batch> batch;  // Null if the core has not received its batch.
    RunRef run;
    PreparedRef prepared;  // Null if the update has to prepare the batch.
    bool looked_up = false;
    // Whether the part's gradients are on their way to other hosts. Until they have arrived,
    // only the call of Send that sends them may end or drop this part.
    bool sharing = false;
    bool sent = false;
    std::vector<const float*> gradients;
    Owner owner;
    std::vector<float> rates;  // One for each table. Empty before Send brings them.
  };
  using Step = std::vector<Part>;  // One part for each core.
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
  // The part of a step, or the queued batch, that the next gradients of a core are for.
  struct GradientTarget {
    Part* part = nullptr;  // Null if no received batch awaits gradients.
    size_t step = 0;
    bool backward_only = false;   // The gradients are for `batch`, which has no lookup.
    Queue::const_iterator batch;  // The core's next queued batch, or the end of its queue.
  };
  struct Continuation;
  using Continuations = std::vector<Continuation>;

  Engine(const Configuration& configuration, std::unique_ptr<TableStore> store,
         DistributedStore* distributed);
  static StatusOr<std::shared_ptr<Engine>> Allocate(std::shared_ptr<Engine> engine);

  // Refuses an op if the engine is closed, if it has to report lost batches, or if the op's run
  // has failed.
  Status CheckOpen(const RunRef& run);
  // Prepares a batch before its lookup is due. If `next` is true, the batch is looked up next.
  // The call may then begin the lookup instead.
  Status PrepareAhead(ExecutionContext* exec, const std::shared_ptr<const Batch>& batch,
                      bool next, const AllocateOutputs& allocate_outputs,
                      PreparedRef* prepared);
  Status AddSender(int64_t core, const RunRef& run, const std::shared_ptr<const Batch>& batch,
                   const PreparedRef& prepared, OnQueued* on_queued);
  // The learning rate of each table, or an error if a table cannot be trained with its rate.
  StatusOr<std::vector<float>> RatesOf(const std::vector<float>& tagged_rates) const;
  GradientTarget FindTarget(int64_t core, const RunRef& run);
  Status CheckTarget(int64_t core, const GradientTarget& target,
                     const std::vector<float>& rates) const;
  Part* BeginBackwardOnly(int64_t core, const RunRef& run, Queue::const_iterator batch);
  Status Share(ExecutionContext* exec, std::unique_lock<std::mutex>* lock, int64_t core,
               Part** part, const Status& own, const std::vector<const float*>& gradients,
               const std::vector<float>& rates);
  // Makes the updates that are due, and grants receivers batches and senders places in queues.
  // Appends the continuations of these waiters for the caller to invoke. Releases the lock
  // during updates.
  Status Advance(ExecutionContext* exec, std::unique_lock<std::mutex>* lock,
                 Continuations* continuations);
  // Makes every update that can be made. When it returns, no other call uses the tables.
  Status UpdateAll(ExecutionContext* exec, std::unique_lock<std::mutex>* lock);
  bool UpdateIsDue() const;
  static bool IsComplete(const Step& step);
  bool StepIsComplete() const { return !steps_.empty() && IsComplete(steps_.front()); }
  bool InferenceWaits() const;
  Status Update(ExecutionContext* exec, std::unique_lock<std::mutex>* lock);
  void GrantWaiters(Continuations* continuations);
  void GrantReceivers(Continuations* continuations, bool* more);
  void GrantSenders(Continuations* continuations, bool* more);

  // Whether a batch that is enqueued now would be looked up next, without an update before it.
  bool WouldBeNext(int64_t core, const Batch& batch) const;
  // The batch that a run receives next, or the end of the queue.
  Queue::const_iterator Next(int64_t core, const RunRef& run) const;
  // Whether a queue has batches that this run enqueued.
  static bool HasOwn(const Queue& queue, const RunRef& run);
  // The index in `steps_` of the step that a core's next training batch belongs to. It is the
  // size of `steps_` if that is a new step.
  size_t StepFor(int64_t core, const RunRef& run) const;
  bool MayJoin(const Step& step, int64_t core, const RunRef& run) const;
  bool MayBegin(int64_t core, const RunRef& run, const Batch& batch) const;
  Part* Begin(int64_t core, const RunRef& run, const std::shared_ptr<const Batch>& batch);
  // The oldest part of a core that awaits gradients and may take those of this run.
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
  DistributedStore* const distributed_;  // `store_`; null if one host has all the tables.

  std::mutex mutex_;
  std::condition_variable idle_;  // Notified when no lookup or update is under way.
  std::vector<Queue> queues_;     // One for each core.
  std::deque<Step> steps_;        // The first one is step number `applied_`.
  std::deque<Receiver> receivers_;
  std::deque<Sender> senders_;
  WaiterId last_waiter_ = 0;
  int64_t applied_ = 0;   // The number of steps that have updated the tables.
  int64_t lookups_ = 0;   // The number of lookups and reads under way.
  int64_t claims_ = 0;    // The number of calls that wait for exclusive use of the tables.
  bool writing_ = false;  // Whether an update or a Use is under way.
  std::optional<std::string> closed_;  // Why the engine is closed, if it is.
  std::optional<std::string> lost_;    // A report of dropped batches that no call has returned.
};

}  // namespace opwright::embedding
