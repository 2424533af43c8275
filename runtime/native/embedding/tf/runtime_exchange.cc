#include "embedding/tf/runtime_exchange.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/collective.h"
#include "tensorflow/core/framework/device.h"

namespace opwright::embedding {
namespace {

using tensorflow::CancellationManager;
using tensorflow::CollectiveExecutor;
using tensorflow::CollectiveRemoteAccess;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

constexpr char kDevice[] = "/device:CPU:0";

// The messages of one exchange. Callbacks keep this object alive until the last message has
// ended, which may be after the exchange has ended.
class Messages {
 public:
  Messages(size_t count) : ends_(count), left_(count) {}

  CancellationManager* cancellation() { return &cancellation_; }

  // Records the end of a message. The callback of each message calls this.
  void End(size_t message, const absl::Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (ends_[message]) return;
    ends_[message] = status;
    --left_;
    failed_ = failed_ || !status.ok();
    ended_.notify_all();
  }

  // Waits until all messages have ended or one has failed. Returns whether all succeeded within
  // the timeout.
  bool Await(std::chrono::duration<double> timeout) {
    std::unique_lock<std::mutex> lock(mutex_);
    return ended_.wait_for(lock, timeout, [this] { return left_ == 0 || failed_; }) && !failed_;
  }
  // Waits until all messages have ended, with or without an error. Returns whether they did
  // within the timeout.
  bool AwaitAll(std::chrono::duration<double> timeout) {
    std::unique_lock<std::mutex> lock(mutex_);
    return ended_.wait_for(lock, timeout, [this] { return left_ == 0; });
  }
  void Cancel() { cancellation_.StartCancel(); }

  std::vector<std::optional<absl::Status>> ends() {
    std::lock_guard<std::mutex> lock(mutex_);
    return ends_;
  }

 private:
  CancellationManager cancellation_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::vector<std::optional<absl::Status>> ends_;
  size_t left_;
  bool failed_ = false;
};

class RuntimeExchange : public Exchange {
 public:
  RuntimeExchange(CollectiveExecutor* executor, tensorflow::Device* device,
                  const HostTasks& hosts, int64_t generation)
      : executor_(executor, /*inherit_ref=*/false),
        device_(device),
        hosts_(hosts),
        prefix_(absl::StrCat("opwright tables ", generation)) {}

  int64_t hosts() const override { return static_cast<int64_t>(hosts_.tasks.size()); }
  int64_t host() const override { return hosts_.own; }
  std::string Describe(int64_t host) const override {
    return absl::StrCat("host ", host, " (", hosts_.tasks[static_cast<size_t>(host)], ")");
  }

  Buffer Allocate(int64_t bytes) override {
    auto tensor = std::make_shared<Tensor>();
    tensorflow::TensorShape shape;
    if (!tensorflow::TensorShape::BuildTensorShape({bytes}, &shape).ok())
      throw std::bad_alloc();
    *tensor = Tensor(tensorflow::DT_INT8, shape);
    if (bytes > 0 && !tensor->IsInitialized()) throw std::bad_alloc();
    char* const data = static_cast<char*>(tensor->data());
    return {std::move(tensor), data, bytes};
  }

  void RunTask(std::function<void()> task) override {
    executor_.get()->RunClosure(std::move(task));
  }

 protected:
  Status DoAllToAll(Channel channel, int64_t number, const std::vector<Buffer>& out,
                    const std::vector<Buffer>& in) override {
    if (const Status broken = Broken(); !broken.ok()) return broken;
    struct Message {
      size_t host;
      bool is_sent;
      Buffer buffer;
    };
    std::vector<Message> list;
    for (size_t h = 0; h < out.size(); ++h) {
      if (static_cast<int64_t>(h) == hosts_.own) continue;
      if (out[h].size > 0) list.push_back({h, true, out[h]});
      if (in[h].size > 0) list.push_back({h, false, in[h]});
    }
    const auto messages = std::make_shared<Messages>(list.size());
    CollectiveRemoteAccess* const access = executor_.get()->remote_access();
    tensorflow::AllocatorAttributes on_host;
    on_host.set_on_host(true);
    for (size_t i = 0; i < list.size(); ++i) {
      const Message& one = list[i];
      const std::string& task = hosts_.tasks[one.host];
      const size_t from = one.is_sent ? static_cast<size_t>(hosts_.own) : one.host;
      const size_t to = one.is_sent ? one.host : static_cast<size_t>(hosts_.own);
      const std::string key =
          absl::StrCat(prefix_, ": ", NameOf(channel), " ", number, ", ", from, " to ", to);
      auto* const tensor = static_cast<Tensor*>(one.buffer.owner.get());
      const auto done = [messages, i, kept = one.buffer](const absl::Status& status) {
        messages->End(i, status);
      };
      if (one.is_sent) {
        access->PostToPeer(absl::StrCat(task, kDevice), task, key, device_, nullptr, on_host,
                           tensor, device_->attributes().locality(), messages->cancellation(),
                           done);
      } else {
        access->RecvFromPeer(absl::StrCat(task, kDevice), task, /*peer_is_local=*/false, key,
                             device_, nullptr, on_host, tensor,
                             device_->attributes().locality(), 0, messages->cancellation(),
                             done);
      }
    }
    if (messages->Await(std::chrono::duration<double>(hosts_.timeout))) return {};
    const auto ends = messages->ends();
    messages->Cancel();
    // For each host that failed, `why` contains the runtime's error. `silent` lists the hosts
    // that did not answer: their messages have not ended, or the runtime has cancelled them.
    std::vector<std::string> why(hosts_.tasks.size());
    std::string silent;
    bool any_failed = false;
    for (size_t h = 0; h < why.size(); ++h) {
      bool waits = false;
      for (size_t i = 0; i < list.size(); ++i) {
        if (list[i].host != h) continue;
        waits = waits || !ends[i] || absl::IsCancelled(*ends[i]);
        if (ends[i] && !ends[i]->ok() && !absl::IsCancelled(*ends[i])) {
          why[h] = std::string(ends[i]->message());
          any_failed = true;
        }
      }
      if (waits) {
        absl::StrAppend(&silent, silent.empty() ? "" : ", ", Describe(static_cast<int64_t>(h)));
      }
    }
    std::string failed;
    if (any_failed) {
      AddUnreachable(access, why);
      for (size_t h = 0; h < why.size(); ++h) {
        if (why[h].empty()) continue;
        absl::StrAppend(&failed, failed.empty() ? "" : "; ", Describe(static_cast<int64_t>(h)),
                        ": ", why[h]);
      }
    }
    // Not Unavailable: TensorFlow changes it to Internal for ops that do not communicate.
    return Break(FailedPreconditionError(absl::StrCat(
        "the embedding tables' ", NameOf(channel), " (exchange ", number, ") of ",
        Describe(hosts_.own), " did not get through: ",
        failed.empty() ? absl::StrCat(silent, " did not answer within ", hosts_.timeout, " s")
                       : failed,
        ". Start all hosts again; training goes on from the last checkpoint")));
  }

 private:
  // Asks the hosts for which `why` is empty, and adds why some of them cannot be reached. One
  // of these hosts may have sent its part of this exchange before it failed. The failures that
  // are known already may be consequences of that.
  void AddUnreachable(CollectiveRemoteAccess* access, std::vector<std::string>& why) const {
    const double timeout = std::min(hosts_.timeout, 5.0);
    const auto answers = std::make_shared<Messages>(why.size());
    for (size_t h = 0; h < why.size(); ++h) {
      if (!why[h].empty() || static_cast<int64_t>(h) == hosts_.own) {
        answers->End(h, absl::OkStatus());
        continue;
      }
      access->CheckPeerHealth(
          hosts_.tasks[h], static_cast<int64_t>(timeout * 1000),
          [answers, h](const absl::Status& status) { answers->End(h, status); });
    }
    answers->AwaitAll(std::chrono::duration<double>(timeout));
    const auto ends = answers->ends();
    for (size_t h = 0; h < why.size(); ++h) {
      if (!ends[h])
        why[h] = absl::StrCat("did not answer within ", timeout, " s");
      else if (!ends[h]->ok())
        why[h] = std::string(ends[h]->message());
    }
  }
  Status Broken() {
    std::lock_guard<std::mutex> lock(mutex_);
    return broken_;
  }
  // Returns the first error of this exchange, which names the host that failed first. Later
  // errors may be consequences of it.
  Status Break(Status status) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (broken_.ok()) broken_ = std::move(status);
    return broken_;
  }

  CollectiveExecutor::Handle executor_;
  tensorflow::Device* const device_;
  const HostTasks hosts_;
  const std::string prefix_;
  std::mutex mutex_;
  Status broken_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<Exchange>> MakeRuntimeExchange(OpKernelContext* context,
                                                              const HostTasks& hosts,
                                                              int64_t generation) {
  CollectiveExecutor* const executor = context->collective_executor();
  if (!executor || !executor->remote_access()) {
    return absl::FailedPreconditionError(
        "tables of several hosts need TensorFlow's collectives, which are not set up here; "
        "make the strategy with opwright.tpu.software_strategy(resolver)");
  }
  auto* const device = static_cast<tensorflow::Device*>(context->device());
  return std::shared_ptr<Exchange>(
      std::make_shared<RuntimeExchange>(executor, device, hosts, generation));
}

}  // namespace opwright::embedding
