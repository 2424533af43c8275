// Hosts within one process, for tests. Each host is a thread, and messages are copied between
// them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "embedding/exchange.h"

namespace opwright::embedding {

class Mailboxes {
 public:
  // The sending host, the receiving host, and the channel and number of the exchange.
  using Key = std::tuple<int64_t, int64_t, Channel, int64_t>;

  void Post(const Key& key, std::string bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    posts_[key] = std::move(bytes);
    posted_.notify_all();
  }
  // Waits for a message. Returns false if it does not come in time.
  bool Take(const Key& key, std::string* bytes) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto there = [&] { return posts_.count(key) != 0; };
    if (!posted_.wait_for(lock, std::chrono::seconds(20), there)) return false;
    *bytes = std::move(posts_[key]);
    posts_.erase(key);
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable posted_;
  std::map<Key, std::string> posts_;
};

class ThreadExchange : public Exchange {
 public:
  ThreadExchange(std::shared_ptr<Mailboxes> mailboxes, int64_t hosts, int64_t host)
      : mailboxes_(std::move(mailboxes)), hosts_(hosts), host_(host) {}

  int64_t hosts() const override { return hosts_; }
  int64_t host() const override { return host_; }
  std::string Describe(int64_t host) const override { return "host " + std::to_string(host); }

  Buffer Allocate(int64_t bytes) override {
    auto memory = std::make_shared<std::vector<double>>(static_cast<size_t>(bytes / 8 + 1));
    char* const data = reinterpret_cast<char*>(memory->data());
    return {std::move(memory), data, bytes};
  }

  void RunTask(std::function<void()> task) override { std::thread(std::move(task)).detach(); }

 protected:
  Status DoAllToAll(Channel channel, int64_t number, const std::vector<Buffer>& out,
                    const std::vector<Buffer>& in) override {
    for (int64_t h = 0; h < hosts_; ++h) {
      if (h == host_) continue;
      const Buffer& one = out[static_cast<size_t>(h)];
      mailboxes_->Post({host_, h, channel, number},
                       std::string(one.data, static_cast<size_t>(one.size)));
    }
    for (int64_t h = 0; h < hosts_; ++h) {
      if (h == host_) continue;
      const Buffer& one = in[static_cast<size_t>(h)];
      std::string bytes;
      if (!mailboxes_->Take({h, host_, channel, number}, &bytes)) {
        return InternalError(std::string(NameOf(channel)) + " of " + Describe(h) +
                             " did not come");
      }
      if (static_cast<int64_t>(bytes.size()) != one.size) {
        return InternalError(std::string(NameOf(channel)) + " of " + Describe(h) + " are " +
                             std::to_string(bytes.size()) + " bytes, not " +
                             std::to_string(one.size));
      }
      std::memcpy(one.data, bytes.data(), bytes.size());
    }
    return {};
  }

 private:
  const std::shared_ptr<Mailboxes> mailboxes_;
  const int64_t hosts_, host_;
};

}  // namespace opwright::embedding
