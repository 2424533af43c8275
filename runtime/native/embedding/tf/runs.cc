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

// All tracked runs. `running` contains the runs whose managers exist. `ended` contains the runs
// of which an engine may still have batches or steps.
struct Registry {
  std::mutex mutex;
  Running running;
  std::vector<std::weak_ptr<TrackedRun>> ended;

  static Registry& Get() {
    // Never destroyed, because ops may outlive static objects.
    static Registry* const registry = new Registry;
    return *registry;
  }
};

}  // namespace

namespace {

// A step that one or more threads have entered. The thread that began it may leave it while
// another thread still works in it.
class ThreadStep {
 public:
  const std::shared_ptr<Run> run = std::make_shared<Run>(/*has_private_batches=*/false);

  // Adds the run of a function that was called in the step and left batches or steps in the
  // engine.
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

// Steps that other threads may join. The key is the number of the step.
struct JoinableSteps {
  std::mutex mutex;
  int64_t last = 0;
  std::map<int64_t, std::weak_ptr<ThreadStep>> steps;

  static JoinableSteps& Get() {
    // Never destroyed, because threads may outlive static objects.
    static JoinableSteps* const all = new JoinableSteps;
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
        // Whether this is a function that was not inlined. Such a function ends before the run
        // that called it.
        nested_(context->step_id() < 0 && context->step_container() &&
                context->step_container()->StepId() == context->step_id()),
        detector_(MakeRunEndDetector(context)) {}

  // Returns false if the run was cancelled before.
  bool Watch(OpKernelContext* context) {
    ResumeDetector(context);
    // The callback keeps this object alive until the manager calls it. The manager does so at
    // the latest when it is deleted.
    return manager_->RegisterCallback(token_, [self = shared_from_this()] { self->OnEnd(); });
  }
  void ResumeDetector(OpKernelContext* context) { detector_->Resume(context->rendezvous()); }
  void PauseDetector() { detector_->Pause(); }

  // Returns the state that is currently known. The caller must hold the lock of the registry.
  State FindState() const { return detector_->Find(over_); }
  // Returns whether the state cannot change any more.
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
      // The state is set under the registry's lock. Otherwise FindEndedRuns might set a newer
      // state first, which End would overwrite here.
      End(state);
    }
    Notify(shared_from_this(), sure);
    // The thread that called a function deletes the function's manager, which calls OnEnd. The
    // current thread is therefore in the step that called the function.
    if (state == State::kEnded && !steps.empty() && System::Get().Holds(shared_from_this())) {
      steps.back()->Add(shared_from_this());
    }
  }

  // For a function that was not inlined: returns kFailed if the run that called the function
  // has failed, else kEnded. Returns kRunning, for unknown, if no op of this library is in that
  // run.
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
  bool over_ = false;  // Whether the manager has called back.
};

}  // namespace

RunRef RunOf(OpKernelContext* context) {
  if (!steps.empty()) return steps.back()->run;
  // Only executors set this field. An op without it runs eagerly, and its run ends with the op.
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
        // A cancelled run may continue after the callback and end or abort later. IsFinal is
        // called before FindState. If it returns true, the state that FindState returns is
        // therefore final.
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
    // If a manager outlives a run, it does not call back when the run ends.
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
      // If deregistration fails, the manager is about to call back. Its callback waits for this
      // lock, so the manager still exists, and the callback erases the entry.
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
