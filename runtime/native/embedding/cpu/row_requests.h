// The queue of requests that batches make to the hosts that own their rows.
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

// A batch whose rows are on several hosts. ShardRequestQueue exchanges its requests, rows and
// gradients, and keeps the progress in this object.
class SharedBatch : public PreparedBatch {
 public:
  SharedBatch(std::shared_ptr<const Batch> batch, RequestPlan plan)
      : PreparedBatch(std::move(batch)), plan_(std::move(plan)) {}

  const RequestPlan& plan() const { return plan_; }
  int64_t number = -1;  // Counts the batches of the queue. It is the same on all hosts.
  // gradients[h] has the gradients that host h sent for the units (request_plan.h) that it had
  // requested from this host. The update uses them.
  std::vector<Exchange::Buffer> gradients;

  bool over() const override { return over_; }

  int64_t Units(size_t table) const { return plan_.begins[table].back(); }
  int64_t Units(size_t table, int64_t host) const {
    return At(plan_.begins[table], host + 1) - At(plan_.begins[table], host);
  }

 private:
  friend class ShardRequestQueue;

  RequestPlan plan_;  // Its `requests` are removed once they have been sent.
  std::vector<std::shared_ptr<const Batch>> incoming_;  // The request of each host to this one.
  Status refused_;            // Why this host refuses the batch, if it does.
  std::promise<Status> end_;  // The result of the exchange of requests.
  const std::shared_future<Status> ended_{end_.get_future()};
  std::mutex mutex_;
  std::vector<PreparedRef> prepared_;  // The batches of `incoming_`, prepared.
  // Held during an exchange of rows or gradients: a batch has one such exchange at a time.
  std::mutex transfer_mutex_;
  bool looked_up_ = false;         // Whether its rows have been exchanged.
  std::atomic<bool> over_{false};  // Whether a host has refused the batch.
};
using SharedRef = std::shared_ptr<SharedBatch>;

// Exchanges the requests of one batch after the other, in the order of the calls and in the
// background. Only a caller that needs the replies waits.
//
// Each message of counts, rows or gradients has a flag: whether the sending host refuses the
// batch. If one host refuses a batch, all hosts drop it. The refusing host then sends the
// reason, and the hosts continue with the next batch.
class ShardRequestQueue : public std::enable_shared_from_this<ShardRequestQueue> {
 public:
  // `whole` has all tables, and `own` has the shards of this host.
  ShardRequestQueue(std::shared_ptr<Exchange> exchange, const Configuration& whole,
                    const Configuration& own, const std::vector<RowSharding>& shardings);

  // The first call waits for all hosts and compares their configurations. All calls return the
  // result of this comparison.
  Status EnsureHandshake();

  // Queues the requests of a batch. If it throws std::bad_alloc, it has queued nothing, and the
  // caller must refuse the batch. Otherwise the hosts would exchange requests of different
  // batches.
  SharedRef Submit(ExecutionContext* exec, std::shared_ptr<const Batch> batch);

  // Queues a refusal in place of the next batch, which this host's program failed to submit.
  void Refuse(const Status& why);
  // Drops a batch on all hosts, once its requests have been exchanged.
  void Drop(SharedRef batch);

  int64_t RateBytes() const {
    return static_cast<int64_t>(whole_.tables.size() * sizeof(float));
  }
  // Allocates buffers for the values of incoming and of outgoing requests. After the values,
  // each buffer has `more` bytes, and the refusal flag of AllToAll.
  void AllocateBuffers(const SharedBatch& batch, int64_t more,
                       std::vector<Exchange::Buffer>* incoming,
                       std::vector<Exchange::Buffer>* outgoing) const;
  // Exchanges rows or gradients, unless a host refuses the batch.
  Status AllToAll(SharedBatch* batch, Channel channel, const Status& own,
                  const std::vector<Exchange::Buffer>& out,
                  const std::vector<Exchange::Buffer>& in) const;

  // Waits until the requests of the batch have been exchanged. Sets `incoming` to the requests
  // of all hosts to this host, as batches that `store` has prepared.
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
