#include "embedding/engine.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <type_traits>
#include <utility>

#include "embedding/engine_waiters.h"
#include "embedding/text.h"

namespace opwright::embedding {
namespace {

// The execution context of work that no op does. It has one thread and takes heap memory.
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

// Runs `work` with the lock released, and turns std::bad_alloc into an error.
template <class Work>
Status WithUnlocked(std::unique_lock<std::mutex>* lock, const Work& work) {
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

template <class Continuations>
void InvokeAll(const Continuations& continuations) {
  for (const auto& continuation : continuations) continuation();
}

}  // namespace

Engine::Engine(const Configuration& configuration, std::unique_ptr<TableStore> store,
               DistributedStore* distributed)
    : configuration_(configuration),
      store_(std::move(store)),
      distributed_(distributed),
      queues_(static_cast<size_t>(configuration.cores)) {}

Engine::~Engine() = default;

StatusOr<std::shared_ptr<Engine>> Engine::Create(const Configuration& configuration,
                                                 std::unique_ptr<TableStore> store) {
  return Allocate(
      std::shared_ptr<Engine>(new Engine(configuration, std::move(store), nullptr)));
}

StatusOr<std::shared_ptr<Engine>> Engine::Create(const Configuration& configuration,
                                                 std::unique_ptr<DistributedStore> store) {
  DistributedStore* const distributed = store.get();
  return Allocate(
      std::shared_ptr<Engine>(new Engine(configuration, std::move(store), distributed)));
}

StatusOr<std::shared_ptr<Engine>> Engine::Allocate(std::shared_ptr<Engine> engine) {
  OPWRIGHT_RETURN_IF_ERROR(engine->store_->Allocate(engine->configuration_));
  return engine;
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

Status Engine::RefuseIfFailed(const RunRef& run) {
  if (!run || !run->failed()) return {};
  return FailedPreconditionError(
      "the run that this op is part of has failed, and its batches and steps "
      "were dropped");
}

Status Engine::RefuseBackwardOnly(int64_t core, const RunRef& run) const {
  const auto next = Next(core, run);
  const Mode mode = next == queues_[core].end() ? configuration_.mode : next->batch->mode;
  if (mode != Mode::kBackwardOnly) return {};
  return FailedPreconditionError(
      "batches of the mode BACKWARD_PASS_ONLY have no activations: enqueue for "
      "'train' or 'inference' what is to be looked up");
}

Status Engine::CheckOpen(const RunRef& run) {
  OPWRIGHT_RETURN_IF_ERROR(RefuseIfClosed());
  OPWRIGHT_RETURN_IF_ERROR(RefuseIfLost());
  return RefuseIfFailed(run);
}

Engine::WaiterId Engine::Enqueue(ExecutionContext* exec, int64_t core, Batch batch,
                                 OnQueued on_queued, const RunRef& run,
                                 const AllocateOutputs& allocate_outputs) {
  const auto kept = std::make_shared<const Batch>(std::move(batch));
  Continuations continuations;
  WaiterId waiter = 0;
  Status status;
  bool next = false;
  {
    // A batch must be refused before other hosts get requests for its rows.
    std::lock_guard<std::mutex> lock(mutex_);
    status = CheckOpen(run);
    next = WouldBeNext(core, *kept);
  }
  PreparedRef prepared;
  if (status.ok()) status = PrepareAhead(exec, kept, next, allocate_outputs, &prepared);
  if (status.ok()) {
    std::unique_lock<std::mutex> lock(mutex_);
    status = CheckOpen(run);
    if (status.ok()) status = AddSender(core, run, kept, prepared, &on_queued);
    if (status.ok()) {
      waiter = last_waiter_;
      static_cast<void>(Advance(exec, &lock, &continuations));
    }
  }
  if (!status.ok()) {
    prepared ? DropPrepared(prepared) : Refuse(status);
    on_queued(status);
  }
  InvokeAll(continuations);
  return waiter;
}

Status Engine::PrepareAhead(ExecutionContext* exec, const std::shared_ptr<const Batch>& batch,
                            bool next, const AllocateOutputs& allocate_outputs,
                            PreparedRef* prepared) {
  try {
    *prepared = store_->PrepareAhead(exec, batch);
    if (!*prepared && next && allocate_outputs) {
      *prepared = store_->LookUpAhead(exec, batch, allocate_outputs);
    }
  } catch (const std::bad_alloc&) {
    // All hosts must prepare the same batches in the same order. If this host lacks memory for
    // a batch, all hosts therefore have to refuse it. Other stores can prepare the batch later,
    // when its lookup is due.
    if (distributed_) {
      return ResourceExhaustedError("no memory for what a batch needs of other hosts");
    }
  }
  return {};
}

// On an error, `on_queued` is unchanged, and the caller has to call it.
Status Engine::AddSender(int64_t core, const RunRef& run,
                         const std::shared_ptr<const Batch>& batch, const PreparedRef& prepared,
                         OnQueued* on_queued) {
  try {
    senders_.emplace_back();
  } catch (const std::bad_alloc&) {
    return ResourceExhaustedError("no memory to enqueue a batch");
  }
  senders_.back() = {++last_waiter_, core, run, batch, prepared, std::move(*on_queued)};
  return {};
}

void Engine::Refuse(const Status& why) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return;
  }
  if (distributed_) distributed_->Refuse(why);
}

Engine::WaiterId Engine::Receive(ExecutionContext* exec, int64_t core, OnGrant on_grant,
                                 const RunRef& run) {
  Status status = store_->CheckUpdates(/*wait=*/false);
  Continuations continuations;
  WaiterId waiter = 0;
  if (status.ok()) {
    std::unique_lock<std::mutex> lock(mutex_);
    status = CheckOpen(run);
    if (status.ok()) status = RefuseBackwardOnly(core, run);
    if (status.ok()) {
      receivers_.push_back({last_waiter_ + 1, core, run, std::move(on_grant)});
      waiter = ++last_waiter_;
      if (Status late = Advance(exec, &lock, &continuations); !late.ok()) {
        // The update is tried again only when another call comes, and there may be none. The
        // receiver therefore gets the error of the update, and does not wait for the update.
        const auto own =
            std::find_if(receivers_.begin(), receivers_.end(),
                         [waiter](const Receiver& one) { return one.waiter == waiter; });
        if (own != receivers_.end()) {
          on_grant = std::move(own->on_grant);
          receivers_.erase(own);
          status = std::move(late);
        }
      }
    }
  }
  if (!status.ok()) on_grant(status, {});
  InvokeAll(continuations);
  return waiter;
}

bool Engine::Cancel(WaiterId waiter) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto forget = [&](auto* waiting) {
    const auto found = std::find_if(waiting->begin(), waiting->end(),
                                    [waiter](const auto& one) { return one.waiter == waiter; });
    if (found == waiting->end()) return false;
    if constexpr (std::is_same_v<decltype(waiting), std::deque<Sender>*>) {
      DropPrepared(found->prepared);
    }
    waiting->erase(found);
    return true;
  };
  return forget(&receivers_) || forget(&senders_);
}

std::string Engine::WhatFor(WaiterId waiter) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const Sender& one : senders_) {
    if (one.waiter != waiter) continue;
    return "for capacity in the queue of core " + Text(one.core) + ", which holds " +
           Text(queues_[one.core].size()) +
           " batches; RecvTPUEmbeddingActivations takes one away. If this wait does not end, "
           "the program enqueues more batches than it dequeues: call enqueue once for each "
           "dequeue";
  }
  for (const Receiver& one : receivers_) {
    if (one.waiter != waiter) continue;
    const std::string core = "core " + Text(one.core);
    const Queue& queue = queues_[one.core];
    const auto next = Next(one.core, one.run);
    if (queue.empty()) {
      return "for a batch of " + core +
             ", for which none is enqueued: call enqueue before dequeue";
    }
    if (next == queue.end()) {
      return "for a batch of " + core + " of its own: those that are enqueued, " +
             Text(queue.size()) + ", belong to runs that have not ended";
    }
    std::string missing;
    for (size_t c = 0; !steps_.empty() && c < steps_.front().size(); ++c) {
      if (!steps_.front()[c].sent) missing += (missing.empty() ? "" : ", ") + Text(c);
    }
    return "for the update of step " + Text(applied_) + ", for which core " + missing +
           " has not sent gradients (SendTPUEmbeddingGradients): call apply_gradients after "
           "dequeue, or enqueue with training=False";
  }
  return "";
}

Status Engine::Lookup(ExecutionContext* exec, const Grant& grant, float* const* outputs,
                      Status wrong) {
  Status status = std::move(wrong);
  PreparedRef prepared = grant.prepared;
  try {
    if (status.ok() && !prepared) {
      StatusOr<PreparedRef> made = store_->Prepare(exec, grant.batch);
      status = made.status();
      if (status.ok()) prepared = *std::move(made);
    }
    if (status.ok()) status = store_->Lookup(exec, prepared.get(), outputs);
  } catch (const std::bad_alloc&) {
    status = ResourceExhaustedError("no memory for a lookup");
  }
  Continuations continuations;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    --lookups_;
    const bool training = grant.batch->mode == Mode::kTraining;
    Part* const part = training ? PartOf(grant.core, grant.batch.get()) : nullptr;
    // The part is gone if its run failed meanwhile. If its gradients were sent meanwhile, the
    // step needs the part even though the lookup failed. If its gradients are on their way to
    // other hosts, only its Send may drop it.
    if (part && (status.ok() || part->sent || part->sharing)) {
      part->looked_up = true;
      part->prepared = std::move(prepared);
    } else if (!status.ok() && (part || !training) && !(grant.run && grant.run->failed())) {
      if (!prepared || !prepared->over()) {
        queues_[grant.core].push_front({grant.batch, grant.run, std::move(prepared)});
      }
      if (part) *part = {};
      RemoveEmptySteps();
    }
    // If an update fails, a later call reports it, because this call returns the lookup's
    // status.
    static_cast<void>(Advance(exec, &lock, &continuations));
  }
  InvokeAll(continuations);
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
    if (!TraitsOf(table.optimizer).has_rule()) {
      return UnimplementedError(where +
                                ": no rule is public for the updates of its optimizer, " +
                                TraitsOf(table.optimizer).field +
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

Engine::GradientTarget Engine::FindTarget(int64_t core, const RunRef& run) {
  GradientTarget target;
  target.part = Unsent(core, run, &target.step);
  target.batch = Next(core, run);
  target.backward_only = !target.part && target.batch != queues_[core].end() &&
                         target.batch->batch->mode == Mode::kBackwardOnly;
  if (target.backward_only) target.step = StepFor(core, run);
  return target;
}

Status Engine::CheckTarget(int64_t core, const GradientTarget& target,
                           const std::vector<float>& rates) const {
  if (!target.part && !target.backward_only) {
    return FailedPreconditionError(
        "no step of core " + Text(core) +
        " awaits gradients: RecvTPUEmbeddingActivations comes first, for a "
        "batch that was enqueued for training: call enqueue(..., training=True) and dequeue "
        "before apply_gradients");
  }
  if (target.step >= static_cast<size_t>(kMaxStepsAhead)) {
    return FailedPreconditionError("core " + Text(core) + " has sent the gradients of " +
                                   Text(target.step) +
                                   " steps that other cores have not; they must send theirs "
                                   "first");
  }
  if (target.step >= steps_.size()) return {};
  for (const Part& other : steps_[target.step]) {
    if (!other.rates.empty() && other.rates != rates) {
      return InvalidArgumentError("core " + Text(core) +
                                  " sends other learning rates than another core "
                                  "sent for the same step");
    }
  }
  return {};
}

Engine::Part* Engine::BeginBackwardOnly(int64_t core, const RunRef& run,
                                        Queue::const_iterator batch) {
  Part* const part = Begin(core, run, batch->batch);
  part->prepared = batch->prepared;
  part->looked_up = true;
  queues_[core].erase(batch);
  return part;
}

Status Engine::Send(ExecutionContext* exec, int64_t core,
                    const std::vector<const float*>& values, Owner owner,
                    const std::vector<float>& tagged_rates, const RunRef& run) {
  StatusOr<std::vector<float>> rates = RatesOf(tagged_rates);
  Status checked = rates.status();
  if (checked.ok()) checked = store_->CheckUpdates(/*wait=*/false);
  if (checked.ok()) checked = store_->CheckGradients(exec, values);
  std::vector<const float*> gradients = values;
  std::vector<float> shared_rates;
  if (distributed_ && rates.ok()) shared_rates = *rates;
  Continuations continuations;
  Status status;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (checked.ok()) OPWRIGHT_RETURN_IF_ERROR(CheckOpen(run));
    const GradientTarget target = FindTarget(core, run);
    if (checked.ok()) checked = CheckTarget(core, target, *rates);
    const bool shared = distributed_ && (target.part || target.backward_only);
    if (!checked.ok() && !shared) return checked;
    Part* part = target.part ? target.part : BeginBackwardOnly(core, run, target.batch);
    // The rates are set before the gradients are shared: meanwhile other cores compare theirs.
    if (rates.ok()) part->rates = *std::move(rates);
    if (shared) checked = Share(exec, &lock, core, &part, checked, values, shared_rates);
    if (checked.ok()) {
      part->gradients = std::move(gradients);
      part->owner = std::move(owner);
      part->sent = true;
      status = Advance(exec, &lock, &continuations);
    } else {
      *part = {};
      RemoveEmptySteps();
      static_cast<void>(Advance(exec, &lock, &continuations));
      status = std::move(checked);
    }
  }
  InvokeAll(continuations);
  return status;
}

// Sends gradients to the hosts that have their rows, with the lock released. `steps_` may
// change meanwhile, so `*part` is looked up again. It still exists, because no other call ends
// or drops a part that is sharing.
Status Engine::Share(ExecutionContext* exec, std::unique_lock<std::mutex>* lock, int64_t core,
                     Part** part, const Status& own, const std::vector<const float*>& gradients,
                     const std::vector<float>& rates) {
  const PreparedRef prepared = (*part)->prepared;
  Status status;
  (*part)->sharing = true;
  lock->unlock();
  try {
    status = distributed_->Share(exec, prepared.get(), own, gradients, rates);
  } catch (const std::bad_alloc&) {
    status = ResourceExhaustedError("no memory for gradients");
    distributed_->Drop(prepared);
  }
  lock->lock();
  *part = PartOf(core, &prepared->batch());
  (*part)->sharing = false;
  return status;
}

Status Engine::UpdateAll(ExecutionContext* exec, std::unique_lock<std::mutex>* lock) {
  // Lookups and updates under way end without this call. None begins while `claims_` > 0.
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
  Continuations continuations;
  Status status;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    OPWRIGHT_RETURN_IF_ERROR(RefuseIfClosed());
    if (writing_ || claims_ > 0 || StepIsComplete()) status = UpdateAll(exec, &lock);
    if (status.ok()) {
      ++lookups_;
      status = WithUnlocked(&lock, [&] { return read(store_.get()); });
      --lookups_;
    }
    // If an update fails, a later call reports it, because this call returns `read`'s status.
    static_cast<void>(Advance(exec, &lock, &continuations));
  }
  InvokeAll(continuations);
  return status;
}

Status Engine::Use(ExecutionContext* exec, const std::function<Status(TableStore*)>& use) {
  Continuations continuations;
  Status status;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    OPWRIGHT_RETURN_IF_ERROR(RefuseIfClosed());
    status = UpdateAll(exec, &lock);
    if (status.ok()) {
      writing_ = true;
      status = WithUnlocked(&lock, [&] {
        Status before = store_->CheckUpdates(/*wait=*/true);
        return before.ok() ? use(store_.get()) : before;
      });
      writing_ = false;
    }
    const Status later = Advance(exec, &lock, &continuations);
    if (status.ok()) status = later;
  }
  InvokeAll(continuations);
  return status;
}

// Drops the queued batches, and the parts of incomplete steps, whose runs match `whose`.
// Returns how many it dropped.
int64_t Engine::Drop(const std::function<bool(const RunRef&)>& whose) {
  int64_t dropped = 0;
  for (Queue& queue : queues_) {
    // A run's state may change at any time, because this lock does not protect it. `whose` is
    // therefore called once for each batch.
    const auto end = std::remove_if(queue.begin(), queue.end(), [&](const Queued& one) {
      if (!whose(one.run)) return false;
      DropPrepared(one.prepared);
      return true;
    });
    dropped += queue.end() - end;
    queue.erase(end, queue.end());
  }
  for (Step& step : steps_) {
    if (IsComplete(step)) continue;
    for (Part& part : step) {
      if (!part.batch || part.sharing || !whose(part.run)) continue;
      DropPrepared(part.prepared);
      part = {};
      ++dropped;
    }
  }
  RemoveEmptySteps();
  return dropped;
}

void Engine::RunEnded(const RunRef& run, bool sure) {
  SerialContext exec;
  Continuations continuations;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (run->failed()) {
      const int64_t dropped = Drop([&](const RunRef& one) { return one == run; });
      if (!sure && dropped > 0) SetLost(dropped);
    }
    // Other runs may have waited for the end of this one. If an update fails, a later call
    // reports it.
    static_cast<void>(Advance(&exec, &lock, &continuations));
  }
  InvokeAll(continuations);
}

int64_t Engine::Abandon(bool tell) {
  SerialContext exec;
  Continuations continuations;
  int64_t dropped;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    dropped =
        Drop([](const RunRef& run) { return !run || run->state() != Run::State::kRunning; });
    // One batch for each core is expected: those of the step that failed.
    if (tell && dropped > configuration_.cores) SetLost(dropped);
    static_cast<void>(Advance(&exec, &lock, &continuations));
  }
  InvokeAll(continuations);
  return dropped;
}

void Engine::SetLost(int64_t batches) {
  lost_ = Text(batches) + (batches == 1 ? " batch was" : " batches were") +
          " dropped: a step failed, and it cannot be known which of them it had enqueued "
          "(with opwright.tpu.embedding_step() it can); enqueue again what is missing";
}

bool Engine::Holds(const RunRef& run) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto own = [&](const auto& one) { return one.run == run; };
  return std::any_of(queues_.begin(), queues_.end(),
                     [&](const Queue& queue) {
                       return std::any_of(queue.begin(), queue.end(), own);
                     }) ||
         std::any_of(steps_.begin(), steps_.end(), [&](const Step& step) {
           return !IsComplete(step) && std::any_of(step.begin(), step.end(), own);
         });
}

int64_t Engine::QueuedBatches(int64_t core) {
  if (!CheckCore(core).ok()) return 0;
  std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int64_t>(queues_[static_cast<size_t>(core)].size());
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
  for (const Receiver& one : receivers) one.on_grant(FailedPreconditionError(why), {});
  for (const Sender& one : senders) one.on_queued(FailedPreconditionError(why));
}

Status Engine::Advance(ExecutionContext* exec, std::unique_lock<std::mutex>* lock,
                       Continuations* continuations) {
  Status status;
  while (status.ok() && lookups_ == 0 && !writing_ && claims_ == 0 && UpdateIsDue()) {
    status = Update(exec, lock);
  }
  try {
    GrantWaiters(continuations);
  } catch (const std::bad_alloc&) {
    // No waiter is lost: the next call grants what this one could not.
    if (status.ok()) status = ResourceExhaustedError("no memory to begin a step");
  }
  if (lookups_ == 0 && !writing_) idle_.notify_all();
  return status;
}

bool Engine::IsComplete(const Step& step) {
  return std::all_of(step.begin(), step.end(), [](const Part& part) { return part.sent; });
}

// With pipelining, the lookups of the next step come before this step's update. A batch for
// inference is looked up after all updates, so it makes them due.
bool Engine::UpdateIsDue() const {
  if (!StepIsComplete()) return false;
  if (!configuration_.pipelined || InferenceWaits()) return true;
  return steps_.size() > 1 && std::all_of(steps_[1].begin(), steps_[1].end(),
                                          [](const Part& part) { return part.looked_up; });
}

bool Engine::InferenceWaits() const {
  return std::any_of(receivers_.begin(), receivers_.end(), [this](const Receiver& one) {
    const auto next = Next(one.core, one.run);
    return next != queues_[one.core].end() && next->batch->mode == Mode::kInference;
  });
}

// Updates the tables with the oldest step. If the update fails, the step stays the oldest one.
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
    // If the update failed, the next try uses the same prepared batches.
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

}  // namespace opwright::embedding
