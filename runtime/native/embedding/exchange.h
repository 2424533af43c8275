// The transport between hosts. A host is one of the processes that share the rows of tables.
//
// All hosts make the same calls, each with its part of the data. A number identifies a call
// within its channel, because hosts may make calls in different orders and concurrently.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace opwright::embedding {

// The kinds of data that hosts exchange.
enum class Channel { kCounts, kIds, kRows, kGradients, kTables, kErrors, kConfigurations };
constexpr int kChannels = 7;
inline const char* NameOf(Channel channel) {
  constexpr const char* kNames[kChannels] = {"counts", "ids",    "rows",          "gradients",
                                             "tables", "errors", "configurations"};
  return kNames[static_cast<int>(channel)];
}

class Exchange {
 public:
  // The memory of a message. It is sent without a copy, and is aligned to 64 bytes.
  struct Buffer {
    std::shared_ptr<void> owner;
    char* data = nullptr;
    int64_t size = 0;
  };

  virtual ~Exchange() = default;

  virtual int64_t hosts() const = 0;
  virtual int64_t host() const = 0;  // The number of this host.
  // The host's name in errors.
  virtual std::string Describe(int64_t host) const = 0;

  // Throws std::bad_alloc.
  virtual Buffer Allocate(int64_t bytes) = 0;

  // Sends out[h] to each other host h, and fills in[h] with the message from host h. The caller
  // has allocated in[h] with the size of that message. The call waits for the messages of all
  // hosts, for a limited time. Empty messages need not be sent. An error names the hosts that
  // could not be reached. Every later call returns the same error.
  Status AllToAll(Channel channel, int64_t number, const std::vector<Buffer>& out,
                  const std::vector<Buffer>& in) {
    for (size_t h = 0; h < out.size(); ++h) {
      if (static_cast<int64_t>(h) == host() || out[h].size == 0) continue;
      sent_[static_cast<size_t>(channel)] += out[h].size;
      ++messages_;
    }
    return DoAllToAll(channel, number, out, in);
  }

  // Runs a task that may wait for other hosts. The task has its own thread. In a pool that also
  // answers other hosts, waiting tasks could take all threads, and two hosts could wait for
  // each other.
  virtual void RunTask(std::function<void()> task) = 0;

  // The number of bytes and of messages that this host has sent so far.
  int64_t BytesSent(Channel channel) const { return sent_[static_cast<size_t>(channel)]; }
  int64_t MessagesSent() const { return messages_; }

 protected:
  virtual Status DoAllToAll(Channel channel, int64_t number, const std::vector<Buffer>& out,
                            const std::vector<Buffer>& in) = 0;

 private:
  std::array<std::atomic<int64_t>, kChannels> sent_{};
  std::atomic<int64_t> messages_{0};
};

}  // namespace opwright::embedding
