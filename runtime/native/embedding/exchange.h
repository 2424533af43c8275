// How the processes that share the rows of tables, the hosts, hand each other bytes.
//
// All hosts make the same calls, each with its own part of them. Calls of one cargo are told
// apart by their numbers: in which order they come, and which of them at once, is each host's
// own business.
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
enum class Cargo { kCounts, kIds, kRows, kGradients, kTables, kWords, kConfigurations };
constexpr int kCargos = 7;
inline const char* NameOf(Cargo cargo) {
  constexpr const char* kNames[kCargos] = {"counts", "ids",   "rows",          "gradients",
                                           "tables", "words", "configurations"};
  return kNames[static_cast<int>(cargo)];
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
  // In words, for errors.
  virtual std::string Describe(int64_t host) const = 0;

  // Throws std::bad_alloc.
  virtual Buffer Allocate(int64_t bytes) = 0;

  // Sends out[h] to each other host h and fills in[h] with what that one sends here; sizes are
  // known to both. It waits for all of them, but not without end. An error says which hosts
  // could not be reached; after one, every later call returns it too.
  Status Swap(Cargo cargo, int64_t number, const std::vector<Buffer>& out,
              const std::vector<Buffer>& in) {
    for (size_t h = 0; h < out.size(); ++h) {
      if (static_cast<int64_t>(h) == host() || out[h].size == 0) continue;
      sent_[static_cast<size_t>(cargo)] += out[h].size;
      ++messages_;
    }
    return DoSwap(cargo, number, out, in);
  }

  // Runs what may wait for other hosts: it has a thread to itself, taken from none of the
  // pools that answer them.
  virtual void Run(std::function<void()> task) = 0;

  // So far, by this host.
  int64_t BytesSent(Cargo cargo) const { return sent_[static_cast<size_t>(cargo)]; }
  int64_t MessagesSent() const { return messages_; }

 protected:
  virtual Status DoSwap(Cargo cargo, int64_t number, const std::vector<Buffer>& out,
                        const std::vector<Buffer>& in) = 0;

 private:
  std::array<std::atomic<int64_t>, kCargos> sent_{};
  std::atomic<int64_t> messages_{0};
};

}  // namespace opwright::embedding
