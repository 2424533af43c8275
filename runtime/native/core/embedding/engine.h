// The steps of an embedding engine: which batch is looked up when, and with which updates
// before it.
//
// Each core has a queue of batches. Enqueue appends to it, Receive takes from its front,
// Send brings the gradients of the core's oldest step that was received and lacks them. The
// n-th training batches of all cores are step n; it updates the tables once all cores have
// sent. Without pipelining, step n + 1 is looked up after step n's update; with it, before
// step n's and after step n - 1's. Batches for inference are looked up as soon as they are
// at the front, after every update that can be made.
//
// Receive and Enqueue never wait: they take a function to call when it is their turn, which
// may be at once. Such functions are called without a lock held, from any thread that made
// it their turn. Every other call does what work has become possible before it returns, on
// its own host.
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

#include "core/embedding/table_store.h"

namespace opwright {
namespace embedding {

// Keeps the memory of gradients alive.
using Owner = std::shared_ptr<const void>;

class Engine {
 public:
  // Batches that a core's queue holds before Enqueue has to wait.
  static constexpr int64_t kMostQueued = 128;

  static Maybe Create(const Configuration& configuration, std::unique_ptr<TableStore> store,
                      std::shared_ptr<Engine>* engine);

  const Configuration& configuration() const { return configuration_; }

  // A batch whose turn it is. Ends with its Lookup.
  struct Turn {
    int64_t core = 0;
    std::shared_ptr<const Batch> batch;
  };
  using OnTurn = std::function<void(Maybe, Turn)>;
  using OnRoom = std::function<void(Maybe)>;
  using Ticket = int64_t;  // Of a call that waits; 0: it did not have to.

  // Appends a checked batch to a core's queue, once there is room.
  Ticket Enqueue(Host* host, int64_t core, Batch batch, OnRoom on_room);
  // Asks for the next batch of a core.
  Ticket Receive(Host* host, int64_t core, OnTurn on_turn);
  // Forgets a call that waits. False if its function was called or is about to be.
  bool Cancel(Ticket ticket);

  // Looks up a batch whose turn it is, outputs as in TableStore, and goes on with what waited
  // for that. Refused, the batch is the next one of its core again.
  Maybe Lookup(Host* host, const Turn& turn, float* const* outputs);

  // The gradients of the oldest step of a core that lacks them, and one learning rate a tag.
  // `values` are checked and, with `owner`, kept until the update. That may come at once: if
  // it is refused, so is this call, but the gradients are taken and the update is put off.
  Maybe Send(Host* host, int64_t core, const std::vector<const float*>& values, Owner owner,
             const std::vector<float>& tagged_rates);

  // Calls `use` while nobody else uses the tables, after every update that can be made.
  Maybe Use(Host* host, const std::function<Maybe(TableStore*)>& use);

  // Refuses everything that waits and will come.
  void Close(const std::string& why);

  Maybe CheckCore(int64_t core) const;

 private:
  struct Gradients {
    std::shared_ptr<const Batch> batch;
    std::vector<const float*> values;
    Owner owner;
  };
  struct Core {
    std::deque<std::shared_ptr<const Batch>> queue;
    int64_t begun = 0;     // Training steps whose lookup has begun,
    int64_t received = 0;  // and those where it is over.
    std::deque<std::shared_ptr<const Batch>> unsent;  // Begun, without gradients yet.
    std::deque<Gradients> pending;                    // Of steps from `applied_` on.
  };
  struct Receiver {
    Ticket ticket;
    int64_t core;
    OnTurn on_turn;
  };
  struct Sender {
    Ticket ticket;
    int64_t core;
    std::shared_ptr<const Batch> batch;
    OnRoom on_room;
  };
  using Calls = std::vector<std::function<void()>>;

  Engine(const Configuration& configuration, std::unique_ptr<TableStore> store);

  // The rates of tables, or why they cannot be.
  Maybe RatesOf(const std::vector<float>& tagged_rates, std::vector<float>* rates) const;
  // Does what has become possible: updates, lookups and places in queues whose turn it is.
  // The calls to make are collected; updates release the lock meanwhile.
  Maybe Advance(Host* host, std::unique_lock<std::mutex>* lock, Calls* calls);
  bool UpdateIsDue() const;
  bool StepIsComplete() const;
  bool InferenceWaits() const;
  Maybe Update(Host* host, std::unique_lock<std::mutex>* lock);
  void Admit(Calls* calls);
  bool MayBegin(const Core& core) const;
  Maybe RefuseIfClosed() const;

  const Configuration configuration_;
  const std::unique_ptr<TableStore> store_;

  std::mutex mutex_;
  std::condition_variable idle_;  // No lookup or update is under way.
  std::vector<Core> cores_;
  std::deque<Receiver> receivers_;
  std::deque<Sender> senders_;
  std::deque<std::vector<float>> rates_;  // By table, of steps from `applied_` on.
  Ticket last_ticket_ = 0;
  int64_t applied_ = 0;  // Steps that have updated the tables.
  int64_t lookups_ = 0;  // Under way.
  int64_t claims_ = 0;   // Calls that want the tables to themselves.
  bool writing_ = false;
  std::optional<std::string> closed_;
};

}  // namespace embedding
}  // namespace opwright
