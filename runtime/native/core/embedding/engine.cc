#include "core/embedding/engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace opwright {
namespace embedding {
namespace {

std::string Text(int64_t value) { return std::to_string(value); }

void Make(const std::vector<std::function<void()>>& calls) {
  for (const auto& call : calls) call();
}

}  // namespace

Engine::Engine(const Configuration& configuration, std::unique_ptr<TableStore> store)
    : configuration_(configuration), store_(std::move(store)), cores_(configuration.cores) {}

Maybe Engine::Create(const Configuration& configuration, std::unique_ptr<TableStore> store,
                     std::shared_ptr<Engine>* engine) {
  std::shared_ptr<Engine> made(new Engine(configuration, std::move(store)));
  if (auto refusal = made->store_->Allocate(made->configuration_)) return refusal;
  *engine = std::move(made);
  return {};
}

Maybe Engine::CheckCore(int64_t core) const {
  if (core >= 0 && core < configuration_.cores) return {};
  return Invalid("the device ordinal must be in [0, " + Text(configuration_.cores) +
                 "), the cores of the configuration; is " + Text(core));
}

Maybe Engine::RefuseIfClosed() const {
  if (closed_) return Precondition(*closed_);
  return {};
}

Engine::Ticket Engine::Enqueue(Host* host, int64_t core, Batch batch, OnRoom on_room) {
  Calls calls;
  Ticket ticket = 0;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (auto refusal = RefuseIfClosed()) {
      lock.unlock();
      on_room(refusal);
      return 0;
    }
    ticket = ++last_ticket_;
    senders_.push_back({ticket, core, std::make_shared<const Batch>(std::move(batch)),
                        std::move(on_room)});
    Advance(host, &lock, &calls);
  }
  Make(calls);
  return ticket;
}

Engine::Ticket Engine::Receive(Host* host, int64_t core, OnTurn on_turn) {
  if (auto refusal = store_->CheckUpdates(/*wait=*/false)) {
    on_turn(refusal, {});
    return 0;
  }
  Calls calls;
  Ticket ticket = 0;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (auto refusal = RefuseIfClosed()) {
      lock.unlock();
      on_turn(refusal, {});
      return 0;
    }
    ticket = ++last_ticket_;
    receivers_.push_back({ticket, core, std::move(on_turn)});
    if (auto refusal = Advance(host, &lock, &calls)) {
      // It might wait for this update, which nobody may ever make.
      const auto own =
          std::find_if(receivers_.begin(), receivers_.end(),
                       [ticket](const Receiver& one) { return one.ticket == ticket; });
      if (own != receivers_.end()) {
        calls.push_back([on_turn = std::move(own->on_turn), refusal] { on_turn(refusal, {}); });
        receivers_.erase(own);
      }
    }
  }
  Make(calls);
  return ticket;
}

bool Engine::Cancel(Ticket ticket) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto forget = [ticket](auto* waiting) {
    const auto found =
        std::find_if(waiting->begin(), waiting->end(),
                     [ticket](const auto& one) { return one.ticket == ticket; });
    if (found == waiting->end()) return false;
    waiting->erase(found);
    return true;
  };
  return forget(&receivers_) || forget(&senders_);
}

Maybe Engine::Lookup(Host* host, const Turn& turn, float* const* outputs) {
  const Maybe refusal = store_->Lookup(host, *turn.batch, outputs);
  Calls calls;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    Core& core = cores_[turn.core];
    const bool training = turn.batch->mode == Mode::kTraining;
    --lookups_;
    const auto unsent = std::find(core.unsent.begin(), core.unsent.end(), turn.batch);
    if (refusal && !(training && unsent == core.unsent.end())) {  // Else: sent meanwhile.
      if (training) {
        core.unsent.erase(unsent);
        --core.begun;
      }
      core.queue.push_front(turn.batch);
    } else if (training) {
      ++core.received;
    }
    // An update that is put off is another call's to tell: this one has what it asked for.
    Advance(host, &lock, &calls);
  }
  Make(calls);
  return refusal;
}

Maybe Engine::RatesOf(const std::vector<float>& tagged_rates, std::vector<float>* rates) const {
  if (static_cast<int64_t>(tagged_rates.size()) != configuration_.tags) {
    return Invalid("there must be one learning rate for each of the " +
                   Text(configuration_.tags) + " tags of the configuration, there are " +
                   Text(static_cast<int64_t>(tagged_rates.size())));
  }
  for (size_t i = 0; i < configuration_.tables.size(); ++i) {
    const TableConfig& table = configuration_.tables[i];
    const std::string where = Describe(configuration_, static_cast<int64_t>(i));
    const float rate = table.dynamic_rate ? tagged_rates[table.tag] : table.hyper.learning_rate;
    if (!FactsOf(table.optimizer).has_rule()) {
      return Refusal{Refusal::Kind::kUnimplemented,
                     where + ": no rule is public for the updates of its optimizer, " +
                         FactsOf(table.optimizer).field + "; it can be loaded, looked up and "
                                                          "retrieved only"};
    }
    if (!table.has_rate) {
      return Precondition(where + ": it is configured without a learning_rate, constant or "
                                  "dynamic, and cannot be trained");
    }
    if (!std::isfinite(rate)) {
      return Invalid(where + ": its learning rate, of tag " + Text(table.tag) +
                     ", must be finite, is " + std::to_string(rate));
    }
    if (table.optimizer == Optimizer::kFtrl && table.hyper.hyper[4] == 0 && !(rate > 0)) {
      return Invalid(where + ": without multiply_linear_by_lr, ftrl divides by the learning "
                             "rate, which must be positive, is " +
                     std::to_string(rate));
    }
    rates->push_back(rate);
  }
  return {};
}

Maybe Engine::Send(Host* host, int64_t core, const std::vector<const float*>& values,
                   Owner owner, const std::vector<float>& tagged_rates) {
  std::vector<float> rates;
  if (auto refusal = RatesOf(tagged_rates, &rates)) return refusal;
  if (auto refusal = store_->CheckUpdates(/*wait=*/false)) return refusal;
  if (auto refusal = store_->CheckGradients(host, values)) return refusal;
  Calls calls;
  Maybe refusal;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (auto closed = RefuseIfClosed()) return closed;
    Core& from = cores_[core];
    const size_t step = from.pending.size();
    if (step < rates_.size() && rates_[step] != rates) {
      return Invalid("core " + Text(core) + " sends other learning rates than another core "
                     "sent for the same step");
    }
    const bool backward_only =
        from.unsent.empty() && !from.queue.empty() &&
        from.queue.front()->mode == Mode::kBackwardOnly;
    if (from.unsent.empty() && !backward_only) {
      return Precondition("no step of core " + Text(core) +
                          " awaits gradients: RecvTPUEmbeddingActivations comes first, for a "
                          "batch that was enqueued for training");
    }
    auto& batches = backward_only ? from.queue : from.unsent;
    from.pending.push_back({batches.front(), values, std::move(owner)});
    batches.pop_front();
    if (backward_only) {
      ++from.begun;
      ++from.received;
    }
    if (step == rates_.size()) rates_.push_back(std::move(rates));
    refusal = Advance(host, &lock, &calls);
  }
  Make(calls);
  return refusal;
}

Maybe Engine::Use(Host* host, const std::function<Maybe(TableStore*)>& use) {
  Calls calls;
  Maybe refusal;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (auto closed = RefuseIfClosed()) return closed;
    ++claims_;
    // Lookups and updates under way end by themselves, and none begins while one claims.
    const auto idle = [this] { return lookups_ == 0 && !writing_; };
    idle_.wait(lock, idle);
    while (!refusal && StepIsComplete()) {
      refusal = Update(host, &lock);
      idle_.wait(lock, idle);
    }
    if (!refusal) {
      writing_ = true;
      lock.unlock();
      refusal = store_->CheckUpdates(/*wait=*/true);
      if (!refusal) refusal = use(store_.get());
      lock.lock();
      writing_ = false;
    }
    --claims_;
    const Maybe later = Advance(host, &lock, &calls);
    if (!refusal) refusal = later;
  }
  Make(calls);
  return refusal;
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
  for (const Receiver& one : receivers) one.on_turn(Precondition(why), {});
  for (const Sender& one : senders) one.on_room(Precondition(why));
}

Maybe Engine::Advance(Host* host, std::unique_lock<std::mutex>* lock, Calls* calls) {
  Maybe refusal;
  while (!refusal && lookups_ == 0 && !writing_ && claims_ == 0 && UpdateIsDue()) {
    refusal = Update(host, lock);
  }
  Admit(calls);
  if (lookups_ == 0 && !writing_) idle_.notify_all();
  return refusal;
}

bool Engine::StepIsComplete() const {
  return std::all_of(cores_.begin(), cores_.end(),
                     [](const Core& core) { return !core.pending.empty(); });
}

// With pipelining, the lookups of the next step do not see this one's update. A batch for
// inference is no step, and wants to see all.
bool Engine::UpdateIsDue() const {
  if (!StepIsComplete()) return false;
  if (!configuration_.pipelined || InferenceWaits()) return true;
  return std::all_of(cores_.begin(), cores_.end(), [this](const Core& core) {
    return core.received >= applied_ + 2;
  });
}

bool Engine::InferenceWaits() const {
  return std::any_of(receivers_.begin(), receivers_.end(), [this](const Receiver& one) {
    const auto& queue = cores_[one.core].queue;
    return !queue.empty() && queue.front()->mode == Mode::kInference;
  });
}

// The oldest step of all cores. Refused, it stays where it is.
Maybe Engine::Update(Host* host, std::unique_lock<std::mutex>* lock) {
  std::vector<CoreGradients> gradients;
  for (const Core& core : cores_) {
    gradients.push_back({core.pending.front().batch.get(), core.pending.front().values});
  }
  const std::vector<float> rates = rates_.front();
  writing_ = true;
  lock->unlock();
  Maybe refusal = store_->Update(host, gradients, rates);
  lock->lock();
  writing_ = false;
  if (refusal) {
    refusal->problem =
        "the update of step " + Text(applied_) + " is put off: " + refusal->problem;
    return refusal;
  }
  for (Core& core : cores_) core.pending.pop_front();
  rates_.pop_front();
  ++applied_;
  return {};
}

bool Engine::MayBegin(const Core& core) const {
  if (core.queue.empty()) return false;
  switch (core.queue.front()->mode) {
    case Mode::kInference: return !StepIsComplete();
    case Mode::kTraining: return applied_ >= core.begun - (configuration_.pipelined ? 1 : 0);
    default: return false;
  }
}

void Engine::Admit(Calls* calls) {
  if (writing_ || claims_ > 0) return;
  for (bool more = true; more;) {
    more = false;
    std::vector<bool> passed(cores_.size());  // Cores where an earlier call still waits.
    for (auto one = receivers_.begin(); one != receivers_.end();) {
      Core& core = cores_[one->core];
      if (passed[one->core] || !MayBegin(core)) {
        passed[one->core] = true;
        ++one;
        continue;
      }
      Turn turn{one->core, core.queue.front()};
      core.queue.pop_front();
      if (turn.batch->mode == Mode::kTraining) {
        ++core.begun;
        core.unsent.push_back(turn.batch);
      }
      ++lookups_;
      calls->push_back([on_turn = std::move(one->on_turn), turn] { on_turn({}, turn); });
      one = receivers_.erase(one);
      more = true;
    }
    passed.assign(cores_.size(), false);
    for (auto one = senders_.begin(); one != senders_.end();) {
      Core& core = cores_[one->core];
      if (passed[one->core] || static_cast<int64_t>(core.queue.size()) >= kMostQueued) {
        passed[one->core] = true;
        ++one;
        continue;
      }
      core.queue.push_back(std::move(one->batch));
      calls->push_back([on_room = std::move(one->on_room)] { on_room({}); });
      one = senders_.erase(one);
      more = true;
    }
  }
}

}  // namespace embedding
}  // namespace opwright
