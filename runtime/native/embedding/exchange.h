// The transport between hosts: the processes that share the rows of tables.
//
// All hosts make the same calls, each with its own part of the data. A number identifies a call
// within its channel: hosts may make calls in different orders, and concurrently.
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

// What travels.
enum class Channel { kCounts, kIds, kRows, kGradients, kTables, kErrors, kConfigurations };
constexpr int kChannels = 7;
inline const char* NameOf(Channel channel) {
  constexpr const char* kNames[kChannels] = {"counts", "ids",    "rows",          "gradients",
                                             "tables", "errors", "configurations"};
  return kNames[static_cast<int>(channel)];
}

class Exchange {
 public:
  // Memory that travels as it is, aligned to 64 bytes.
  struct Buffer {
    std::shared_ptr<void> owner;
    char* data = nullptr;
    int64_t size = 0;
  };

  virtual ~Exchange() = default;

  virtual int64_t hosts() const = 0;
  virtual int64_t host() const = 0;  // This one.
  // The host's name in errors.
  virtual std::string Describe(int64_t host) const = 0;

  // Throws std::bad_alloc.
  virtual Buffer Allocate(int64_t bytes) = 0;

  // Sends out[h] to each other host h and fills in[h] with what that one sends here; sizes are
  // known to both. It waits for all of them, but not without end. An error says which hosts
  // could not be reached; after one, every later call returns it too.
  Status AllToAll(Channel channel, int64_t number, const std::vector<Buffer>& out,
                  const std::vector<Buffer>& in) {
    for (size_t h = 0; h < out.size(); ++h) {
      if (static_cast<int64_t>(h) == host() || out[h].size == 0) continue;
      sent_[static_cast<size_t>(channel)] += out[h].size;
      ++messages_;
    }
    return DoAllToAll(channel, number, out, in);
  }

  // Runs what may wait for other hosts: it has a thread to itself, taken from none of the
  // pools that answer them.
  virtual void RunTask(std::function<void()> task) = 0;

  // So far, by this host.
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
