#include "embedding/tf/watch.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "embedding/tf/runs.h"
#include "tensorflow/core/platform/logging.h"

namespace opwright::embedding {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kTick = std::chrono::milliseconds(100);
// What ends by itself within this is not interrupted: a program may handle Ctrl-C as it likes.
constexpr auto kInterruptDelay = std::chrono::seconds(1);
// When it is first said what an op waits for, and then each time after twice as long.
constexpr auto kSilence = std::chrono::seconds(10);
// How long the thread stays without anything to watch.
constexpr auto kIdle = std::chrono::seconds(5);

// Python notes a signal in its handler, and looks at it when the op has returned. So its
// handler is called by another one here, which notes when it came: perhaps just before an op
// began to wait.
std::atomic<int64_t> interrupted{0};  // As a count of nanoseconds; 0: never.
std::atomic<void (*)(int)> plain_handler{nullptr};
std::atomic<void (*)(int, siginfo_t*, void*)> full_handler{nullptr};

void OnInterrupt(int signal, siginfo_t* info, void* context) {
  interrupted = Clock::now().time_since_epoch().count();
  if (const auto handler = full_handler.load()) {
    handler(signal, info, context);
  } else if (const auto handler = plain_handler.load()) {
    handler(signal);
  }
}

bool IsOurs(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == OnInterrupt;
}

bool CameBefore(int64_t interrupt, Clock::time_point time) {
  return interrupt < Clock::time_point(time).time_since_epoch().count();
}

}  // namespace

// Where Ctrl-C ends the process or is ignored, it stays so.
void NoteInterrupts() {
  struct sigaction now;
  if (sigaction(SIGINT, nullptr, &now) != 0 || IsOurs(now)) return;
  const bool full = (now.sa_flags & SA_SIGINFO) != 0;
  if (!full && (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN)) return;
  full_handler = full ? now.sa_sigaction : nullptr;
  plain_handler = full ? nullptr : now.sa_handler;
  struct sigaction ours = now;
  ours.sa_flags |= SA_SIGINFO;
  ours.sa_sigaction = OnInterrupt;
  sigaction(SIGINT, &ours, nullptr);
}

namespace {

class Watcher {
 public:
  static Watcher& Get() {
    static Watcher* const watcher = new Watcher;  // Its thread may outlive statics.
    return *watcher;
  }

  void Add(const std::shared_ptr<Watched>& waiting) {
    std::lock_guard<std::mutex> lock(mutex_);
    all_.push_back({waiting, Clock::now(), kSilence});
    if (runs_in_ != getpid()) {  // Nor does a thread come along when a process forks.
      std::thread([this] { Run(); }).detach();
      runs_in_ = getpid();
    }
    changed_.notify_one();
  }

 private:
  struct Entry {
    std::weak_ptr<Watched> waiting;
    Clock::time_point since;
    Clock::duration silence;
  };

  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      if (all_.empty()) {
        if (changed_.wait_for(lock, kIdle, [this] { return !all_.empty(); })) continue;
        runs_in_ = 0;
        return;
      }
      NoteInterrupts();
      changed_.wait_for(lock, kTick);
      lock.unlock();
      FindEndedRuns();
      lock.lock();
      Look(&lock);
    }
  }

  // Entries are looked at without the lock: others may be added meanwhile, at the end.
  void Look(std::unique_lock<std::mutex>* lock) {
    const int64_t interrupt = interrupted;
    bool ended = false;
    for (size_t i = 0; i < all_.size();) {
      Entry entry = all_[i];
      lock->unlock();
      bool keep = false;
      if (const auto waiting = entry.waiting.lock()) {
        const std::string what = waiting->Describe();
        const auto age = Clock::now() - entry.since;
        keep = !what.empty();
        if (keep && age >= kInterruptDelay && interrupt != 0 &&
            !CameBefore(interrupt, std::max(entry.since - kInterruptDelay, ended_))) {
          waiting->Interrupt();
          ended = true;
          keep = false;
        } else if (keep && age >= entry.silence) {
          LOG(ERROR) << what << ", for "
                     << std::chrono::duration_cast<std::chrono::seconds>(age).count()
                     << " s now";
          entry.silence *= 2;
        }
      }
      lock->lock();
      if (keep) {
        all_[i++] = std::move(entry);
      } else {
        all_[i] = std::move(all_.back());
        all_.pop_back();
      }
    }
    if (ended) ended_ = Clock::now();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Entry> all_;
  Clock::time_point ended_{};  // Waits, by the interrupts until then.
  pid_t runs_in_ = 0;
};

}  // namespace

void Watch(const std::shared_ptr<Watched>& waiting) { Watcher::Get().Add(waiting); }

}  // namespace opwright::embedding
