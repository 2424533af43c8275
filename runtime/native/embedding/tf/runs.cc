#include "embedding/tf/runs.h"

#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "embedding/tf/run_end_detector.h"
#include "embedding/tf/system.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace opwright::embedding {
namespace {

using tensorflow::CancellationManager;
using tensorflow::CancellationToken;
using tensorflow::OpKernelContext;
using State = Run::State;

class TrackedRun;
using Running = std::map<std::pair<CancellationManager*, int64_t>, std::shared_ptr<TrackedRun>>;

// Runs whose managers live, and those that engines may still hold something of.
struct Registry {
  std::mutex mutex;
  Running running;
  std::vector<std::weak_ptr<TrackedRun>> ended;

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
  const std::shared_ptr<Run> run = std::make_shared<Run>(/*has_private_batches=*/false);

  // Functions that it ran, and left something.
  void Add(std::shared_ptr<Run> ended) {
    std::lock_guard<std::mutex> lock(mutex_);
    ended_.push_back(std::move(ended));
  }
  std::vector<std::shared_ptr<Run>> TakeEnded() {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(ended_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<Run>> ended_;
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

void Notify(const RunRef& run, bool sure = true) { System::Get().RunEnded(run, sure); }

// The run of a function or of a session.
class TrackedRun : public Run, public std::enable_shared_from_this<TrackedRun> {
 public:
  TrackedRun(OpKernelContext* context)
      : Run(/*has_private_batches=*/true),
        manager_(context->cancellation_manager()),
        token_(manager_->get_cancellation_token()),
        // Of a function that was not inlined: its own end is not that of the run.
        nested_(context->step_id() < 0 && context->step_container() &&
                context->step_container()->StepId() == context->step_id()),
        detector_(MakeRunEndDetector(context)) {}

  // False: the run was cancelled before.
  bool Watch(OpKernelContext* context) {
    ResumeDetector(context);
    // Lives until the manager calls it, which it does when it is deleted at the latest.
    return manager_->RegisterCallback(token_, [self = shared_from_this()] { self->OnEnd(); });
  }
  void ResumeDetector(OpKernelContext* context) { detector_->Resume(context->rendezvous()); }
  void PauseDetector() { detector_->Pause(); }

  // What is known by now. Called with the registry's lock held.
  State FindState() const { return detector_->Find(over_); }
  // Whether nothing will change that.
  bool IsFinal() const { return detector_->IsFinal(); }

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
      state = FindState();
      if (nested_ && state != State::kFailed) {
        state = FindStateOfCaller(registry.running);
        sure = state != State::kRunning;
        if (!sure) state = State::kFailed;
      }
      for (auto one = registry.running.begin(); one != registry.running.end(); ++one) {
        if (one->second.get() != this) continue;
        registry.ended.push_back(one->second);
        registry.running.erase(one);
        break;
      }
      // With the lock held: the next look at it may know better.
      End(state);
    }
    Notify(shared_from_this(), sure);
    // A function's manager is deleted by the thread that called it.
    if (state == State::kEnded && !steps.empty() && System::Get().Holds(shared_from_this())) {
      steps.back()->Add(shared_from_this());
    }
  }

  // How the run of the calling function ended; kRunning: no op of ours shows it.
  State FindStateOfCaller(const Running& running) const {
    State found = State::kRunning;
    for (const auto& [key, run] : running) {
      if (key.first != manager_ || run->nested_) continue;
      found = run->FindState() == State::kFailed ? State::kFailed : State::kEnded;
      if (found == State::kFailed) break;
    }
    return found;
  }

  CancellationManager* const manager_;
  const CancellationToken token_;
  const bool nested_;
  const std::unique_ptr<RunEndDetector> detector_;
  bool over_ = false;  // The manager has said so.
};

}  // namespace

RunRef RunOf(OpKernelContext* context) {
  if (!steps.empty()) return steps.back()->run;
  // Executors alone bring this. An op that is run eagerly is over when it is done.
  if (!context->params()->inc_num_deferred_ops_function) return nullptr;
  if (!context->cancellation_manager() || !context->rendezvous()) return nullptr;
  auto& registry = Registry::Get();
  std::shared_ptr<TrackedRun> run;
  {
    std::lock_guard<std::mutex> lock(registry.mutex);
    auto& entry = registry.running[{context->cancellation_manager(), context->step_id()}];
    if (entry) {
      entry->ResumeDetector(context);
      return entry;
    }
    try {
      run = std::make_shared<TrackedRun>(context);
      if (run->Watch(context)) {
        entry = run;
        return run;
      }
    } catch (...) {
      registry.running.erase({context->cancellation_manager(), context->step_id()});
      throw;
    }
    registry.running.erase({context->cancellation_manager(), context->step_id()});
  }
  run->PauseDetector();
  run->End(State::kFailed);
  return run;
}

void FindEndedRuns() {
  auto& registry = Registry::Get();
  std::vector<std::shared_ptr<TrackedRun>> found;
  {
    std::lock_guard<std::mutex> lock(registry.mutex);
    auto& ended = registry.ended;
    for (size_t i = 0; i < ended.size();) {
      const std::shared_ptr<TrackedRun> run = ended[i].lock();
      bool is_final = false;
      if (run && run->state() != State::kFailed) {
        // Cancelled, it may have gone on, and be over or aborted since. What is final was so
        // before that is asked.
        is_final = run->IsFinal();
        const State state = run->FindState();
        if (state != State::kRunning && state != run->state()) {
          run->End(state);
          found.push_back(run);
        }
      }
      if (run && run->state() != State::kFailed && !is_final) {
        ++i;
      } else {
        ended[i] = std::move(ended.back());
        ended.pop_back();
      }
    }
    // A manager that outlives a run does not call back when it is over.
    for (auto one = registry.running.begin(); one != registry.running.end();) {
      const std::shared_ptr<TrackedRun> run = one->second;
      const State state = run->FindState();
      if (state == State::kRunning) {
        ++one;
        continue;
      }
      if (run->state() == State::kRunning) {
        run->End(state);
        found.push_back(run);
      }
      // If the manager is about to say so too, it waits for this lock, and lives.
      if (run->manager()->TryDeregisterCallback(run->token())) {
        one = registry.running.erase(one);
      } else {
        ++one;
      }
    }
  }
  for (const auto& run : found) Notify(run);
}

void Untrack(const RunRef& run) {
  auto& registry = Registry::Get();
  std::lock_guard<std::mutex> lock(registry.mutex);
  for (const auto& [key, one] : registry.running) {
    if (one == run) one->PauseDetector();
  }
}

void BeginStep() { steps.push_back(std::make_shared<ThreadStep>()); }

void EndStep(bool failed) {
  if (steps.empty()) return;
  const std::shared_ptr<ThreadStep> step = std::move(steps.back());
  steps.pop_back();
  FindEndedRuns();
  step->run->End(failed ? State::kFailed : State::kEnded);
  Notify(step->run);
  for (const auto& run : step->TakeEnded()) {
    if (failed) {
      run->End(State::kFailed);
      Notify(run);
    } else if (!steps.empty()) {
      steps.back()->Add(run);
    }
  }
  if (!failed && !steps.empty()) steps.back()->Add(step->run);
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
    step->run->End(State::kFailed);
  }
  steps.push_back(std::move(step));
}

void LeaveStep() {
  if (!steps.empty()) steps.pop_back();
}

}  // namespace opwright::embedding
