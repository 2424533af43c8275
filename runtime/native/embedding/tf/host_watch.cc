#include "embedding/tf/host_watch.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include "absl/log/log.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace opwright::embedding {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr Seconds kAnswersAtTheEnd{1};

}  // namespace

// What hosts are asked, by one thread, and have answered. It lives until the last answer.
class HostWatch::Questions : public std::enable_shared_from_this<Questions> {
 public:
  Questions(tensorflow::CollectiveExecutor* executor, const HostTasks& hosts)
      : executor_(executor, /*inherit_ref=*/false) {
    for (size_t h = 0; h < hosts.tasks.size(); ++h) {
      if (static_cast<int64_t>(h) == hosts.own) continue;
      const bool has_service = h == 0;
      const Seconds patience(hosts.patience / (has_service ? 2 : 1));
      hosts_.push_back({hosts.tasks[h], has_service, patience / 8, Clock::now()});
    }
  }

  // Until one does not answer, or it shall end.
  void Ask() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!over_) {
      Clock::time_point next = Clock::time_point::max();
      for (size_t h = 0; h < hosts_.size(); ++h) {
        if (hosts_[h].is_asked) continue;
        if (hosts_[h].next <= Clock::now()) {
          hosts_[h].is_asked = true;
          ++asked_;
          lock.unlock();
          Ask(h);
          lock.lock();
        } else {
          next = std::min(next, hosts_[h].next);
        }
      }
      if (over_) break;
      if (next == Clock::time_point::max()) {
        changed_.wait(lock);
      } else {
        changed_.wait_until(lock, next);
      }
    }
    if (silent_ == nullptr) return;
    const absl::Status status(
        why_.code(), absl::StrCat(silent_->task, " does not answer: ", why_.message()));
    lock.unlock();
    executor_.get()->StartAbort(status);
  }

  void End() {
    std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }

  void AwaitAnswers() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, kAnswersAtTheEnd, [this] { return asked_ == 0; });
  }

 private:
  struct Host {
    std::string task;
    bool has_service;
    Seconds interval;
    Clock::time_point next;  // When it is asked again.
    bool is_asked = false;
  };

  void Ask(size_t h) {
    const int64_t timeout_in_ms = static_cast<int64_t>(hosts_[h].interval.count() * 7 * 1000);
    executor_.get()->remote_access()->CheckPeerHealth(
        hosts_[h].task, std::max<int64_t>(1, timeout_in_ms),
        [self = shared_from_this(), h](const absl::Status& status) { self->Take(h, status); });
  }

  void Take(size_t h, const absl::Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    Host& host = hosts_[h];
    host.is_asked = false;
    host.next = Clock::now() + std::chrono::duration_cast<Clock::duration>(host.interval);
    --asked_;
    // Of others that have ended, or been started again, the service tells.
    if (!over_ && !status.ok() && (host.has_service || absl::IsDeadlineExceeded(status))) {
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
  bool over_ = false;
  const Host* silent_ = nullptr;
  absl::Status why_;
};

HostWatch::HostWatch(tensorflow::CollectiveExecutor* executor, const HostTasks& hosts)
    : questions_(std::make_shared<Questions>(executor, hosts)),
      runs_in_(getpid()),
      thread_([questions = questions_] {
        try {
          questions->Ask();
        } catch (const std::exception& error) {
          LOG(ERROR) << "the watch over other hosts has ended: " << error.what();
        }
      }) {}

HostWatch::~HostWatch() {
  if (runs_in_ != getpid()) {
    thread_.detach();
    return;
  }
  questions_->End();
  thread_.join();
  questions_->AwaitAnswers();
}

}  // namespace opwright::embedding
