#include "embedding/tf/run_end_detector.h"

#include <atomic>
#include <string>
#include <utility>

#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/rendezvous.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace opwright::embedding {
namespace {

using tensorflow::CancellationManager;
using tensorflow::OpKernelContext;
using tensorflow::Rendezvous;
using tensorflow::RendezvousInterface;
using tensorflow::Tensor;
using State = Run::State;

// TensorFlow has no status code for this case. Only the text distinguishes a deleted rendezvous
// from an aborted one.
constexpr char kDeleted[] = "LocalRendezvous deleted";

// Returns a key with a name that no edge of a graph has. The source and the destination are the
// CPU of this process, because in a cluster a rendezvous refuses devices of other tasks. One
// key serves all calls, because all ops of a process belong to one task.
const Rendezvous::ParsedKey& ProbeKey(OpKernelContext* context = nullptr) {
  static const Rendezvous::ParsedKey* const parsed = [context] {
    auto* const made = new Rendezvous::ParsedKey;
    std::string device = "/job:localhost/replica:0/task:0/device:CPU:0";
    if (context) {
      const auto& own = context->device()->parsed_name();
      device = tensorflow::DeviceNameUtils::FullName(own.job, own.replica, own.task, "CPU", 0);
    }
    const std::string key = Rendezvous::CreateKey(device, 1, device, "opwright: probe",
                                                  tensorflow::FrameAndIter(0, 0));
    // The key is well formed, so parsing cannot fail.
    Rendezvous::ParseKey(key, made).IgnoreError();
    return made;
  }();
  return *parsed;
}

// Returns the reply of a rendezvous to a cancelled request. An aborted rendezvous replies with
// the status of the abort, and any other with the cancellation.
absl::Status PollAborted(RendezvousInterface* rendezvous) {
  CancellationManager cancelled;
  cancelled.StartCancel();
  RendezvousInterface::Args args;
  args.cancellation_manager = &cancelled;
  absl::Status reply;
  rendezvous->RecvAsync(
      ProbeKey(), args,
      [&reply](const absl::Status& status, const RendezvousInterface::Args&,
               const RendezvousInterface::Args&, const Tensor&, bool) { reply = status; });
  return reply;
}

bool IsAborted(RendezvousInterface* rendezvous) {
  static const absl::Status* const not_aborted = [] {
    tsl::core::RefCountPtr<Rendezvous> pristine(tensorflow::NewLocalRendezvous());
    return new absl::Status(PollAborted(pristine.get()));
  }();
  return PollAborted(rendezvous) != *not_aborted;
}

// A detector for a rendezvous with a reference count. A weak reference shows when the
// rendezvous is deleted.
class SharedRendezvousDetector : public RunEndDetector {
 public:
  explicit SharedRendezvousDetector(Rendezvous* rendezvous) : weak_(rendezvous) {}

  State Find(bool over) const override {
    const auto rendezvous = weak_.GetNewRef();
    if (!rendezvous) return State::kEnded;
    if (IsAborted(rendezvous.get())) return State::kFailed;
    return over ? State::kEnded : State::kRunning;
  }
  bool IsFinal() const override { return !weak_.GetNewRef(); }

 private:
  const tsl::core::WeakPtr<Rendezvous> weak_;
};

// A request for a key that is never sent. The rendezvous replies only when it is aborted or
// deleted.
class RendezvousProbe : public std::enable_shared_from_this<RendezvousProbe> {
 public:
  void Start(RendezvousInterface* rendezvous) {
    RendezvousInterface::Args args;
    args.cancellation_manager = &cancellation_;
    rendezvous->RecvAsync(ProbeKey(), args,
                          [self = shared_from_this()](
                              const absl::Status& status, const RendezvousInterface::Args&,
                              const RendezvousInterface::Args&, const Tensor&, bool) {
                            const bool deleted =
                                absl::IsCancelled(status) && status.message() == kDeleted;
                            self->state_ = deleted ? State::kEnded : State::kFailed;
                          });
  }
  // Cancels the request. Otherwise TensorFlow logs a line for each request that is open when a
  // rendezvous ends.
  void Cancel() { cancellation_.StartCancel(); }

  State state() const { return state_; }

 private:
  CancellationManager cancellation_;
  std::atomic<State> state_{State::kRunning};
};

// A detector for a rendezvous on the stack of a session that runs on one device.
class PrivateRendezvousDetector : public RunEndDetector {
 public:
  void Resume(RendezvousInterface* rendezvous) override {
    if (probe_) return;
    probe_ = std::make_shared<RendezvousProbe>();
    probe_->Start(rendezvous);
  }
  void Pause() override {
    if (probe_) std::exchange(probe_, nullptr)->Cancel();
  }

  State Find(bool over) const override {
    if (probe_) return probe_->state();
    return over ? State::kEnded : State::kRunning;
  }
  bool IsFinal() const override { return !probe_ || probe_->state() != State::kRunning; }

 private:
  std::shared_ptr<RendezvousProbe> probe_;
};

}  // namespace

std::unique_ptr<RunEndDetector> MakeRunEndDetector(OpKernelContext* context) {
  ProbeKey(context);
  if (auto* const shared = dynamic_cast<Rendezvous*>(context->rendezvous())) {
    return std::make_unique<SharedRendezvousDetector>(shared);
  }
  return std::make_unique<PrivateRendezvousDetector>();
}

}  // namespace opwright::embedding
