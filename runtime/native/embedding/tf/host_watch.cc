#include "embedding/tf/host_watch.h"

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

constexpr Seconds kLastAnswers{1};
constexpr double kForever = 1e8;  // Seconds. Clocks end.

}  // namespace

// What hosts are asked, by one thread, and have answered. It lives until the last answer.
class HostWatch::Questions : public std::enable_shared_from_this<Questions> {
 public:
  Questions(tensorflow::CollectiveExecutor* executor, const HostTasks& hosts)
      : executor_(executor, /*inherit_ref=*/false) {
    for (size_t h = 0; h < hosts.tasks.size(); ++h) {
      if (static_cast<int64_t>(h) == hosts.own) continue;
      const bool has_service = h == 0;
      const Seconds patience(std::min(hosts.patience, kForever) / (has_service ? 2 : 1));
      const auto interval = std::chrono::duration_cast<Clock::duration>(patience / 8);
      hosts_.push_back({hosts.tasks[h], has_service, interval, Clock::now(), Clock::now()});
    }
  }

  // Until one does not answer, or it shall end. Then nothing that waits is left.
  void Run() {
    try {
      if (const Host* const silent = AskUntilSilence()) {
        executor_.get()->StartAbort(absl::Status(
            why_.code(), absl::StrCat(silent->task, " does not answer: ", why_.message())));
      }
    } catch (const std::exception& error) {
      LOG(ERROR) << "the watch over other hosts has ended: " << error.what();
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

  void AwaitAnswers() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, kLastAnswers, [this] { return !runs_ && asked_ == 0; });
  }

 private:
  struct Host {
    std::string task;
    bool has_service;
    Clock::duration interval;
    Clock::time_point next;      // When it is asked again.
    Clock::time_point answered;  // When it last did.
    bool is_asked = false;
  };

  // Null: it shall end.
  const Host* AskUntilSilence() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!over_) {
      const auto first =
          std::min_element(hosts_.begin(), hosts_.end(), [](const Host& a, const Host& b) {
            return std::make_pair(a.is_asked, a.next) < std::make_pair(b.is_asked, b.next);
          });
      if (first->is_asked) {  // All are.
        changed_.wait(lock);
      } else if (first->next > Clock::now()) {
        changed_.wait_until(lock, first->next);
      } else {
        first->is_asked = true;
        ++asked_;
        lock.unlock();
        Ask(static_cast<size_t>(first - hosts_.begin()));
        lock.lock();
      }
    }
    return silent_;
  }

  void Ask(size_t h) {
    using std::chrono::milliseconds;
    const auto timeout = std::chrono::duration_cast<milliseconds>(7 * hosts_[h].interval);
    executor_.get()->remote_access()->CheckPeerHealth(
        hosts_[h].task, std::max<int64_t>(1, timeout.count()),
        [self = shared_from_this(), h](const absl::Status& status) { self->Take(h, status); });
  }

  void Take(size_t h, const absl::Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto now = Clock::now();
    Host& host = hosts_[h];
    host.is_asked = false;
    host.next = now + host.interval;
    --asked_;
    if (status.ok()) host.answered = now;
    // Of others that have ended, or been started again, the service tells. A connection that
    // broke may be there again soon.
    const bool tells = host.has_service || absl::IsDeadlineExceeded(status);
    if (!over_ && !status.ok() && tells && now - host.answered >= 6 * host.interval) {
      over_ = true;
      silent_ = &host;
      why_ = status;
    }
    changed_.notify_all();
  }

  // Answers come to the executor, which refers to no more than the context that outlives this.
  const tensorflow::CollectiveExecutor::Handle executor_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Host> hosts_;
  int64_t asked_ = 0;
  bool over_ = false, runs_ = true;
  const Host* silent_ = nullptr;
  absl::Status why_;
};

HostWatch::HostWatch(tensorflow::CollectiveExecutor* executor, const HostTasks& hosts)
    : questions_(std::make_shared<Questions>(executor, hosts)), runs_in_(getpid()) {
  try {
    std::thread([questions = questions_] { questions->Run(); }).detach();
  } catch (const std::exception& error) {
    LOG(ERROR) << "nobody watches over other hosts: " << error.what();
  }
}

HostWatch::~HostWatch() {
  if (runs_in_ != getpid()) return;
  questions_->End();
  questions_->AwaitAnswers();
}

}  // namespace opwright::embedding
