// The requests of batches to the hosts that own their rows, in the order of the batches.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "embedding/cpu/request_messages.h"
#include "embedding/cpu/request_plan.h"
#include "embedding/exchange.h"
#include "embedding/store.h"

namespace opwright::embedding {

// A batch whose rows lie on several hosts. ShardRequestQueue exchanges its requests, rows and
// gradients, and keeps here how far that is.
class SharedBatch : public PreparedBatch {
 public:
  SharedBatch(std::shared_ptr<const Batch> batch, RequestPlan plan)
      : PreparedBatch(std::move(batch)), plan_(std::move(plan)) {}

  const RequestPlan& plan() const { return plan_; }
  int64_t number = -1;  // Among those of this host.
  // Until the update: by host, the gradients of the units that it requested.
  std::vector<Exchange::Buffer> gradients;

  bool over() const override { return over_; }

  int64_t Units(size_t table) const { return plan_.begins[table].back(); }
  int64_t Units(size_t table, int64_t host) const {
    return At(plan_.begins[table], host + 1) - At(plan_.begins[table], host);
  }

 private:
  friend class ShardRequestQueue;

  RequestPlan plan_;                                    // Its requests: until they are sent.
  std::vector<std::shared_ptr<const Batch>> incoming_;  // By host: its requests.
  Status refused_;                                      // Why this host did not take it.
  std::promise<Status> end_;                            // Of the exchange.
  const std::shared_future<Status> ended_{end_.get_future()};
  std::mutex mutex_;
  std::vector<PreparedRef> prepared_;  // Of `incoming_`.
  std::mutex transfer_mutex_;          // Of rows and gradients, which come one by one.
  bool looked_up_ = false;
  std::atomic<bool> over_{false};  // A host has refused it, and so have all.
};
using SharedRef = std::shared_ptr<SharedBatch>;

// Exchanges the requests of one batch after the other, in the order of the calls and in the
// background. Only a caller that needs the replies waits.
//
// With its counts, its rows and its gradients a host says whether it goes on with a batch. If
// one host refuses, all of them drop the batch: the refusing host sends the reason, and the
// next batch follows.
class ShardRequestQueue : public std::enable_shared_from_this<ShardRequestQueue> {
 public:
  // `own` is what this host has of the tables of `whole`.
  ShardRequestQueue(std::shared_ptr<Exchange> exchange, const Configuration& whole,
                    const Configuration& own, const std::vector<RowSharding>& shardings);

  // Waits for all hosts, the first time, and compares their configurations with this one.
  Status EnsureHandshake();

  // Queues the requests of a batch. If it throws std::bad_alloc, it has queued nothing, and
  // the caller refuses the batch. Otherwise hosts would go on with different batches.
  SharedRef Submit(ExecutionContext* exec, std::shared_ptr<const Batch> batch);

  // Says instead that this host's program failed to bring the batch.
  void Refuse(const Status& why);
  // Drops a batch on all hosts, once its requests have been exchanged.
  void Drop(SharedRef batch);

  int64_t RateBytes() const {
    return static_cast<int64_t>(whole_.tables.size() * sizeof(float));
  }
  // Buffers for the values of incoming and of outgoing requests. Each has `more` bytes and the
  // refusal of AllToAll behind them.
  void AllocateBuffers(const SharedBatch& batch, int64_t more,
                       std::vector<Exchange::Buffer>* incoming,
                       std::vector<Exchange::Buffer>* outgoing) const;
  // Exchanges rows or gradients, unless a host refuses the batch.
  Status AllToAll(SharedBatch* batch, Channel channel, const Status& own,
                  const std::vector<Exchange::Buffer>& out,
                  const std::vector<Exchange::Buffer>& in) const;

  // Awaits the requests of all hosts in their batches of the same number. `store` prepares
  // them.
  Status AwaitIncoming(ExecutionContext* exec, SharedBatch* batch, TableStore* store,
                       const std::vector<PreparedRef>** incoming) const;

 private:
  int64_t hosts() const { return exchange_->hosts(); }
  int64_t host() const { return exchange_->host(); }

  SharedRef Make(std::shared_ptr<const Batch> batch) const;
  void Queue(const SharedRef& batch);
  void Break(const char* why);
  void AnnounceDrop(SharedBatch* batch) const;
  void Work();
  Status ExchangeRequests(SharedBatch* batch);
  Status AllToAllLocked(SharedBatch* batch, Channel channel, const Status& own,
                        const std::vector<Exchange::Buffer>& out,
                        const std::vector<Exchange::Buffer>& in) const;
  Status BroadcastRefusal(SharedBatch* batch, const std::vector<bool>& refused,
                          const Status& own) const;
  Status ExchangeHeaders(SharedBatch* batch, std::vector<RequestHeader>* headers) const;
  Status CompareModes(const SharedBatch& batch,
                      const std::vector<RequestHeader>& headers) const;
  Status CompareCombiners(const SharedBatch& batch,
                          const std::vector<RequestHeader>& headers) const;
  Status ExchangeIds(const SharedBatch& batch, std::vector<ShardRequest>* incoming) const;
  Status BadRequest(int64_t from, const std::string& problem) const;

  const std::shared_ptr<Exchange> exchange_;
  const Configuration whole_, own_;
  const std::vector<RowSharding> shardings_;
  std::mutex mutex_;
  std::deque<SharedRef> queue_;
  bool working_ = false;
  int64_t next_ = 0;
  Status broken_;
  std::mutex agreement_mutex_;
  std::optional<Status> agreement_;
};

}  // namespace opwright::embedding
