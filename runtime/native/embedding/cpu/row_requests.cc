#include "embedding/cpu/row_requests.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/checked.h"
#include "embedding/cpu/handshake.h"
#include "embedding/cpu/request_messages.h"

namespace opwright::embedding {
namespace {

using Buffer = Exchange::Buffer;
using Buffers = std::vector<Buffer>;  // One for each host.

constexpr int64_t kRefusalBytes = 8;  // The refusal flag behind rows and gradients.

const char* NameOf(Combiner combiner) {
  switch (combiner) {
    case Combiner::kSum: return "sum";
    case Combiner::kMean: return "mean";
    case Combiner::kSqrtN: return "sqrtn";
  }
  return "unknown";
}

// The combiners of all features, one character each. All hosts have the same number of
// features, so their texts have the same length.
std::string CombinersOf(const Batch& batch) {
  std::string combiners;
  for (const Bags& bags : batch.features) combiners += static_cast<char>(bags.combiner);
  return combiners;
}

}  // namespace

ShardRequestQueue::ShardRequestQueue(std::shared_ptr<Exchange> exchange,
                                     const Configuration& whole, const Configuration& own,
                                     const std::vector<RowSharding>& shardings)
    : exchange_(std::move(exchange)), whole_(whole), own_(own), shardings_(shardings) {}

SharedRef ShardRequestQueue::Make(std::shared_ptr<const Batch> batch) const {
  const Mode mode = batch->mode;
  return std::make_shared<SharedBatch>(std::move(batch), RequestPlan(whole_, hosts(), mode));
}

Status ShardRequestQueue::EnsureHandshake() {
  std::lock_guard<std::mutex> lock(agreement_mutex_);
  if (agreement_) return *agreement_;
  // If the handshake throws, later calls return this error. The handshake cannot be repeated,
  // because other hosts may already have sent their part.
  agreement_ =
      ResourceExhaustedError("no memory to compare configurations; start all hosts again");
  agreement_ = Handshake(exchange_.get(), whole_);
  return *agreement_;
}

// Appends a batch to the queue and numbers it. If it throws, it has queued nothing.
void ShardRequestQueue::Queue(const SharedRef& batch) {
  std::lock_guard<std::mutex> lock(mutex_);
  queue_.push_back(batch);
  try {
    if (!working_) exchange_->RunTask([self = shared_from_this()] { self->Work(); });
  } catch (...) {
    queue_.pop_back();
    throw;
  }
  working_ = true;
  batch->number = next_++;
}

SharedRef ShardRequestQueue::Submit(ExecutionContext* exec,
                                    std::shared_ptr<const Batch> batch) {
  const SharedRef made = Make(std::move(batch));
  exec->For(static_cast<int64_t>(whole_.tables.size()), [&](int64_t t) {
    PlanRequests(whole_, At(shardings_, t), host(), t, made->batch(), &made->plan_);
  });
  Queue(made);
  return made;
}

void ShardRequestQueue::Refuse(const Status& why) {
  try {
    const SharedRef made = Make(std::make_shared<const Batch>());
    made->refused_ = why;
    Queue(made);
  } catch (const std::bad_alloc&) {
    Break("no memory to refuse a batch; start all hosts again");
  }
}

// Makes all later batches fail, because this host can neither submit nor refuse a batch. Other
// hosts wait for that batch until they time out.
void ShardRequestQueue::Break(const char* why) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (broken_.ok()) broken_ = ResourceExhaustedError(why);
}

void ShardRequestQueue::Drop(SharedRef batch) {
  try {
    exchange_->RunTask([self = shared_from_this(), batch = std::move(batch)] {
      try {
        self->AnnounceDrop(batch.get());
      } catch (const std::bad_alloc&) {
        self->Break("no memory to drop a batch; start all hosts again");
      }
    });
  } catch (const std::bad_alloc&) {
    Break("no memory to drop a batch; start all hosts again");
  }
}

// Refuses a batch in its next exchange. The result of that exchange does not matter here.
void ShardRequestQueue::AnnounceDrop(SharedBatch* batch) const {
  if (!batch->ended_.get().ok()) return;
  const Status why = FailedPreconditionError("the step that it is part of has failed there");
  const Mode mode = batch->batch().mode;
  Buffers incoming, outgoing;
  std::lock_guard<std::mutex> lock(batch->transfer_mutex_);
  if (!batch->looked_up_ && mode != Mode::kBackwardOnly) {
    AllocateBuffers(*batch, 0, &incoming, &outgoing);
    static_cast<void>(AllToAllLocked(batch, Channel::kRows, why, incoming, outgoing));
  } else if (mode != Mode::kInference) {
    AllocateBuffers(*batch, RateBytes(), &incoming, &outgoing);
    static_cast<void>(AllToAllLocked(batch, Channel::kGradients, why, outgoing, incoming));
  }
}

void ShardRequestQueue::AllocateBuffers(const SharedBatch& batch, int64_t more,
                                        Buffers* incoming, Buffers* outgoing) const {
  for (int64_t h = 0; h < hosts(); ++h) {
    int64_t of_incoming = 0, of_outgoing = 0;
    for (size_t t = 0; t < whole_.tables.size(); ++t) {
      const int64_t bytes = whole_.tables[t].dimension * static_cast<int64_t>(sizeof(float));
      of_incoming += At(batch.incoming_, h)->features[t].samples * bytes;
      of_outgoing += batch.Units(t, h) * bytes;
    }
    incoming->push_back(exchange_->Allocate(of_incoming + more + kRefusalBytes));
    outgoing->push_back(h == host() ? incoming->back()
                                    : exchange_->Allocate(of_outgoing + more + kRefusalBytes));
  }
}

Status ShardRequestQueue::AllToAll(SharedBatch* batch, Channel channel, const Status& own,
                                   const Buffers& out, const Buffers& in) const {
  std::lock_guard<std::mutex> lock(batch->transfer_mutex_);
  return AllToAllLocked(batch, channel, own, out, in);
}

Status ShardRequestQueue::AllToAllLocked(SharedBatch* batch, Channel channel, const Status& own,
                                         const Buffers& out, const Buffers& in) const {
  if (batch->over_) return FailedPreconditionError("the step of this batch was dropped");
  const int64_t says = own.ok() ? 0 : 1;
  for (const Buffer& one : out) {
    std::memcpy(one.data + one.size - kRefusalBytes, &says, sizeof says);
  }
  OPWRIGHT_RETURN_IF_ERROR(exchange_->AllToAll(channel, batch->number, out, in));
  batch->looked_up_ = batch->looked_up_ || channel == Channel::kRows;
  std::vector<bool> refused;
  for (const Buffer& one : in) {
    int64_t said;
    std::memcpy(&said, one.data + one.size - kRefusalBytes, sizeof said);
    refused.push_back(said != 0);
  }
  return BroadcastRefusal(batch, refused, own);
}

// If any host has refused the batch, the refusing hosts send their reasons to all others.
// Returns an error with these reasons, or success if no host has refused.
Status ShardRequestQueue::BroadcastRefusal(SharedBatch* batch, const std::vector<bool>& refused,
                                           const Status& own) const {
  if (std::find(refused.begin(), refused.end(), true) == refused.end()) return {};
  batch->over_ = true;
  constexpr size_t kMost = 1024;
  Buffers out, in;
  for (int64_t h = 0; h < hosts(); ++h) {
    out.push_back(exchange_->Allocate(own.ok() || h == host() ? 0 : kMost));
    in.push_back(
        exchange_->Allocate(h != host() && refused[static_cast<size_t>(h)] ? kMost : 0));
    const size_t size = static_cast<size_t>(out.back().size);
    if (size > 0) std::strncpy(out.back().data, own.message().c_str(), size);
  }
  OPWRIGHT_RETURN_IF_ERROR(exchange_->AllToAll(Channel::kErrors, batch->number, out, in));
  if (!own.ok()) return own;
  std::string words;
  for (int64_t h = 0; h < hosts(); ++h) {
    const Buffer& one = At(in, h);
    if (one.size == 0) continue;
    const char* const said = one.data;
    words += (words.empty() ? "" : "; ") + exchange_->Describe(h) +
             " refuses the batch: " + std::string(said, std::find(said, said + one.size, '\0'));
  }
  return InvalidArgumentError(words);
}

void ShardRequestQueue::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!queue_.empty()) {
    const SharedRef batch = std::move(queue_.front());
    queue_.pop_front();
    Status status = broken_;
    if (status.ok()) {
      lock.unlock();
      try {
        status = ExchangeRequests(batch.get());
      } catch (const std::bad_alloc&) {
        status = ResourceExhaustedError("no memory for what other hosts request of " +
                                        exchange_->Describe(host()));
      }
      lock.lock();
      // If a host refused the batch, all hosts have dropped it and go on with the same next
      // batch. After any other error, other hosts may be at a later batch, so later exchanges
      // cannot work.
      if (broken_.ok() && !batch->over_) broken_ = status;
    }
    batch->end_.set_value(std::move(status));
  }
  working_ = false;
}

Status ShardRequestQueue::AwaitIncoming(ExecutionContext* exec, SharedBatch* batch,
                                        TableStore* store,
                                        const std::vector<PreparedRef>** incoming) const {
  OPWRIGHT_RETURN_IF_ERROR(batch->ended_.get());
  std::lock_guard<std::mutex> lock(batch->mutex_);
  std::vector<PreparedRef>& prepared = batch->prepared_;
  while (prepared.size() < batch->incoming_.size()) {
    StatusOr<PreparedRef> one = store->Prepare(exec, batch->incoming_[prepared.size()]);
    OPWRIGHT_RETURN_IF_ERROR(one.status());
    prepared.push_back(*std::move(one));
  }
  *incoming = &prepared;
  return {};
}

Status ShardRequestQueue::ExchangeRequests(SharedBatch* batch) {
  std::vector<RequestHeader> headers;
  std::vector<ShardRequest> incoming(static_cast<size_t>(hosts()));
  OPWRIGHT_RETURN_IF_ERROR(EnsureHandshake());
  OPWRIGHT_RETURN_IF_ERROR(ExchangeHeaders(batch, &headers));
  OPWRIGHT_RETURN_IF_ERROR(CompareModes(*batch, headers));
  OPWRIGHT_RETURN_IF_ERROR(CompareCombiners(*batch, headers));
  for (int64_t h = 0; h < hosts(); ++h) {
    const std::string problem =
        MakeRequest(whole_, At(headers, h), batch->batch().mode, h != host(), &At(incoming, h));
    if (!problem.empty()) return BadRequest(h, problem);
  }
  OPWRIGHT_RETURN_IF_ERROR(ExchangeIds(*batch, &incoming));
  At(incoming, host()) = std::move(At(batch->plan_.requests, host()));
  batch->plan_.requests.clear();
  for (ShardRequest& one : incoming) {
    batch->incoming_.push_back(std::make_shared<const Batch>(std::move(one.batch)));
  }
  return {};
}

// Exchanges the headers: how much each host requests from this one. Returns an error if a host
// refuses the batch.
Status ShardRequestQueue::ExchangeHeaders(SharedBatch* batch,
                                          std::vector<RequestHeader>* headers) const {
  const size_t tables = whole_.tables.size();
  const int64_t bytes = RequestHeader::BytesOf(tables);
  const int64_t combiners = FingerprintOf(CombinersOf(batch->batch()));
  const int64_t mode = batch->refused_.ok() ? static_cast<int64_t>(batch->batch().mode)
                                            : RequestHeader::kRefused;
  Buffers out, in;
  for (int64_t h = 0; h < hosts(); ++h) {
    out.push_back(exchange_->Allocate(bytes));
    RequestHeader(combiners, mode, At(batch->plan_.requests, h)).Encode(out.back().data);
    in.push_back(h == host() ? out.back() : exchange_->Allocate(bytes));
  }
  OPWRIGHT_RETURN_IF_ERROR(exchange_->AllToAll(Channel::kCounts, batch->number, out, in));
  std::vector<bool> refused;
  for (const Buffer& one : in) {
    headers->push_back(RequestHeader::Decode(one.data, tables));
    refused.push_back(headers->back().mode == RequestHeader::kRefused);
  }
  return BroadcastRefusal(batch, refused, batch->refused_);
}

Status ShardRequestQueue::CompareModes(const SharedBatch& batch,
                                       const std::vector<RequestHeader>& headers) const {
  for (int64_t h = 0; h < hosts(); ++h) {
    if (At(headers, h).mode == static_cast<int64_t>(batch.batch().mode)) continue;
    return InvalidArgumentError(
        "of the same step, " + exchange_->Describe(h) + " looks ids up for training and " +
        exchange_->Describe(host()) +
        " does not, or the other way round; all hosts must run the same program");
  }
  return {};
}

// Exchanges the ids of all requests. The request of this host to itself is not sent.
Status ShardRequestQueue::ExchangeIds(const SharedBatch& batch,
                                      std::vector<ShardRequest>* incoming) const {
  Buffers out, in;
  for (int64_t h = 0; h < hosts(); ++h) {
    const ShardRequest& request = At(batch.plan_.requests, h);
    const bool own = h == host();
    out.push_back(exchange_->Allocate(own ? 0 : IdsBytes(whole_, request)));
    in.push_back(own ? out.back() : exchange_->Allocate(IdsBytes(whole_, At(*incoming, h))));
    if (!own) EncodeIds(whole_, request, out.back().data);
  }
  OPWRIGHT_RETURN_IF_ERROR(exchange_->AllToAll(Channel::kIds, batch.number, out, in));
  for (int64_t h = 0; h < hosts(); ++h) {
    if (h == host()) continue;
    const std::string problem =
        DecodeIds(whole_, own_, exchange_->Describe(host()), At(in, h).data, &At(*incoming, h));
    if (!problem.empty()) return BadRequest(h, problem);
  }
  return {};
}

// Compares the combiners of all hosts. If fingerprints in the headers differ, every host
// detects the difference. All hosts then exchange their combiners, so that the error can name
// the features.
Status ShardRequestQueue::CompareCombiners(const SharedBatch& batch,
                                           const std::vector<RequestHeader>& headers) const {
  const auto differs = [&](const RequestHeader& one) {
    return one.combiners != At(headers, host()).combiners;
  };
  if (std::none_of(headers.begin(), headers.end(), differs)) return {};
  const std::string own = CombinersOf(batch.batch());
  const int64_t bytes = static_cast<int64_t>(own.size());
  Buffers out, in;
  for (int64_t h = 0; h < hosts(); ++h) {
    out.push_back(exchange_->Allocate(bytes));
    in.push_back(exchange_->Allocate(bytes));
    std::copy(own.begin(), own.end(), out.back().data);
    std::copy(own.begin(), own.end(), in.back().data);
  }
  OPWRIGHT_RETURN_IF_ERROR(exchange_->AllToAll(Channel::kConfigurations,
                                               kHandshakeExchanges + batch.number, out, in));
  std::string found;
  for (int64_t h = 0; h < hosts(); ++h) {
    const std::string other(At(in, h).data, own.size());
    const size_t f = static_cast<size_t>(
        std::mismatch(own.begin(), own.end(), other.begin()).first - own.begin());
    if (f == own.size()) continue;
    found += (found.empty() ? "" : "; ") + exchange_->Describe(h) + " combines " +
             DescribeFeature(whole_, static_cast<int64_t>(f)) + " by '" +
             NameOf(static_cast<Combiner>(other[f])) + "' and " + exchange_->Describe(host()) +
             " by '" + NameOf(static_cast<Combiner>(own[f])) + "'";
  }
  return InvalidArgumentError("of the same step, " + found +
                              "; all hosts must run the same program");
}

Status ShardRequestQueue::BadRequest(int64_t from, const std::string& problem) const {
  return InvalidArgumentError(exchange_->Describe(from) + " requests " + problem);
}

}  // namespace opwright::embedding
