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
// A wait that ends within this time is not interrupted, because a program may handle Ctrl-C in
// its own way.
constexpr auto kInterruptDelay = std::chrono::seconds(1);
// The time until the first log message about a wait. The time to the next message doubles each
// time.
constexpr auto kSilence = std::chrono::seconds(10);
// The time after which the thread ends if there is nothing to watch.
constexpr auto kIdle = std::chrono::seconds(5);

// Python's signal handler only records a signal. Python processes it after the op has returned,
// which is too late for an op that waits. The handler of this file therefore records the time
// of the signal and then calls Python's handler. The time matters because a signal may come
// just before an op begins to wait.
//
// The time of the last Ctrl-C in nanoseconds. 0 means never.
std::atomic<int64_t> interrupted{0};
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

// If Ctrl-C ends the process or is ignored, this is not changed.
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
    // Never destroyed, because its thread may outlive static objects.
    static Watcher* const watcher = new Watcher;
    return *watcher;
  }

  void Add(const std::shared_ptr<Watched>& waiting) {
    std::lock_guard<std::mutex> lock(mutex_);
    all_.push_back({waiting, Clock::now(), kSilence});
    if (runs_in_ != getpid()) {  // A new process after a fork does not have the thread.
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

  // Checks each entry without the lock. Other threads may append entries meanwhile.
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
  // The time at which interrupts last ended waits. Only later interrupts end further waits.
  Clock::time_point ended_{};
  pid_t runs_in_ = 0;
};

}  // namespace

void Watch(const std::shared_ptr<Watched>& waiting) { Watcher::Get().Add(waiting); }

}  // namespace opwright::embedding
