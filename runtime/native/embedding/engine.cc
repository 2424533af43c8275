#include "embedding/engine.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <type_traits>
#include <utility>

namespace opwright::embedding {
namespace {

std::string Text(int64_t value) { return std::to_string(value); }
std::string Text(size_t value) { return std::to_string(value); }

// For what has to be done where no op runs: one thread, and memory of the heap.
class SerialContext : public ExecutionContext {
 public:
  int Threads() const override { return 1; }
  void For(int64_t count, const std::function<void(int64_t)>& task) override {
    for (int64_t i = 0; i < count; ++i) task(i);
  }
  void* Allocate(size_t bytes) override {
    constexpr size_t kAlignment = 64;
    if (bytes > SIZE_MAX - kAlignment) throw std::bad_alloc();
    blocks_.emplace_back(bytes + kAlignment);
    const uintptr_t at = reinterpret_cast<uintptr_t>(blocks_.back().data());
    return reinterpret_cast<void*>((at + kAlignment - 1) / kAlignment * kAlignment);
  }

 private:
  std::vector<std::vector<char>> blocks_;
};

// Whether what a call has in queues and steps is for nobody else: as long as it runs, and if it
// has failed, until CallEnded drops it.
bool Keeps(const Call& call) { return call.keeps_batches() || call.failed(); }

}  // namespace

// Somebody whose turn it is. To make it so moves what there is and cannot fail.
struct Engine::Ready {
  OnTurn on_turn;
  OnRoom on_room;  // One of the two.
  Status status;
  Turn turn;

  void operator()() const { on_turn ? on_turn(status, turn) : on_room(status); }
};

namespace {

// Does some work without the lock.
template <class Work>
Status Apart(std::unique_lock<std::mutex>* lock, const Work& work) {
  Status status;
  lock->unlock();
  try {
    status = work();
  } catch (const std::bad_alloc&) {
    status = ResourceExhaustedError("no memory to use the embedding tables");
  }
  lock->lock();
  return status;
}

template <class Calls>
void Make(const Calls& calls) {
  for (const auto& call : calls) call();
}

}  // namespace

Engine::Engine(const Configuration& configuration, std::unique_ptr<TableStore> store)
    : configuration_(configuration),
      store_(std::move(store)),
      queues_(static_cast<size_t>(configuration.cores)) {}

Engine::~Engine() = default;

StatusOr<std::shared_ptr<Engine>> Engine::Create(const Configuration& configuration,
                                                 std::unique_ptr<TableStore> store) {
  std::shared_ptr<Engine> made(new Engine(configuration, std::move(store)));
  OPWRIGHT_RETURN_IF_ERROR(made->store_->Allocate(made->configuration_));
  return made;
}

Status Engine::CheckCore(int64_t core) const {
  if (core >= 0 && core < configuration_.cores) return {};
  return InvalidArgumentError("the device ordinal must be in [0, " +
                              Text(configuration_.cores) +
                              "), the cores of the configuration; is " + Text(core));
}

Status Engine::RefuseIfClosed() const {
  if (closed_) return FailedPreconditionError(*closed_);
  return {};
}

Status Engine::RefuseIfLost() {
  if (!lost_) return {};
  const std::string problem = *lost_;
  lost_.reset();
  return FailedPreconditionError(problem);
}

Status Engine::RefuseIfFailed(const CallRef& call) {
  if (!call || !call->failed()) return {};
  return FailedPreconditionError(
      "the call that this op is part of has failed, and its batches and steps "
      "were dropped");
}

Status Engine::RefuseBackwardOnly(int64_t core, const CallRef& call) const {
  const auto next = Next(core, call);
  const Mode mode = next == queues_[core].end() ? configuration_.mode : next->batch->mode;
  if (mode != Mode::kBackwardOnly) return {};
  return FailedPreconditionError(
      "batches of the mode BACKWARD_PASS_ONLY have no activations: enqueue for "
      "'train' or 'inference' what is to be looked up");
}

Engine::Ticket Engine::Enqueue(ExecutionContext* exec, int64_t core, Batch batch,
                               OnRoom on_room, const CallRef& call,
                               const std::function<Room()>& make_room) {
  const auto kept = std::make_shared<const Batch>(std::move(batch));
  const auto refuse = [&] {
    Status status = RefuseIfClosed();
    if (status.ok()) status = RefuseIfLost();
    if (status.ok()) status = RefuseIfFailed(call);
    return status;
  };
  Calls calls;
  Ticket ticket = 0;
  Status status;
  bool next = false;
  {
    // Before others are asked for what it needs.
    std::unique_lock<std::mutex> lock(mutex_);
    status = refuse();
    next = WouldBeNext(core, *kept);
  }
  PreparedRef prepared;
  try {
    if (status.ok()) prepared = store_->PrepareAhead(exec, kept);
    if (status.ok() && !prepared && next && make_room) {
      prepared = store_->LookUpAhead(exec, kept, make_room);
    }
  } catch (const std::bad_alloc&) {
    // Hosts prepare batches in one order, so all refuse one that lacks memory here. Other
    // stores prepare it when it is its turn.
    if (store_->shared()) {
      status = ResourceExhaustedError("no memory for what a batch needs of other hosts");
    }
  }
  if (status.ok()) {
    std::unique_lock<std::mutex> lock(mutex_);
    status = refuse();
    if (status.ok()) status = AddSender(core, call, kept, prepared, &on_room);
    if (status.ok()) {
      ticket = last_ticket_;
      static_cast<void>(Advance(exec, &lock, &calls));
    }
  }
  if (!status.ok()) {
    if (prepared) {
      store_->Drop(prepared);
    } else {
      Refuse(status);
    }
    on_room(status);
  }
  Make(calls);
  return ticket;
}

// Refused, `on_room` is still the caller's.
Status Engine::AddSender(int64_t core, const CallRef& call,
                         const std::shared_ptr<const Batch>& batch, const PreparedRef& prepared,
                         OnRoom* on_room) {
  try {
    senders_.emplace_back();
  } catch (const std::bad_alloc&) {
    return ResourceExhaustedError("no memory to enqueue a batch");
  }
  senders_.back() = {++last_ticket_, core, call, batch, prepared, std::move(*on_room)};
  return {};
}

void Engine::Refuse(const Status& why) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return;
  }
  store_->Refuse(why);
}

Engine::Ticket Engine::Receive(ExecutionContext* exec, int64_t core, OnTurn on_turn,
                               const CallRef& call) {
  Status status = store_->CheckUpdates(/*wait=*/false);
  Calls calls;
  Ticket ticket = 0;
  if (status.ok()) {
    std::unique_lock<std::mutex> lock(mutex_);
    status = RefuseIfClosed();
    if (status.ok()) status = RefuseIfLost();
    if (status.ok()) status = RefuseIfFailed(call);
    if (status.ok()) status = RefuseBackwardOnly(core, call);
    if (status.ok()) {
      receivers_.push_back({last_ticket_ + 1, core, call, std::move(on_turn)});
      ticket = ++last_ticket_;
      if (Status late = Advance(exec, &lock, &calls); !late.ok()) {
        // It might wait for this update, which nobody may ever make.
        const auto own =
            std::find_if(receivers_.begin(), receivers_.end(),
                         [ticket](const Receiver& one) { return one.ticket == ticket; });
        if (own != receivers_.end()) {
          on_turn = std::move(own->on_turn);
          receivers_.erase(own);
          status = std::move(late);
        }
      }
    }
  }
  if (!status.ok()) on_turn(status, {});
  Make(calls);
  return ticket;
}

bool Engine::Cancel(Ticket ticket) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto forget = [&](auto* waiting) {
    const auto found = std::find_if(waiting->begin(), waiting->end(),
                                    [ticket](const auto& one) { return one.ticket == ticket; });
    if (found == waiting->end()) return false;
    if constexpr (std::is_same_v<decltype(waiting), std::deque<Sender>*>) {
      if (found->prepared) store_->Drop(found->prepared);
    }
    waiting->erase(found);
    return true;
  };
  return forget(&receivers_) || forget(&senders_);
}

std::string Engine::WhatFor(Ticket ticket) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const Sender& one : senders_) {
    if (one.ticket != ticket) continue;
    return "for room in the queue of core " + Text(one.core) + ", which holds " +
           Text(queues_[one.core].size()) +
           " batches; RecvTPUEmbeddingActivations takes one away";
  }
  for (const Receiver& one : receivers_) {
    if (one.ticket != ticket) continue;
    const std::string core = "core " + Text(one.core);
    const Queue& queue = queues_[one.core];
    const auto next = Next(one.core, one.call);
    if (queue.empty()) return "for a batch of " + core + ", for which none is enqueued";
    if (next == queue.end()) {
      return "for a batch of " + core + " of its own: those that are enqueued, " +
             Text(queue.size()) + ", belong to calls that still run";
    }
    std::string missing;
    for (size_t c = 0; !steps_.empty() && c < steps_.front().size(); ++c) {
      if (!steps_.front()[c].sent) missing += (missing.empty() ? "" : ", ") + Text(c);
    }
    return "for the update of step " + Text(applied_) + ", for which core " + missing +
           " has not sent gradients (SendTPUEmbeddingGradients)";
  }
  return "";
}

Status Engine::Lookup(ExecutionContext* exec, const Turn& turn, float* const* outputs,
                      Status wrong) {
  Status status = std::move(wrong);
  PreparedRef prepared = turn.prepared;
  try {
    if (status.ok() && !prepared) {
      StatusOr<PreparedRef> made = store_->Prepare(exec, turn.batch);
      status = made.status();
      if (status.ok()) prepared = *std::move(made);
    }
    if (status.ok()) status = store_->Lookup(exec, *prepared, outputs);
  } catch (const std::bad_alloc&) {
    status = ResourceExhaustedError("no memory for a lookup");
  }
  Calls calls;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    --lookups_;
    const bool training = turn.batch->mode == Mode::kTraining;
    Part* const part = training ? PartOf(turn.core, turn.batch.get()) : nullptr;
    // A part that is gone went with its call; one that was sent meanwhile has what it needs.
    // One whose gradients are under way is its Send's, which says what becomes of it.
    if (part && (status.ok() || part->sent || part->sharing)) {
      part->looked_up = true;
      part->prepared = std::move(prepared);
    } else if (!status.ok() && (part || !training) && !(turn.call && turn.call->failed())) {
      if (!prepared || !prepared->over()) {
        queues_[turn.core].push_front({turn.batch, turn.call, std::move(prepared)});
      }
      if (part) *part = {};
      RemoveEmptySteps();
    }
    // An update that is put off is another call's to tell: this one has what it asked for.
    static_cast<void>(Advance(exec, &lock, &calls));
  }
  Make(calls);
  return status;
}

StatusOr<std::vector<float>> Engine::RatesOf(const std::vector<float>& tagged_rates) const {
  std::vector<float> rates;
  if (static_cast<int64_t>(tagged_rates.size()) != configuration_.tags) {
    return InvalidArgumentError("there must be one learning rate for each of the " +
                                Text(configuration_.tags) +
                                " tags of the configuration, there are " +
                                Text(static_cast<int64_t>(tagged_rates.size())));
  }
  for (size_t i = 0; i < configuration_.tables.size(); ++i) {
    const TableConfig& table = configuration_.tables[i];
    const std::string where = Describe(configuration_, static_cast<int64_t>(i));
    const float rate = table.dynamic_rate ? tagged_rates[table.tag] : table.hyper.learning_rate;
    const std::string wrong = WrongRate(table.optimizer, HyperAt(table, rate));
    if (!FactsOf(table.optimizer).has_rule()) {
      return UnimplementedError(where +
                                ": no rule is public for the updates of its optimizer, " +
                                FactsOf(table.optimizer).field +
                                "; it can be loaded, looked up and "
                                "retrieved only");
    }
    if (!table.has_rate) {
      return FailedPreconditionError(where +
                                     ": it is configured without a learning_rate, constant or "
                                     "dynamic, and cannot be trained");
    }
    if (!wrong.empty()) {
      return InvalidArgumentError(
          where + ": its learning rate" +
          (table.dynamic_rate ? ", of tag " + Text(table.tag) + ", " : " ") + wrong);
    }
    rates.push_back(rate);
  }
  return rates;
}

Status Engine::Send(ExecutionContext* exec, int64_t core,
                    const std::vector<const float*>& values, Owner owner,
                    const std::vector<float>& tagged_rates, const CallRef& call) {
  StatusOr<std::vector<float>> rates = RatesOf(tagged_rates);
  Status checked = rates.status();
  if (checked.ok()) checked = store_->CheckUpdates(/*wait=*/false);
  if (checked.ok()) checked = store_->CheckGradients(exec, values);
  std::vector<const float*> gradients = values;
  std::vector<float> shared_rates;
  if (store_->shared() && rates.ok()) shared_rates = *rates;
  Calls calls;
  Status status;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (checked.ok()) {
      OPWRIGHT_RETURN_IF_ERROR(RefuseIfClosed());
      OPWRIGHT_RETURN_IF_ERROR(RefuseIfLost());
      OPWRIGHT_RETURN_IF_ERROR(RefuseIfFailed(call));
    }
    size_t step = 0;
    Part* part = Unsent(core, call, &step);
    const auto next = Next(core, call);
    const bool backward_only =
        !part && next != queues_[core].end() && next->batch->mode == Mode::kBackwardOnly;
    if (backward_only) step = StepFor(core, call);
    if (checked.ok() && !part && !backward_only) {
      checked = FailedPreconditionError(
          "no step of core " + Text(core) +
          " awaits gradients: RecvTPUEmbeddingActivations comes first, for a "
          "batch that was enqueued for training");
    }
    if (checked.ok() && step >= static_cast<size_t>(kMaxStepsAhead)) {
      checked = FailedPreconditionError(
          "core " + Text(core) + " has sent the gradients of " + Text(step) +
          " steps that other cores have not; they must send theirs first");
    }
    for (size_t c = 0; checked.ok() && step < steps_.size() && c < steps_[step].size(); ++c) {
      const Part& other = steps_[step][c];
      if (!other.rates.empty() && other.rates != *rates) {
        checked = InvalidArgumentError("core " + Text(core) +
                                       " sends other learning rates than another core "
                                       "sent for the same step");
      }
    }
    const bool shared = store_->shared() && (part || backward_only);
    if (!checked.ok() && !shared) return checked;
    if (backward_only) {
      part = Begin(core, call, next->batch);
      part->prepared = next->prepared;
      part->looked_up = true;
      queues_[core].erase(next);
    }
    // Other cores see which rates it has while its gradients are under way.
    if (rates.ok()) part->rates = *std::move(rates);
    if (shared) checked = Share(exec, &lock, core, &part, checked, values, shared_rates);
    if (!checked.ok()) {
      *part = {};
      RemoveEmptySteps();
      static_cast<void>(Advance(exec, &lock, &calls));
      lock.unlock();
      Make(calls);
      return checked;
    }
    part->gradients = std::move(gradients);
    part->owner = std::move(owner);
    part->sent = true;
    status = Advance(exec, &lock, &calls);
  }
  Make(calls);
  return status;
}

// Takes gradients to the hosts that have their rows, without the lock. The steps move
// meanwhile, but nothing else ends or drops a part that is sharing: it is found again.
Status Engine::Share(ExecutionContext* exec, std::unique_lock<std::mutex>* lock, int64_t core,
                     Part** part, const Status& own, const std::vector<const float*>& gradients,
                     const std::vector<float>& rates) {
  const PreparedRef prepared = (*part)->prepared;
  Status status;
  (*part)->sharing = true;
  lock->unlock();
  try {
    status = store_->Share(exec, *prepared, own, gradients, rates);
  } catch (const std::bad_alloc&) {
    status = ResourceExhaustedError("no memory for gradients");
    store_->Drop(prepared);
  }
  lock->lock();
  *part = PartOf(core, &prepared->batch());
  (*part)->sharing = false;
  return status;
}

Status Engine::UpdateAll(ExecutionContext* exec, std::unique_lock<std::mutex>* lock) {
  // Lookups and updates under way end by themselves, and none begins while one claims.
  const auto idle = [this] { return lookups_ == 0 && !writing_; };
  Status status;
  ++claims_;
  idle_.wait(*lock, idle);
  while (status.ok() && StepIsComplete()) {
    status = Update(exec, lock);
    idle_.wait(*lock, idle);
  }
  --claims_;
  return status;
}

Status Engine::Read(ExecutionContext* exec, const std::function<Status(TableStore*)>& read) {
  Calls calls;
  Status status;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    OPWRIGHT_RETURN_IF_ERROR(RefuseIfClosed());
    if (writing_ || claims_ > 0 || StepIsComplete()) status = UpdateAll(exec, &lock);
    if (status.ok()) {
      ++lookups_;
      status = Apart(&lock, [&] { return read(store_.get()); });
      --lookups_;
    }
    // An update that is put off is another call's to tell: this one has what it asked for.
    static_cast<void>(Advance(exec, &lock, &calls));
  }
  Make(calls);
  return status;
}

Status Engine::Use(ExecutionContext* exec, const std::function<Status(TableStore*)>& use) {
  Calls calls;
  Status status;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    OPWRIGHT_RETURN_IF_ERROR(RefuseIfClosed());
    status = UpdateAll(exec, &lock);
    if (status.ok()) {
      writing_ = true;
      status = Apart(&lock, [&] {
        Status before = store_->CheckUpdates(/*wait=*/true);
        return before.ok() ? use(store_.get()) : before;
      });
      writing_ = false;
    }
    const Status later = Advance(exec, &lock, &calls);
    if (status.ok()) status = later;
  }
  Make(calls);
  return status;
}

// Queued batches, and parts of steps that not all cores have sent.
int64_t Engine::Drop(const std::function<bool(const CallRef&)>& whose) {
  int64_t dropped = 0;
  const auto drop = [this](const PreparedRef& prepared) {
    if (prepared) store_->Drop(prepared);
  };
  for (Queue& queue : queues_) {
    // A call's state changes without this lock: each is looked at once.
    const auto end = std::remove_if(queue.begin(), queue.end(), [&](const Queued& one) {
      if (!whose(one.call)) return false;
      drop(one.prepared);
      return true;
    });
    dropped += queue.end() - end;
    queue.erase(end, queue.end());
  }
  for (Step& step : steps_) {
    if (IsComplete(step)) continue;
    for (Part& part : step) {
      if (!part.batch || part.sharing || !whose(part.call)) continue;
      drop(part.prepared);
      part = {};
      ++dropped;
    }
  }
  RemoveEmptySteps();
  return dropped;
}

void Engine::CallEnded(const CallRef& call, bool sure) {
  SerialContext exec;
  Calls calls;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (call->failed()) {
      const int64_t dropped = Drop([&](const CallRef& one) { return one == call; });
      if (!sure && dropped > 0) SetLost(dropped);
    }
    // Others may have waited for it. An update that is put off is for a later call to tell.
    static_cast<void>(Advance(&exec, &lock, &calls));
  }
  Make(calls);
}

int64_t Engine::Abandon(bool tell) {
  SerialContext exec;
  Calls calls;
  int64_t dropped;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    dropped = Drop(
        [](const CallRef& call) { return !call || call->state() != Call::State::kRunning; });
    // One of each core is what the step that failed had.
    if (tell && dropped > configuration_.cores) SetLost(dropped);
    static_cast<void>(Advance(&exec, &lock, &calls));
  }
  Make(calls);
  return dropped;
}

void Engine::SetLost(int64_t batches) {
  lost_ = Text(batches) + (batches == 1 ? " batch was" : " batches were") +
          " dropped: a step failed, and it cannot be known which of them it had enqueued "
          "(with opwright.tpu.embedding_step() it can); enqueue again what is missing";
}

bool Engine::Holds(const CallRef& call) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto own = [&](const auto& one) { return one.call == call; };
  return std::any_of(queues_.begin(), queues_.end(),
                     [&](const Queue& queue) {
                       return std::any_of(queue.begin(), queue.end(), own);
                     }) ||
         std::any_of(steps_.begin(), steps_.end(), [&](const Step& step) {
           return !IsComplete(step) && std::any_of(step.begin(), step.end(), own);
         });
}

int64_t Engine::Steps() {
  std::lock_guard<std::mutex> lock(mutex_);
  return applied_ + std::count_if(steps_.begin(), steps_.end(), IsComplete);
}

void Engine::Close(const std::string& why) {
  std::deque<Receiver> receivers;
  std::deque<Sender> senders;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closed_ = why;
    receivers.swap(receivers_);
    senders.swap(senders_);
  }
  for (const Receiver& one : receivers) one.on_turn(FailedPreconditionError(why), {});
  for (const Sender& one : senders) one.on_room(FailedPreconditionError(why));
}

Status Engine::Advance(ExecutionContext* exec, std::unique_lock<std::mutex>* lock,
                       Calls* calls) {
  Status status;
  while (status.ok() && lookups_ == 0 && !writing_ && claims_ == 0 && UpdateIsDue()) {
    status = Update(exec, lock);
  }
  try {
    Admit(calls);
  } catch (const std::bad_alloc&) {
    // Nobody has lost anything: the next call admits them.
    if (status.ok()) status = ResourceExhaustedError("no memory to begin a step");
  }
  if (lookups_ == 0 && !writing_) idle_.notify_all();
  return status;
}

bool Engine::IsComplete(const Step& step) {
  return std::all_of(step.begin(), step.end(), [](const Part& part) { return part.sent; });
}

// With pipelining, the lookups of the next step do not see this one's update. A batch for
// inference is no step, and wants to see all.
bool Engine::UpdateIsDue() const {
  if (!StepIsComplete()) return false;
  if (!configuration_.pipelined || InferenceWaits()) return true;
  return steps_.size() > 1 && std::all_of(steps_[1].begin(), steps_[1].end(),
                                          [](const Part& part) { return part.looked_up; });
}

bool Engine::InferenceWaits() const {
  return std::any_of(receivers_.begin(), receivers_.end(), [this](const Receiver& one) {
    const auto next = Next(one.core, one.call);
    return next != queues_[one.core].end() && next->batch->mode == Mode::kInference;
  });
}

// The oldest step of all cores. Refused, it stays where it is.
Status Engine::Update(ExecutionContext* exec, std::unique_lock<std::mutex>* lock) {
  std::vector<std::shared_ptr<const Batch>> batches;
  std::vector<PreparedRef> prepared;
  std::vector<CoreGradients> gradients;
  std::vector<float> rates;
  Status status;
  try {
    for (const Part& part : steps_.front()) {
      batches.push_back(part.batch);
      prepared.push_back(part.prepared);
      gradients.push_back({nullptr, part.gradients});
    }
    rates = steps_.front().front().rates;
  } catch (const std::bad_alloc&) {
    status = ResourceExhaustedError("no memory for its gradients");
  }
  if (status.ok()) {
    writing_ = true;
    lock->unlock();
    try {
      for (size_t core = 0; status.ok() && core < batches.size(); ++core) {
        if (!prepared[core]) {
          StatusOr<PreparedRef> made = store_->Prepare(exec, batches[core]);
          status = made.status();
          if (status.ok()) prepared[core] = *std::move(made);
        }
        gradients[core].batch = prepared[core].get();
      }
      if (status.ok()) status = store_->Update(exec, gradients, rates);
    } catch (const std::bad_alloc&) {
      status = ResourceExhaustedError("no memory for its gradients");
    }
    lock->lock();
    writing_ = false;
    // Put off, the update finds them again.
    for (size_t core = 0; core < prepared.size(); ++core) {
      steps_.front()[core].prepared = std::move(prepared[core]);
    }
  }
  if (!status.ok()) {
    status.Prepend("the update of step " + Text(applied_) + " is put off: ");
    return status;
  }
  steps_.pop_front();
  ++applied_;
  return {};
}

bool Engine::WouldBeNext(int64_t core, const Batch& batch) const {
  return batch.mode != Mode::kBackwardOnly && queues_[core].empty() && senders_.empty() &&
         steps_.empty() && !writing_ && claims_ == 0;
}

Engine::Queue::const_iterator Engine::Next(int64_t core, const CallRef& call) const {
  const Queue& queue = queues_[core];
  const auto next = std::find_if(queue.begin(), queue.end(), [&](const Queued& one) {
    return !one.call || one.call == call || !Keeps(*one.call);
  });
  if (next != queue.end()) return next;
  // Whoever keeps them waits for room himself.
  if (static_cast<int64_t>(queue.size()) < kMaxQueued) return queue.end();
  return std::find_if(queue.begin(), queue.end(),
                      [](const Queued& one) { return !one.call->failed(); });
}

bool Engine::HasOwn(const Queue& queue, const CallRef& call) {
  return call && std::any_of(queue.begin(), queue.end(),
                             [&](const Queued& one) { return one.call == call; });
}

// Calls that run a core each make a step together. Calls that run several cores each do not:
// then one of them has batches for a core of the other.
bool Engine::MayJoin(const Step& step, int64_t core, const CallRef& call) const {
  for (size_t c = 0; c < step.size(); ++c) {
    const CallRef& other = step[c].call;
    if (!other || other == call || !Keeps(*other)) continue;
    if (other->failed()) return false;
    if (HasOwn(queues_[core], other) || HasOwn(queues_[c], call)) return false;
  }
  return true;
}

size_t Engine::StepFor(int64_t core, const CallRef& call) const {
  for (const bool own : {true, false}) {
    for (size_t s = 0; s < steps_.size(); ++s) {
      if (steps_[s][core].batch) continue;
      const bool is_own = call && std::any_of(steps_[s].begin(), steps_[s].end(),
                                              [&](const Part& p) { return p.call == call; });
      if (own ? is_own : MayJoin(steps_[s], core, call)) return s;
    }
  }
  return steps_.size();
}

bool Engine::MayBegin(int64_t core, const CallRef& call, const Batch& batch) const {
  if (batch.mode == Mode::kInference) return !StepIsComplete();
  return StepFor(core, call) < (configuration_.pipelined ? 2 : 1);
}

// The last thing that may fail of what makes a batch part of a step.
Engine::Part* Engine::Begin(int64_t core, const CallRef& call,
                            const std::shared_ptr<const Batch>& batch) {
  const size_t step = StepFor(core, call);
  if (step == steps_.size()) steps_.emplace_back(queues_.size());
  Part& part = steps_[step][core];
  part.batch = batch;
  part.call = call;
  return &part;
}

Engine::Part* Engine::Unsent(int64_t core, const CallRef& call, size_t* step) {
  for (const bool own : {true, false}) {
    for (*step = 0; *step < steps_.size(); ++*step) {
      Part& part = steps_[*step][core];
      if (!part.batch || part.sharing || part.sent) continue;
      const bool is_own = part.call == call;
      const bool is_free = !part.call || !Keeps(*part.call);
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

void Engine::Admit(Calls* calls) {
  if (writing_ || claims_ > 0) return;
  for (bool more = true; more;) {
    more = false;
    AdmitReceivers(calls, &more);
    AdmitSenders(calls, &more);
  }
}

void Engine::AdmitReceivers(Calls* calls, bool* more) {
  std::vector<bool> passed(queues_.size());  // Cores where an earlier call still waits.
  for (auto one = receivers_.begin(); one != receivers_.end();) {
    if (one->call && one->call->failed()) {  // It is about to be cancelled.
      ++one;
      continue;
    }
    const auto next = Next(one->core, one->call);
    const bool found = next != queues_[one->core].end();
    const bool in_turn = !passed[one->core] || HasOwn(queues_[one->core], one->call);
    const bool backward_only = found && next->batch->mode == Mode::kBackwardOnly;
    if (!found || !in_turn ||
        !(backward_only || MayBegin(one->core, one->call, *next->batch))) {
      passed[one->core] = true;
      ++one;
      continue;
    }
    Ready ready;
    ready.turn.core = one->core;
    if (backward_only) {
      ready.status = RefuseBackwardOnly(one->core, one->call);
    } else {
      ready.turn.batch = next->batch;
      ready.turn.call = next->call;
      ready.turn.prepared = next->prepared;
    }
    calls->reserve(calls->size() + 1);
    if (!backward_only) {
      if (next->batch->mode == Mode::kTraining) {
        Begin(one->core, one->call, next->batch)->prepared = next->prepared;
      }
      queues_[one->core].erase(next);
      ++lookups_;
    }
    ready.on_turn = std::move(one->on_turn);
    calls->push_back(std::move(ready));
    one = receivers_.erase(one);
    *more = true;
  }
}

void Engine::AdmitSenders(Calls* calls, bool* more) {
  std::vector<bool> passed(queues_.size());
  for (auto one = senders_.begin(); one != senders_.end();) {
    Queue& queue = queues_[one->core];
    if (one->call && one->call->failed()) {
      ++one;
      continue;
    }
    if (passed[one->core] || static_cast<int64_t>(queue.size()) >= kMaxQueued) {
      passed[one->core] = true;
      ++one;
      continue;
    }
    calls->reserve(calls->size() + 1);
    queue.push_back({one->batch, one->call, one->prepared});
    Ready ready;
    ready.on_room = std::move(one->on_room);
    calls->push_back(std::move(ready));
    one = senders_.erase(one);
    *more = true;
  }
}

}  // namespace opwright::embedding
