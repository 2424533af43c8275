// What a batch asks of the hosts that have its rows, and how hosts tell each other.
//
// Asked for are items of tables: a row, each once; or, of a table where that is less to send,
// what a sample has of one host's rows, which adds them up and sends the sum.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/checked.h"
#include "embedding/exchange.h"
#include "embedding/store.h"

namespace opwright::embedding {

// Where the rows of a table are: which host has one, as which of its own.
class Owners {
 public:
  Owners(int64_t rows, int64_t hosts, bool by_remainder)
      : rows_(rows),
        hosts_(hosts),
        each_(rows / hosts),
        more_(rows % hosts),
        by_remainder_(by_remainder) {}

  int64_t hosts() const { return hosts_; }
  int64_t HostOf(int64_t row) const {
    if (by_remainder_) return row % hosts_;
    const int64_t longer = more_ * (each_ + 1);
    return row < longer ? row / (each_ + 1) : more_ + (row - longer) / each_;
  }
  Shard ShardOf(int64_t host) const {
    return embedding::ShardOf(rows_, hosts_, host, by_remainder_);
  }
  int64_t LocalOf(int64_t row, int64_t host) const {
    const Shard shard = ShardOf(host);
    return (row - shard.first) / shard.step;
  }

 private:
  int64_t rows_, hosts_, each_, more_;
  bool by_remainder_;
};

// What of a table is asked for; the values travel.
enum class Form : int64_t { kRows, kSums, kWeightedSums };

// What one host asks of another: a feature is a table, a sample of it an item, and its ids are
// rows of the other's shard.
struct Asks {
  std::vector<Form> forms;  // By table.
  Batch batch;
};

class SharedBatch : public PreparedBatch {
 public:
  using PreparedBatch::PreparedBatch;

  // By table and host: how many items are those of the hosts before it; last, of all.
  std::vector<std::vector<int64_t>> begins;
  // By feature: the items that make each sample.
  std::vector<Bags> of_items;
  int64_t number = -1;  // Among those of this host.
  // Until the update: by host, the gradients of the items that it asked for.
  mutable std::vector<Exchange::Buffer> gradients;

  bool over() const override { return over_; }

  int64_t Items(size_t table) const { return begins[table].back(); }
  int64_t Items(size_t table, int64_t host) const {
    return ItemOf(begins[table], host + 1) - ItemOf(begins[table], host);
  }

 private:
  friend class Questions;

  std::vector<Asks> asks_;                           // By host, until they are sent.
  std::vector<std::shared_ptr<const Batch>> asked_;  // By host: what it asks of this one.
  Status refused_;                                   // Why this host did not take it.
  std::promise<Status> end_;                         // Of the exchange.
  const std::shared_future<Status> ended_{end_.get_future()};
  mutable std::mutex mutex_;
  mutable std::vector<PreparedRef> prepared_;  // Of `asked_`.
  mutable std::mutex turn_;                    // Of rows and gradients, which come one by one.
  mutable bool looked_up_ = false;
  mutable std::atomic<bool> over_{false};  // A host has refused it, and so have all.
};
using SharedRef = std::shared_ptr<SharedBatch>;

// Asks for a batch after the other, in the order of the calls and beside all else that the
// hosts do: nobody waits but who wants the answers.
//
// With its counts, its rows and its gradients a host says whether it goes on with a batch. If
// one does not, nobody does: whoever refuses says why, and the next batch has its turn.
class Questions : public std::enable_shared_from_this<Questions> {
 public:
  // `own` is what this host has of the tables of `whole`.
  Questions(std::shared_ptr<Exchange> exchange, const Configuration& whole,
            const Configuration& own, const std::vector<Owners>& owners);

  // Waits for all hosts, the first time, and compares their configurations with this one.
  Status Agree() const;

  // Begins to ask for what a batch needs. Throws std::bad_alloc, and then has asked for
  // nothing: Refuse takes the batch's place, or hosts would go on with batches that are not the
  // same.
  SharedRef Ask(ExecutionContext* exec, std::shared_ptr<const Batch> batch);

  // Says instead that this host's program failed to bring the batch.
  void Refuse(const Status& why);
  // Says that nobody here waits for a batch any more, once others ask.
  void Drop(SharedRef batch);

  int64_t RateBytes() const {
    return static_cast<int64_t>(whole_.tables.size() * sizeof(float));
  }
  // Room for the values of what the hosts ask of this one, and of what it asks of them, with
  // as many bytes after them, and what Swap says.
  void MakeRoom(const SharedBatch& batch, int64_t more, std::vector<Exchange::Buffer>* asked,
                std::vector<Exchange::Buffer>* asks) const;
  // Swaps rows or gradients, if this host does not refuse the batch.
  Status Swap(const SharedBatch& batch, Cargo cargo, const Status& own,
              const std::vector<Exchange::Buffer>& out,
              const std::vector<Exchange::Buffer>& in) const;

  // Waits for what the hosts ask of this one in their batches of the same number, which
  // `store` prepares.
  Status Asked(ExecutionContext* exec, const SharedBatch& batch, TableStore* store,
               const std::vector<PreparedRef>** asked) const;

 private:
  int64_t hosts() const { return exchange_->hosts(); }
  int64_t host() const { return exchange_->host(); }

  SharedRef Make(std::shared_ptr<const Batch> batch) const;
  void Queue(const SharedRef& batch);
  void FindItems(int64_t table, SharedBatch* batch) const;
  void Break(const char* why);
  void RefuseToGoOn(const SharedBatch& batch) const;
  void Work();
  Status SwapAsks(SharedBatch* batch) const;
  Status SwapInTurn(const SharedBatch& batch, Cargo cargo, const Status& own,
                    const std::vector<Exchange::Buffer>& out,
                    const std::vector<Exchange::Buffer>& in) const;
  Status Tell(const SharedBatch& batch, const std::vector<bool>& refused,
              const Status& own) const;
  Status SwapCounts(const SharedBatch& batch, std::vector<Asks>* asked) const;
  Status SwapIds(const SharedBatch& batch, std::vector<Asks>* asked) const;
  Status Check(int64_t from, const Asks& asks, size_t table) const;
  Status Refuse(int64_t from, const std::string& problem) const;
  Status CompareCombiners(const SharedBatch& batch) const;
  int64_t IdBytes(size_t table) const;

  const std::shared_ptr<Exchange> exchange_;
  const Configuration whole_, own_;
  const std::vector<Owners> owners_;
  std::mutex mutex_;
  std::deque<SharedRef> queue_;
  bool working_ = false;
  int64_t next_ = 0;
  Status broken_;
  mutable std::mutex agreement_mutex_;
  mutable std::optional<Status> agreement_;
};

}  // namespace opwright::embedding
