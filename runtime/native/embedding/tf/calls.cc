#include "embedding/tf/calls.h"

#include <atomic>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "embedding/tf/system.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/rendezvous.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace opwright::embedding {
namespace {

using tensorflow::CancellationManager;
using tensorflow::CancellationToken;
using tensorflow::OpKernelContext;
using tensorflow::Rendezvous;
using tensorflow::RendezvousInterface;
using tensorflow::Tensor;
using State = Call::State;

// A name that no edge of a graph has, between the CPU of this process and itself: in a cluster
// a rendezvous refuses names of other tasks. All ops of a process are of one task.
const Rendezvous::ParsedKey& NobodysKey(OpKernelContext* context = nullptr) {
  static const Rendezvous::ParsedKey* const parsed = [context] {
    auto* const made = new Rendezvous::ParsedKey;
    std::string device = "/job:localhost/replica:0/task:0/device:CPU:0";
    if (context) {
      const auto& own = context->device()->parsed_name();
      device = tensorflow::DeviceNameUtils::FullName(own.job, own.replica, own.task, "CPU", 0);
    }
    const std::string key = Rendezvous::CreateKey(device, 1, device, "opwright: nobody's",
                                                  tensorflow::FrameAndIter(0, 0));
    Rendezvous::ParseKey(key, made).IgnoreError();  // It is well formed.
    return made;
  }();
  return *parsed;
}

// What a rendezvous answers to somebody who has given up already: why it was aborted, or that.
absl::Status AskInVain(RendezvousInterface* rendezvous) {
  CancellationManager given_up;
  given_up.StartCancel();
  RendezvousInterface::Args args;
  args.cancellation_manager = &given_up;
  absl::Status answer;
  rendezvous->RecvAsync(
      NobodysKey(), args,
      [&answer](const absl::Status& status, const RendezvousInterface::Args&,
                const RendezvousInterface::Args&, const Tensor&, bool) { answer = status; });
  return answer;
}

bool IsAborted(RendezvousInterface* rendezvous) {
  static const absl::Status* const in_vain = [] {
    tsl::core::RefCountPtr<Rendezvous> pristine(tensorflow::NewLocalRendezvous());
    return new absl::Status(AskInVain(pristine.get()));
  }();
  return AskInVain(rendezvous) != *in_vain;
}

// A session that runs on one device has a rendezvous that nobody can hold on to: it is asked
// for something, and answers when it is aborted or deleted.
class Question : public std::enable_shared_from_this<Question> {
 public:
  enum class Answer { kNone, kAborted, kDeleted };

  void Ask(RendezvousInterface* rendezvous) {
    RendezvousInterface::Args args;
    args.cancellation_manager = &given_up_;
    rendezvous->RecvAsync(NobodysKey(), args,
                          [self = shared_from_this()](
                              const absl::Status& status, const RendezvousInterface::Args&,
                              const RendezvousInterface::Args&, const Tensor&, bool) {
                            const bool deleted = absl::IsCancelled(status) &&
                                                 status.message() == "LocalRendezvous deleted";
                            self->answer_ = deleted ? Answer::kDeleted : Answer::kAborted;
                          });
  }
  // Nobody wants to know any more. TensorFlow would write a line for each open question.
  void GiveUp() { given_up_.StartCancel(); }

  Answer answer() const { return answer_; }

 private:
  CancellationManager given_up_;
  std::atomic<Answer> answer_{Answer::kNone};
};

class RunCall;
using Running = std::map<std::pair<CancellationManager*, int64_t>, std::shared_ptr<RunCall>>;

// Calls whose managers live, and those that engines may still hold something of.
struct Registry {
  std::mutex mutex;
  Running running;
  std::vector<std::weak_ptr<RunCall>> ended;

  static Registry& Get() {
    static Registry* const registry = new Registry;  // Ops may outlive statics.
    return *registry;
  }
};

}  // namespace

namespace {

// A step that threads are in. The one that began it may leave it while another still works.
class ThreadStep {
 public:
  const std::shared_ptr<Call> call = std::make_shared<Call>(/*keeps_batches=*/false);

  // Functions that it ran, and left something.
  void Add(std::shared_ptr<Call> ended) {
    std::lock_guard<std::mutex> lock(mutex_);
    ended_.push_back(std::move(ended));
  }
  std::vector<std::shared_ptr<Call>> TakeEnded() {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(ended_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<Call>> ended_;
};

thread_local std::vector<std::shared_ptr<ThreadStep>> steps;

// Steps that other threads may join, by number.
struct JoinableSteps {
  std::mutex mutex;
  int64_t last = 0;
  std::map<int64_t, std::weak_ptr<ThreadStep>> steps;

  static JoinableSteps& Get() {
    static JoinableSteps* const all = new JoinableSteps;  // Threads may outlive statics.
    return *all;
  }
};

void Tell(const CallRef& call, bool sure = true) { System::Get().CallEnded(call, sure); }

// The run of a function or of a session.
class RunCall : public Call, public std::enable_shared_from_this<RunCall> {
 public:
  RunCall(OpKernelContext* context)
      : Call(/*keeps_batches=*/true),
        manager_(context->cancellation_manager()),
        token_(manager_->get_cancellation_token()),
        // Of a function that was not inlined: its own end is not that of the call.
        nested_(context->step_id() < 0 && context->step_container() &&
                context->step_container()->StepId() == context->step_id()),
        shared_(dynamic_cast<Rendezvous*>(context->rendezvous())) {}

  // False: the run was cancelled before.
  bool Watch(OpKernelContext* context) {
    if (!shared_) AskAgain(context);
    // Lives until the manager calls it, which it does when it is deleted at the latest.
    return manager_->RegisterCallback(token_, [self = shared_from_this()] { self->OnEnd(); });
  }

  void AskAgain(OpKernelContext* context) {
    if (shared_ || question_) return;
    question_ = std::make_shared<Question>();
    question_->Ask(context->rendezvous());
  }
  void Forget() {
    if (!question_) return;
    std::exchange(question_, nullptr)->GiveUp();
  }

  // What can be told of it by now. Called with the registry's lock held.
  State Find() const {
    if (question_) {
      switch (question_->answer()) {
        case Question::Answer::kNone: return State::kRunning;
        case Question::Answer::kAborted: return State::kFailed;
        case Question::Answer::kDeleted: return State::kEnded;
      }
    }
    if (!shared_) return over_ ? State::kEnded : State::kRunning;
    const auto rendezvous = weak_.GetNewRef();
    if (!rendezvous) return State::kEnded;
    if (IsAborted(rendezvous.get())) return State::kFailed;
    return over_ ? State::kEnded : State::kRunning;
  }
  // Whether nothing will change that.
  bool IsFinal() const {
    if (question_) return question_->answer() != Question::Answer::kNone;
    return !shared_ || !weak_.GetNewRef();
  }

  CancellationManager* manager() const { return manager_; }
  CancellationToken token() const { return token_; }

 private:
  void OnEnd() {
    auto& registry = Registry::Get();
    State state;
    bool sure = true;
    {
      std::lock_guard<std::mutex> lock(registry.mutex);
      over_ = true;
      state = Find();
      if (nested_ && state != State::kFailed) {
        state = FindOfCaller(registry.running);
        sure = state != State::kRunning;
        if (!sure) state = State::kFailed;
      }
      for (auto one = registry.running.begin(); one != registry.running.end(); ++one) {
        if (one->second.get() != this) continue;
        registry.ended.push_back(one->second);
        registry.running.erase(one);
        break;
      }
      // With the lock held: whoever looks at it next may know better.
      End(state);
    }
    Tell(shared_from_this(), sure);
    // A function's manager is deleted by the thread that called it.
    if (state == State::kEnded && !steps.empty() && System::Get().Holds(shared_from_this())) {
      steps.back()->Add(shared_from_this());
    }
  }

  // How the call went that this function was part of; kRunning: no op of ours tells.
  State FindOfCaller(const Running& running) const {
    State found = State::kRunning;
    for (const auto& [key, call] : running) {
      if (key.first != manager_ || call->nested_) continue;
      found = call->Find() == State::kFailed ? State::kFailed : State::kEnded;
      if (found == State::kFailed) break;
    }
    return found;
  }

  CancellationManager* const manager_;
  const CancellationToken token_;
  const bool nested_;
  Rendezvous* const shared_;  // Null: it cannot be held on to.
  const tsl::core::WeakPtr<Rendezvous> weak_{shared_};
  std::shared_ptr<Question> question_;
  bool over_ = false;  // The manager has said so.
};

}  // namespace

CallRef CallOf(OpKernelContext* context) {
  if (!steps.empty()) return steps.back()->call;
  // Executors alone bring this. An op that is run eagerly is over when it is done.
  if (!context->params()->inc_num_deferred_ops_function) return nullptr;
  if (!context->cancellation_manager() || !context->rendezvous()) return nullptr;
  NobodysKey(context);
  auto& registry = Registry::Get();
  std::shared_ptr<RunCall> call;
  {
    std::lock_guard<std::mutex> lock(registry.mutex);
    auto& entry = registry.running[{context->cancellation_manager(), context->step_id()}];
    if (entry) {
      entry->AskAgain(context);
      return entry;
    }
    try {
      call = std::make_shared<RunCall>(context);
      if (call->Watch(context)) {
        entry = call;
        return call;
      }
    } catch (...) {
      registry.running.erase({context->cancellation_manager(), context->step_id()});
      throw;
    }
    registry.running.erase({context->cancellation_manager(), context->step_id()});
  }
  call->Forget();
  call->End(State::kFailed);
  return call;
}

void FindEndedCalls() {
  auto& registry = Registry::Get();
  std::vector<std::shared_ptr<RunCall>> found;
  {
    std::lock_guard<std::mutex> lock(registry.mutex);
    auto& ended = registry.ended;
    for (size_t i = 0; i < ended.size();) {
      const std::shared_ptr<RunCall> call = ended[i].lock();
      bool is_final = false;
      if (call && call->state() != State::kFailed) {
        // Cancelled, it may have gone on, and be over or aborted since. What is final was so
        // before that is asked.
        is_final = call->IsFinal();
        const State state = call->Find();
        if (state != State::kRunning && state != call->state()) {
          call->End(state);
          found.push_back(call);
        }
      }
      if (call && call->state() != State::kFailed && !is_final) {
        ++i;
      } else {
        ended[i] = std::move(ended.back());
        ended.pop_back();
      }
    }
    // Managers that outlive a call say nothing when it is over.
    for (auto one = registry.running.begin(); one != registry.running.end();) {
      const std::shared_ptr<RunCall> call = one->second;
      const State state = call->Find();
      if (state == State::kRunning) {
        ++one;
        continue;
      }
      if (call->state() == State::kRunning) {
        call->End(state);
        found.push_back(call);
      }
      // If the manager is about to say so too, it waits for this lock, and lives.
      if (call->manager()->TryDeregisterCallback(call->token())) {
        one = registry.running.erase(one);
      } else {
        ++one;
      }
    }
  }
  for (const auto& call : found) Tell(call);
}

void Forget(const CallRef& call) {
  auto& registry = Registry::Get();
  std::lock_guard<std::mutex> lock(registry.mutex);
  for (const auto& [key, one] : registry.running) {
    if (one == call) one->Forget();
  }
}

void BeginStep() { steps.push_back(std::make_shared<ThreadStep>()); }

void EndStep(bool failed) {
  if (steps.empty()) return;
  const std::shared_ptr<ThreadStep> step = std::move(steps.back());
  steps.pop_back();
  FindEndedCalls();
  step->call->End(failed ? State::kFailed : State::kEnded);
  Tell(step->call);
  for (const auto& call : step->TakeEnded()) {
    if (failed) {
      call->End(State::kFailed);
      Tell(call);
    } else if (!steps.empty()) {
      steps.back()->Add(call);
    }
  }
  if (!failed && !steps.empty()) steps.back()->Add(step->call);
}

int64_t StepOfThread() {
  if (steps.empty()) return 0;
  auto& joinable = JoinableSteps::Get();
  std::lock_guard<std::mutex> lock(joinable.mutex);
  for (auto one = joinable.steps.begin(); one != joinable.steps.end();) {
    const std::shared_ptr<ThreadStep> step = one->second.lock();
    if (step == steps.back()) return one->first;
    one = step ? std::next(one) : joinable.steps.erase(one);
  }
  joinable.steps[++joinable.last] = steps.back();
  return joinable.last;
}

void JoinStep(int64_t number) {
  auto& joinable = JoinableSteps::Get();
  std::shared_ptr<ThreadStep> step;
  {
    std::lock_guard<std::mutex> lock(joinable.mutex);
    const auto found = joinable.steps.find(number);
    if (found != joinable.steps.end()) step = found->second.lock();
  }
  if (!step) {
    step = std::make_shared<ThreadStep>();
    step->call->End(State::kFailed);
  }
  steps.push_back(std::move(step));
}

void LeaveStep() {
  if (!steps.empty()) steps.pop_back();
}

}  // namespace opwright::embedding
