// The steps of an embedding engine: which batch is looked up when, and with which updates
// before it.
//
// Each core has a queue of batches. Enqueue appends to it, Receive takes from it, Send brings
// the gradients of what was received. What the cores receive for training makes steps, a batch
// of each core; a step updates the tables once all cores have sent. Without pipelining, a step
// is looked up after the update of the one before; with it, before that and after the update
// of the last but one. Batches for inference are looked up as soon as it is their turn, after
// every update that can be made.
//
// Calls are kept apart. A call receives its own batches, or such as were left by calls that
// have ended, the oldest first; its gradients are those of what it received; and the steps
// that it is part of are its own as long as it has batches for their other cores. When a call
// fails, what it enqueued, received and has not sent for all cores is as if it had never been:
// CallEnded sees to that. A step that all cores have sent stays: it will be applied whole.
//
// Receive and Enqueue never wait: they take a function to call when it is their turn, which
// may be at once. Such functions are called without a lock held, from any thread that made
// it their turn. Every other call does what work has become possible before it returns, on
// its own execution context.
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

#include "embedding/call.h"
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

  ~Engine();

  const Configuration& configuration() const { return configuration_; }

  // A batch whose turn it is. Ends with its Lookup.
  struct Turn {
    int64_t core = 0;
    std::shared_ptr<const Batch> batch;
    CallRef call;          // That enqueued it.
    PreparedRef prepared;  // Null: its lookup prepares it.
  };
  using OnTurn = std::function<void(Status, Turn)>;
  using OnRoom = std::function<void(Status)>;
  using Ticket = int64_t;  // Of a call that waits; 0: it did not have to.

  // Appends a checked batch to a core's queue, once there is room. With memory for its
  // activations, its lookup may begin before it is received.
  Ticket Enqueue(ExecutionContext* exec, int64_t core, Batch batch, OnRoom on_room,
                 const CallRef& call = {}, const std::function<Room()>& make_room = {});
  // Asks for the next batch of a core.
  Ticket Receive(ExecutionContext* exec, int64_t core, OnTurn on_turn,
                 const CallRef& call = {});
  // Says why a batch is not enqueued, to others who await it.
  void Refuse(const Status& why);
  // Forgets a call that waits. False if its function was called or is about to be.
  bool Cancel(Ticket ticket);
  // What a call waits for, in words; empty if it does not wait.
  std::string WhatFor(Ticket ticket);

  // Looks up a batch whose turn it is, outputs as in TableStore, and goes on with what waited
  // for that. Refused, or with something else that is `wrong`, the batch is the next one of
  // its core again.
  Status Lookup(ExecutionContext* exec, const Turn& turn, float* const* outputs,
                Status wrong = {});

  // The gradients of the oldest step of a core that lacks them, and one learning rate a tag.
  // `values` are checked and, with `owner`, kept until the update. That may come at once: if
  // it is refused, so is this call, but the gradients are taken and the update is put off.
  Status Send(ExecutionContext* exec, int64_t core, const std::vector<const float*>& values,
              Owner owner, const std::vector<float>& tagged_rates, const CallRef& call = {});

  // Calls `read`, which leaves the tables as they are, beside lookups and after every update
  // that can be made.
  Status Read(ExecutionContext* exec, const std::function<Status(TableStore*)>& read);
  // Calls `use` while nobody else uses the tables, after every update that can be made.
  Status Use(ExecutionContext* exec, const std::function<Status(TableStore*)>& use);

  // Does what follows from a call's end, which its state tells. What is dropped of one that
  // has failed, but for sure, the next Enqueue, Receive or Send says, which is refused.
  void CallEnded(const CallRef& call, bool sure = true);
  // Drops what calls that have ended left behind, batches and steps without gradients, and
  // says how many of them. What all cores have sent stays. With `tell`, more than a step's
  // batches are told as above.
  int64_t Abandon(bool tell);
  // Whether a call has batches or steps here that are not done.
  bool Holds(const CallRef& call);

  // Training steps that all cores have sent: each has updated the tables or will, whole.
  int64_t Steps();

  // Refuses everything that waits and will come.
  void Close(const std::string& why);

  Status CheckCore(int64_t core) const;

 private:
  struct Queued {
    std::shared_ptr<const Batch> batch;
    CallRef call;
    PreparedRef prepared;  // Null: later. Stores that are shared prepare ahead, always.
  };
  using Queue = std::deque<Queued>;
  // What a core has of a step.
  struct Part {
    std::shared_ptr<const Batch> batch;  // Null: it has not begun.
    CallRef call;
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
    Ticket ticket;
    int64_t core;
    CallRef call;
    OnTurn on_turn;
  };
  struct Sender {
    Ticket ticket;
    int64_t core;
    CallRef call;
    std::shared_ptr<const Batch> batch;
    PreparedRef prepared;
    OnRoom on_room;
  };
  struct Ready;
  using Calls = std::vector<Ready>;

  Engine(const Configuration& configuration, std::unique_ptr<TableStore> store);

  Status AddSender(int64_t core, const CallRef& call, const std::shared_ptr<const Batch>& batch,
                   const PreparedRef& prepared, OnRoom* on_room);
  // The rates of tables, or why they cannot be.
  StatusOr<std::vector<float>> RatesOf(const std::vector<float>& tagged_rates) const;
  Status Share(ExecutionContext* exec, std::unique_lock<std::mutex>* lock, int64_t core,
               Part** part, const Status& own, const std::vector<const float*>& gradients,
               const std::vector<float>& rates);
  // Does what has become possible: updates, lookups and places in queues whose turn it is.
  // The calls to make are collected; updates release the lock meanwhile.
  Status Advance(ExecutionContext* exec, std::unique_lock<std::mutex>* lock, Calls* calls);
  // Makes every update that can be made; then nobody else uses the tables.
  Status UpdateAll(ExecutionContext* exec, std::unique_lock<std::mutex>* lock);
  bool UpdateIsDue() const;
  static bool IsComplete(const Step& step);
  bool StepIsComplete() const { return !steps_.empty() && IsComplete(steps_.front()); }
  bool InferenceWaits() const;
  Status Update(ExecutionContext* exec, std::unique_lock<std::mutex>* lock);
  void Admit(Calls* calls);
  void AdmitReceivers(Calls* calls, bool* more);
  void AdmitSenders(Calls* calls, bool* more);

  // Whether a batch that comes now is looked up next, in the tables as they are.
  bool WouldBeNext(int64_t core, const Batch& batch) const;
  // The batch that a call receives next, or the end.
  Queue::const_iterator Next(int64_t core, const CallRef& call) const;
  static bool HasOwn(const Queue& queue, const CallRef& call);
  // The place of the step that a core's next batch for training is part of; perhaps a new one.
  size_t StepFor(int64_t core, const CallRef& call) const;
  bool MayJoin(const Step& step, int64_t core, const CallRef& call) const;
  bool MayBegin(int64_t core, const CallRef& call, const Batch& batch) const;
  Part* Begin(int64_t core, const CallRef& call, const std::shared_ptr<const Batch>& batch);
  // The oldest part of a core that awaits gradients and may have those of this call.
  Part* Unsent(int64_t core, const CallRef& call, size_t* step);
  Part* PartOf(int64_t core, const Batch* batch);
  void RemoveEmptySteps();
  int64_t Drop(const std::function<bool(const CallRef&)>& whose);
  void SetLost(int64_t batches);
  Status RefuseIfLost();
  Status RefuseIfClosed() const;
  static Status RefuseIfFailed(const CallRef& call);
  Status RefuseBackwardOnly(int64_t core, const CallRef& call) const;

  const Configuration configuration_;
  const std::unique_ptr<TableStore> store_;

  std::mutex mutex_;
  std::condition_variable idle_;  // No lookup or update is under way.
  std::vector<Queue> queues_;     // By core.
  std::deque<Step> steps_;        // From number `applied_` on.
  std::deque<Receiver> receivers_;
  std::deque<Sender> senders_;
  Ticket last_ticket_ = 0;
  int64_t applied_ = 0;  // Steps that have updated the tables.
  int64_t lookups_ = 0;  // Under way.
  int64_t claims_ = 0;   // Calls that want the tables to themselves.
  bool writing_ = false;
  std::optional<std::string> closed_;
  std::optional<std::string> lost_;  // Not yet told.
};

}  // namespace opwright::embedding
