#include "embedding/tf/host_heartbeat.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/log/log.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace opwright::embedding {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr Seconds kReplyGrace{1};
constexpr double kForever = 1e8;  // In seconds. Larger values would overflow the clock.

}  // namespace

// The heartbeats of one thread, and the replies to them. Callbacks keep this object alive until
// the last reply.
class HostHeartbeat::HeartbeatLoop : public std::enable_shared_from_this<HeartbeatLoop> {
 public:
  HeartbeatLoop(tensorflow::CollectiveExecutor* executor, const HostTasks& hosts)
      : executor_(executor, /*inherit_ref=*/false) {
    for (size_t h = 0; h < hosts.tasks.size(); ++h) {
      if (static_cast<int64_t>(h) == hosts.own) continue;
      const bool has_service = h == 0;
      const Seconds timeout(std::min(hosts.timeout, kForever) / (has_service ? 2 : 1));
      const auto interval = std::chrono::duration_cast<Clock::duration>(timeout / 8);
      hosts_.push_back({hosts.tasks[h], has_service, interval, Clock::now(), Clock::now()});
    }
  }

  // Sends heartbeats until a host does not answer or End is called. If a host does not answer,
  // aborts all waits in collectives.
  void Run() {
    try {
      if (const Host* const unresponsive = SendUntilTimeout()) {
        executor_.get()->StartAbort(absl::Status(
            why_.code(),
            absl::StrCat(unresponsive->task, " does not answer: ", why_.message())));
      }
    } catch (const std::exception& error) {
      LOG(ERROR) << "heartbeats to other hosts have stopped: " << error.what();
    }
    std::lock_guard<std::mutex> lock(mutex_);
    runs_ = false;
    changed_.notify_all();
  }

  void End() {
    std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }

  void AwaitReplies() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, kReplyGrace, [this] { return !runs_ && in_flight_ == 0; });
  }

 private:
  struct Host {
    std::string task;
    bool has_service;
    Clock::duration interval;
    Clock::time_point next;        // The time at which the next heartbeat is due.
    Clock::time_point last_reply;  // The time of the last successful reply.
    bool in_flight = false;
  };

  // Returns the host that does not answer, or null if End was called.
  const Host* SendUntilTimeout() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!over_) {
      const auto first =
          std::min_element(hosts_.begin(), hosts_.end(), [](const Host& a, const Host& b) {
            return std::make_pair(a.in_flight, a.next) < std::make_pair(b.in_flight, b.next);
          });
      if (first->in_flight) {  // All hosts have a heartbeat in flight.
        changed_.wait(lock);
      } else if (first->next > Clock::now()) {
        changed_.wait_until(lock, first->next);
      } else {
        first->in_flight = true;
        ++in_flight_;
        lock.unlock();
        Send(static_cast<size_t>(first - hosts_.begin()));
        lock.lock();
      }
    }
    return unresponsive_;
  }

  void Send(size_t h) {
    using std::chrono::milliseconds;
    const auto timeout = std::chrono::duration_cast<milliseconds>(7 * hosts_[h].interval);
    executor_.get()->remote_access()->CheckPeerHealth(
        hosts_[h].task, std::max<int64_t>(1, timeout.count()),
        [self = shared_from_this(), h](const absl::Status& status) {
          self->OnReply(h, status);
        });
  }

  void OnReply(size_t h, const absl::Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto now = Clock::now();
    Host& host = hosts_[h];
    host.in_flight = false;
    host.next = now + host.interval;
    --in_flight_;
    if (status.ok()) host.last_reply = now;
    // The first host runs the coordination service. For the other hosts, only a missing answer
    // counts as a failure, because the service reports a host that has ended or was restarted.
    // After other errors, such as a broken connection, the host may soon be reachable again.
    const bool tells = host.has_service || absl::IsDeadlineExceeded(status);
    if (!over_ && !status.ok() && tells && now - host.last_reply >= 6 * host.interval) {
      over_ = true;
      unresponsive_ = &host;
      why_ = status;
    }
    changed_.notify_all();
  }

  // Replies arrive through the executor. It refers only to the context, which outlives this
  // object.
  const tensorflow::CollectiveExecutor::Handle executor_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Host> hosts_;
  int64_t in_flight_ = 0;
  bool over_ = false, runs_ = true;
  const Host* unresponsive_ = nullptr;
  absl::Status why_;
};

HostHeartbeat::HostHeartbeat(tensorflow::CollectiveExecutor* executor, const HostTasks& hosts)
    : loop_(std::make_shared<HeartbeatLoop>(executor, hosts)), runs_in_(getpid()) {
  try {
    std::thread([loop = loop_] { loop->Run(); }).detach();
  } catch (const std::exception& error) {
    LOG(ERROR) << "heartbeats to other hosts cannot start: " << error.what();
  }
}

HostHeartbeat::~HostHeartbeat() {
  if (runs_in_ != getpid()) return;
  loop_->End();
  loop_->AwaitReplies();
}

}  // namespace opwright::embedding
