#include "embedding/cpu/asks.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "base/checked.h"
#include "embedding/cpu/handshake.h"

namespace opwright::embedding {
namespace {

using Buffer = Exchange::Buffer;
using Buffers = std::vector<Buffer>;  // By host.

constexpr int64_t kRefusedMode = -1;  // Of a batch that a host has not.
constexpr int64_t kRefusedBytes = 8;  // After rows and gradients.

const char* NameOf(Combiner combiner) {
  switch (combiner) {
    case Combiner::kSum: return "sum";
    case Combiner::kMean: return "mean";
    case Combiner::kSqrtN: return "sqrtn";
  }
  return "unknown";
}

// As long as the features are many, which all hosts have alike.
std::string CombinersOf(const Batch& batch) {
  std::string combiners;
  for (const Bags& bags : batch.features) combiners += static_cast<char>(bags.combiner);
  return combiners;
}

// Numbers the different ids in the order in which they come.
class Numbering {
 public:
  explicit Numbering(int64_t ids) {
    while (size_ < 2 * ids) size_ *= 2;
    slots_ = Array<int64_t>(size_);
    std::fill_n(slots_.get(), size_, int64_t{-1});
    ids_ = Array<int64_t>(ids);
  }

  int64_t NumberOf(int64_t id) {
    int64_t at = static_cast<int64_t>(static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15u >> 20) &
                 (size_ - 1);
    while (slots_.get()[at] >= 0 && ids_.get()[slots_.get()[at]] != id) {
      at = (at + 1) & (size_ - 1);
    }
    int64_t& slot = slots_.get()[at];
    if (slot < 0) {
      slot = count_++;
      ids_.get()[slot] = id;
    }
    return slot;
  }
  // As one that is like no other.
  int64_t Append(int64_t id) {
    ids_.get()[count_] = id;
    return count_++;
  }

  int64_t count() const { return count_; }
  int64_t id(int64_t number) const { return ids_.get()[number]; }

 private:
  int64_t size_ = 16, count_ = 0;
  std::unique_ptr<int64_t[]> slots_, ids_;
};

// The ids that a batch has for one table, in their order.
struct TableIds {
  std::vector<size_t> features;
  int64_t count = 0;
  bool weighted = false;

  // Calls task(feature, sample among all of the table's, id among all).
  template <class Task>
  void ForEach(const Batch& batch, Task task) const {
    int64_t sample = 0, id = 0;
    for (const size_t f : features) {
      const Bags& bags = batch.features[f];
      for (int64_t s = 0; s < bags.samples; ++s, ++sample) {
        for (int64_t i = bags.offsets.get()[s]; i < bags.offsets.get()[s + 1]; ++i) {
          task(f, sample, id++);
        }
      }
    }
  }
};

TableIds IdsOf(const Configuration& configuration, const Batch& batch, int64_t table) {
  TableIds found;
  for (size_t f = 0; f < batch.features.size(); ++f) {
    if (configuration.features[f].table != table) continue;
    found.features.push_back(f);
    found.count += batch.features[f].count();
    found.weighted = found.weighted || batch.features[f].per_sample_weights;
  }
  return found;
}

// What there would be of either form, by host.
struct Counts {
  explicit Counts(int64_t hosts)
      : rows(static_cast<size_t>(hosts)), sums(rows), ids_of_sums(rows) {}

  std::vector<int64_t> rows, sums, ids_of_sums;
};

// Numbers of items from counts of them: where those of each host begin, and their end.
std::vector<int64_t> BeginsOf(const std::vector<int64_t>& counts) {
  std::vector<int64_t> begins(counts.size() + 1);
  for (size_t h = 0; h < counts.size(); ++h) begins[h + 1] = begins[h] + counts[h];
  return begins;
}

template <class T>
char* Put(const T* values, int64_t count, char* to) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(T);
  if (bytes != 0) std::memcpy(to, values, bytes);
  return to + bytes;
}
template <class T>
char* PutNarrow(const int64_t* values, int64_t count, char* to) {
  for (int64_t i = 0; i < count; ++i, to += sizeof(T)) {
    const T value = static_cast<T>(values[i]);
    std::memcpy(to, &value, sizeof value);
  }
  return to;
}
template <class T>
const char* TakeNarrow(const char* from, int64_t count, int64_t* values) {
  for (int64_t i = 0; i < count; ++i, from += sizeof(T)) {
    T value;
    std::memcpy(&value, from, sizeof value);
    values[i] = value;
  }
  return from;
}

// Of one table in a message: lengths of sums, ids, weights.
int64_t BytesOf(Form form, int64_t items, int64_t ids, int64_t id_bytes) {
  return (form == Form::kRows ? 0 : items * 4) + ids * id_bytes +
         (form == Form::kWeightedSums ? ids * 4 : 0);
}

}  // namespace

Questions::Questions(std::shared_ptr<Exchange> exchange, const Configuration& whole,
                     const Configuration& own, const std::vector<Owners>& owners)
    : exchange_(std::move(exchange)), whole_(whole), own_(own), owners_(owners) {}

SharedRef Questions::Make(std::shared_ptr<const Batch> batch) const {
  auto made = std::make_shared<SharedBatch>(std::move(batch));
  made->begins.resize(whole_.tables.size());
  made->of_items.resize(whole_.features.size());
  for (int64_t h = 0; h < hosts(); ++h) {
    made->asks_.emplace_back();
    made->asks_.back().forms.resize(whole_.tables.size());
    made->asks_.back().batch.mode = made->batch().mode;
    made->asks_.back().batch.features.resize(whole_.tables.size());
  }
  return made;
}

Status Questions::Agree() const {
  std::lock_guard<std::mutex> lock(agreement_mutex_);
  if (agreement_) return *agreement_;
  // Others may have begun when this throws: it is not tried again.
  agreement_ =
      ResourceExhaustedError("no memory to compare configurations; start all hosts again");
  agreement_ = Handshake(exchange_.get(), whole_);
  return *agreement_;
}

// Thrown from, it has queued nothing.
void Questions::Queue(const SharedRef& batch) {
  std::lock_guard<std::mutex> lock(mutex_);
  queue_.push_back(batch);
  try {
    if (!working_) exchange_->Run([self = shared_from_this()] { self->Work(); });
  } catch (...) {
    queue_.pop_back();
    throw;
  }
  working_ = true;
  batch->number = next_++;
}

SharedRef Questions::Ask(ExecutionContext* exec, std::shared_ptr<const Batch> batch) {
  const SharedRef made = Make(std::move(batch));
  exec->For(static_cast<int64_t>(whole_.tables.size()),
            [&](int64_t t) { FindItems(t, made.get()); });
  Queue(made);
  return made;
}

void Questions::Refuse(const Status& why) {
  try {
    const SharedRef made = Make(std::make_shared<const Batch>());
    made->refused_ = why;
    Queue(made);
  } catch (const std::bad_alloc&) {
    Break("no memory to refuse a batch; start all hosts again");
  }
}

// Other hosts wait for a batch that this one can neither bring nor refuse, until their patience
// ends.
void Questions::Break(const char* why) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (broken_.ok()) broken_ = ResourceExhaustedError(why);
}

void Questions::Drop(SharedRef batch) {
  try {
    exchange_->Run([self = shared_from_this(), batch = std::move(batch)] {
      try {
        self->RefuseToGoOn(*batch);
      } catch (const std::bad_alloc&) {
        self->Break("no memory to drop a batch; start all hosts again");
      }
    });
  } catch (const std::bad_alloc&) {
    Break("no memory to drop a batch; start all hosts again");
  }
}

// Nobody waits for what comes of it here.
void Questions::RefuseToGoOn(const SharedBatch& batch) const {
  if (!batch.ended_.get().ok()) return;
  const Status why = FailedPreconditionError("the step that it is part of has failed there");
  const Mode mode = batch.batch().mode;
  Buffers asked, asks;
  std::lock_guard<std::mutex> lock(batch.turn_);
  if (!batch.looked_up_ && mode != Mode::kBackwardOnly) {
    MakeRoom(batch, 0, &asked, &asks);
    static_cast<void>(SwapInTurn(batch, Cargo::kRows, why, asked, asks));
  } else if (mode != Mode::kInference) {
    MakeRoom(batch, RateBytes(), &asked, &asks);
    static_cast<void>(SwapInTurn(batch, Cargo::kGradients, why, asks, asked));
  }
}

void Questions::MakeRoom(const SharedBatch& batch, int64_t more, Buffers* asked,
                         Buffers* asks) const {
  for (int64_t h = 0; h < hosts(); ++h) {
    int64_t of_asked = 0, of_asks = 0;
    for (size_t t = 0; t < whole_.tables.size(); ++t) {
      const int64_t bytes = whole_.tables[t].dimension * static_cast<int64_t>(sizeof(float));
      of_asked += ItemOf(batch.asked_, h)->features[t].samples * bytes;
      of_asks += batch.Items(t, h) * bytes;
    }
    asked->push_back(exchange_->Allocate(of_asked + more + kRefusedBytes));
    asks->push_back(h == host() ? asked->back()
                                : exchange_->Allocate(of_asks + more + kRefusedBytes));
  }
}

Status Questions::Swap(const SharedBatch& batch, Cargo cargo, const Status& own,
                       const Buffers& out, const Buffers& in) const {
  std::lock_guard<std::mutex> lock(batch.turn_);
  return SwapInTurn(batch, cargo, own, out, in);
}

Status Questions::SwapInTurn(const SharedBatch& batch, Cargo cargo, const Status& own,
                             const Buffers& out, const Buffers& in) const {
  if (batch.over_) return FailedPreconditionError("the step of this batch was dropped");
  const int64_t says = own.ok() ? 0 : 1;
  for (const Buffer& one : out) {
    std::memcpy(one.data + one.size - kRefusedBytes, &says, sizeof says);
  }
  OPWRIGHT_RETURN_IF_ERROR(exchange_->Swap(cargo, batch.number, out, in));
  batch.looked_up_ = batch.looked_up_ || cargo == Cargo::kRows;
  std::vector<bool> refused;
  for (const Buffer& one : in) {
    int64_t said;
    std::memcpy(&said, one.data + one.size - kRefusedBytes, sizeof said);
    refused.push_back(said != 0);
  }
  return Tell(batch, refused, own);
}

// If a host refuses a batch, it says why to all others.
Status Questions::Tell(const SharedBatch& batch, const std::vector<bool>& refused,
                       const Status& own) const {
  if (std::find(refused.begin(), refused.end(), true) == refused.end()) return {};
  batch.over_ = true;
  constexpr size_t kMost = 1024;
  Buffers out, in;
  for (int64_t h = 0; h < hosts(); ++h) {
    out.push_back(exchange_->Allocate(own.ok() || h == host() ? 0 : kMost));
    in.push_back(
        exchange_->Allocate(h != host() && refused[static_cast<size_t>(h)] ? kMost : 0));
    const size_t size = static_cast<size_t>(out.back().size);
    if (size > 0) std::strncpy(out.back().data, own.message().c_str(), size);
  }
  OPWRIGHT_RETURN_IF_ERROR(exchange_->Swap(Cargo::kWords, batch.number, out, in));
  if (!own.ok()) return own;
  std::string words;
  for (int64_t h = 0; h < hosts(); ++h) {
    const Buffer& one = ItemOf(in, h);
    if (one.size == 0) continue;
    const char* const said = one.data;
    words += (words.empty() ? "" : "; ") + exchange_->Describe(h) +
             " refuses the batch: " + std::string(said, std::find(said, said + one.size, '\0'));
  }
  return InvalidArgumentError(words);
}

void Questions::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!queue_.empty()) {
    const SharedRef batch = std::move(queue_.front());
    queue_.pop_front();
    Status status = broken_;
    if (status.ok()) {
      lock.unlock();
      try {
        status = SwapAsks(batch.get());
      } catch (const std::bad_alloc&) {
        status = ResourceExhaustedError("no memory for what other hosts ask of " +
                                        exchange_->Describe(host()));
      }
      lock.lock();
      // Others may have got through: from here on they are at another batch than this one.
      if (broken_.ok() && !batch->over_) broken_ = status;
    }
    batch->end_.set_value(std::move(status));
  }
  working_ = false;
}

Status Questions::Asked(ExecutionContext* exec, const SharedBatch& batch, TableStore* store,
                        const std::vector<PreparedRef>** asked) const {
  OPWRIGHT_RETURN_IF_ERROR(batch.ended_.get());
  std::lock_guard<std::mutex> lock(batch.mutex_);
  std::vector<PreparedRef>& prepared = batch.prepared_;
  while (prepared.size() < batch.asked_.size()) {
    StatusOr<PreparedRef> one = store->Prepare(exec, batch.asked_[prepared.size()]);
    OPWRIGHT_RETURN_IF_ERROR(one.status());
    prepared.push_back(*std::move(one));
  }
  *asked = &prepared;
  return {};
}

void Questions::FindItems(int64_t t, SharedBatch* made) const {
  const Batch& batch = made->batch();
  const TableConfig& table = ItemOf(whole_.tables, t);
  const Owners& owners = ItemOf(owners_, t);
  const TableIds ids = IdsOf(whole_, batch, t);
  // Different rows; where each occurrence of an id is an update of its own, all.
  Numbering rows(ids.count);
  const auto row_of = Array<int64_t>(ids.count);
  {
    int64_t next = 0;
    for (const size_t f : ids.features) {
      const Bags& bags = batch.features[f];
      for (int64_t i = 0; i < bags.count(); ++i) {
        const int64_t id = bags.indices.get()[i];
        row_of.get()[next++] = table.accumulate ? rows.NumberOf(id) : rows.Append(id);
      }
    }
  }
  Counts counts(hosts());
  const auto owner_of = Array<int64_t>(rows.count()), local_of = Array<int64_t>(rows.count());
  for (int64_t i = 0; i < rows.count(); ++i) {
    const int64_t owner = owners.HostOf(rows.id(i));
    owner_of.get()[i] = owner;
    local_of.get()[i] = owners.LocalOf(rows.id(i), owner);
    ++ItemOf(counts.rows, owner);
  }
  std::vector<int64_t> last(counts.rows.size(), -1);  // By host: the sample that had it last.
  std::vector<int64_t> items(batch.features.size());  // Of samples, if sums are asked for.
  ids.ForEach(batch, [&](size_t f, int64_t sample, int64_t i) {
    const int64_t owner = owner_of.get()[row_of.get()[i]];
    ++ItemOf(counts.ids_of_sums, owner);
    if (std::exchange(ItemOf(last, owner), sample) == sample) return;
    ++ItemOf(counts.sums, owner);
    ++items[f];
  });
  const auto away = [this](const std::vector<int64_t>& of) {
    int64_t sum = 0;
    for (int64_t h = 0; h < hosts(); ++h) sum += h == host() ? 0 : ItemOf(of, h);
    return sum;
  };
  // An item is answered by values, and those by gradients.
  const int64_t values = (batch.mode == Mode::kTraining ? 8 : 4) * table.dimension;
  const int64_t id_bytes = IdBytes(static_cast<size_t>(t));
  const Form sums = ids.weighted ? Form::kWeightedSums : Form::kSums;
  const auto bytes = [&](Form form, const std::vector<int64_t>& of_items,
                         const std::vector<int64_t>& of_ids) {
    return BytesOf(form, away(of_items), away(of_ids), id_bytes) + away(of_items) * values;
  };
  // Rows are quantized by who asks for them.
  const bool by_sums = !table.quantization.enabled &&
                       ids.count <= std::numeric_limits<int32_t>::max() &&
                       bytes(sums, counts.sums, counts.ids_of_sums) <
                           bytes(Form::kRows, counts.rows, counts.rows);
  const std::vector<int64_t>& begins = ItemOf(made->begins, t) =
      BeginsOf(by_sums ? counts.sums : counts.rows);
  for (int64_t h = 0; h < hosts(); ++h) {
    Asks& asks = ItemOf(made->asks_, h);
    ItemOf(asks.forms, t) = by_sums ? sums : Form::kRows;
    Bags& ask = ItemOf(asks.batch.features, t);
    ask.samples = ItemOf(by_sums ? counts.sums : counts.rows, h);
    const int64_t count = ItemOf(by_sums ? counts.ids_of_sums : counts.rows, h);
    ask.offsets = Array<int64_t>(ask.samples + 1);
    ask.indices = Array<int64_t>(count);
    if (by_sums && ids.weighted) ask.per_sample_weights = Array<float>(count);
  }
  std::vector<int64_t> next_item(counts.rows.size()), next_id(counts.rows.size());
  // Appends an id to those of a host, as a new item or to the last one.
  const auto ask_for = [&](int64_t row, bool is_new) {
    const int64_t owner = owner_of.get()[row];
    Bags& ask = ItemOf(ItemOf(made->asks_, owner).batch.features, t);
    int64_t& item = ItemOf(next_item, owner);
    if (is_new) ++item;
    ask.indices.get()[ItemOf(next_id, owner)++] = local_of.get()[row];
    ask.offsets.get()[item] = ItemOf(next_id, owner);
    return ItemOf(begins, owner) + item - 1;
  };
  const auto item_of = Array<int64_t>(by_sums ? 0 : rows.count());
  for (int64_t i = 0; !by_sums && i < rows.count(); ++i) item_of.get()[i] = ask_for(i, true);
  std::fill(last.begin(), last.end(), -1);
  int64_t sample = 0, next = 0;
  for (const size_t f : ids.features) {
    const Bags& bags = batch.features[f];
    Bags& of_items = made->of_items[f];
    of_items.samples = bags.samples;
    of_items.offsets = Array<int64_t>(bags.samples + 1);
    of_items.indices = Array<int64_t>(by_sums ? items[f] : bags.count());
    if (bags.scales) {
      of_items.scales = Array<float>(bags.samples);
      std::copy_n(bags.scales.get(), bags.samples, of_items.scales.get());
    }
    if (bags.per_sample_weights && !by_sums) {
      of_items.per_sample_weights = Array<float>(bags.count());
      std::copy_n(bags.per_sample_weights.get(), bags.count(),
                  of_items.per_sample_weights.get());
    }
    int64_t count = 0;
    for (int64_t s = 0; s < bags.samples; ++s, ++sample) {
      for (int64_t i = bags.offsets.get()[s]; i < bags.offsets.get()[s + 1]; ++i) {
        const int64_t row = row_of.get()[next++];
        if (!by_sums) {
          of_items.indices.get()[count++] = item_of.get()[row];
          continue;
        }
        const int64_t owner = owner_of.get()[row];
        const bool is_new = std::exchange(ItemOf(last, owner), sample) != sample;
        const int64_t item = ask_for(row, is_new);
        if (is_new) of_items.indices.get()[count++] = item;
        if (!ids.weighted) continue;
        Bags& ask = ItemOf(ItemOf(made->asks_, owner).batch.features, t);
        ask.per_sample_weights.get()[ItemOf(next_id, owner) - 1] =
            bags.per_sample_weights ? bags.per_sample_weights.get()[i] : 1.f;
      }
      of_items.offsets.get()[s + 1] = count;
    }
  }
}

Status Questions::SwapAsks(SharedBatch* batch) const {
  std::vector<Asks> asked;
  OPWRIGHT_RETURN_IF_ERROR(Agree());
  OPWRIGHT_RETURN_IF_ERROR(SwapCounts(*batch, &asked));
  OPWRIGHT_RETURN_IF_ERROR(SwapIds(*batch, &asked));
  ItemOf(asked, host()) = std::move(ItemOf(batch->asks_, host()));
  batch->asks_.clear();
  for (Asks& one : asked) {
    batch->asked_.push_back(std::make_shared<const Batch>(std::move(one.batch)));
  }
  return {};
}

// How much of each table every host asks of this one, and whether it does what this one does.
Status Questions::SwapCounts(const SharedBatch& batch, std::vector<Asks>* asked) const {
  constexpr size_t kFirst = 2, kEach = 3;
  const size_t numbers = kFirst + kEach * whole_.tables.size();
  const int64_t bytes = static_cast<int64_t>(numbers * sizeof(int64_t));
  const int64_t mode =
      batch.refused_.ok() ? static_cast<int64_t>(batch.batch().mode) : kRefusedMode;
  const int64_t combiners = FingerprintOf(CombinersOf(batch.batch()));
  Buffers out, in;
  for (int64_t h = 0; h < hosts(); ++h) {
    const Asks& asks = ItemOf(batch.asks_, h);
    std::vector<int64_t> header = {combiners, mode};
    for (size_t t = 0; t < whole_.tables.size(); ++t) {
      const Bags& bags = asks.batch.features[t];
      header.insert(header.end(),
                    {static_cast<int64_t>(asks.forms[t]), bags.samples, bags.count()});
    }
    out.push_back(exchange_->Allocate(bytes));
    Put(header.data(), static_cast<int64_t>(numbers), out.back().data);
    in.push_back(h == host() ? out.back() : exchange_->Allocate(bytes));
  }
  OPWRIGHT_RETURN_IF_ERROR(exchange_->Swap(Cargo::kCounts, batch.number, out, in));
  std::vector<std::vector<int64_t>> headers;  // By host.
  std::vector<bool> refused;
  for (int64_t h = 0; h < hosts(); ++h) {
    std::vector<int64_t>& header = headers.emplace_back(numbers);
    std::memcpy(header.data(), ItemOf(in, h).data, static_cast<size_t>(bytes));
    refused.push_back(header[1] == kRefusedMode);
  }
  OPWRIGHT_RETURN_IF_ERROR(Tell(batch, refused, batch.refused_));
  for (int64_t h = 0; h < hosts(); ++h) {
    const std::vector<int64_t>& header = ItemOf(headers, h);
    if (header[1] != mode) {
      return InvalidArgumentError(
          "of the same step, " + exchange_->Describe(h) + " looks ids up for training and " +
          exchange_->Describe(host()) +
          " does not, or the other way round; all hosts must run the same program");
    }
  }
  const auto has_others = [&](const auto& header) { return header[0] != combiners; };
  if (std::any_of(headers.begin(), headers.end(), has_others)) return CompareCombiners(batch);
  for (int64_t h = 0; h < hosts(); ++h) {
    const std::vector<int64_t>& header = ItemOf(headers, h);
    asked->emplace_back();
    Asks& asks = asked->back();
    asks.batch.mode = batch.batch().mode;
    Checked all = 0;
    for (size_t t = 0; t < whole_.tables.size(); ++t) {
      const int64_t form = header[kFirst + kEach * t];
      const int64_t items = header[kFirst + kEach * t + 1];
      const int64_t ids = header[kFirst + kEach * t + 2];
      const bool known = form >= 0 && form <= static_cast<int64_t>(Form::kWeightedSums);
      all += Checked(std::max<int64_t>(items, -1)) * whole_.tables[t].dimension;
      all += std::max<int64_t>(ids, -1);
      // An item has ids, and as a row just one.
      const bool fits = form == static_cast<int64_t>(Form::kRows) ? ids == items : ids >= items;
      if (!known || items < 0 || !fits || !all.AtMost(int64_t{1} << 40)) {
        return Refuse(h, std::to_string(items) + " items of " + std::to_string(ids) +
                             " rows of " + Describe(whole_, static_cast<int64_t>(t)));
      }
      asks.forms.push_back(static_cast<Form>(form));
      asks.batch.features.emplace_back();
      if (h == host()) continue;  // It is there as it is.
      Bags& bags = asks.batch.features.back();
      bags.samples = items;
      bags.offsets = Array<int64_t>(items + 1);
      bags.offsets.get()[items] = ids;
      bags.indices = Array<int64_t>(ids);
      if (asks.forms.back() == Form::kWeightedSums) {
        bags.per_sample_weights = Array<float>(ids);
      }
    }
  }
  return {};
}

// Which rows: as narrow as the table's size allows.
Status Questions::SwapIds(const SharedBatch& batch, std::vector<Asks>* asked) const {
  const auto bytes_of = [this](const Asks& asks) {
    int64_t bytes = 0;
    for (size_t t = 0; t < asks.forms.size(); ++t) {
      const Bags& bags = asks.batch.features[t];
      bytes += BytesOf(asks.forms[t], bags.samples, bags.count(), IdBytes(t));
    }
    return bytes;
  };
  Buffers out, in;
  for (int64_t h = 0; h < hosts(); ++h) {
    const Asks& asks = ItemOf(batch.asks_, h);
    out.push_back(exchange_->Allocate(h == host() ? 0 : bytes_of(asks)));
    in.push_back(h == host() ? out.back() : exchange_->Allocate(bytes_of(ItemOf(*asked, h))));
    if (h == host()) continue;
    char* next = out.back().data;
    for (size_t t = 0; t < asks.forms.size(); ++t) {
      const Bags& bags = asks.batch.features[t];
      const int64_t* const offsets = bags.offsets.get();
      for (int64_t i = 0; asks.forms[t] != Form::kRows && i < bags.samples; ++i) {
        const int64_t length = offsets[i + 1] - offsets[i];
        next = PutNarrow<int32_t>(&length, 1, next);
      }
      next = IdBytes(t) == 4 ? PutNarrow<int32_t>(bags.indices.get(), bags.count(), next)
                             : Put(bags.indices.get(), bags.count(), next);
      if (asks.forms[t] == Form::kWeightedSums) {
        next = Put(bags.per_sample_weights.get(), bags.count(), next);
      }
    }
  }
  OPWRIGHT_RETURN_IF_ERROR(exchange_->Swap(Cargo::kIds, batch.number, out, in));
  for (int64_t h = 0; h < hosts(); ++h) {
    if (h == host()) continue;
    Asks& asks = ItemOf(*asked, h);
    const char* next = ItemOf(in, h).data;
    for (size_t t = 0; t < asks.forms.size(); ++t) {
      Bags& bags = asks.batch.features[t];
      const int64_t ids = bags.count();
      int64_t* const offsets = bags.offsets.get();
      for (int64_t i = 0; i < bags.samples; ++i) {
        int64_t length = 1;
        if (asks.forms[t] != Form::kRows) next = TakeNarrow<int32_t>(next, 1, &length);
        if (length < 1 || length > ids - offsets[i]) {
          return Refuse(h, "a sum of " + std::to_string(length) + " rows of " +
                               Describe(whole_, static_cast<int64_t>(t)));
        }
        offsets[i + 1] = offsets[i] + length;
      }
      if (bags.count() != ids) {
        return Refuse(h, "sums of " + std::to_string(bags.count()) + " rows of " +
                             Describe(whole_, static_cast<int64_t>(t)) + ", not of " +
                             std::to_string(ids));
      }
      next = IdBytes(t) == 4 ? TakeNarrow<int32_t>(next, ids, bags.indices.get())
                             : TakeNarrow<int64_t>(next, ids, bags.indices.get());
      for (int64_t i = 0; i < ids; ++i) {
        const int64_t row = bags.indices.get()[i];
        if (row >= 0 && row < own_.tables[t].rows) continue;
        return Refuse(h, "row " + std::to_string(row) + " of the " +
                             std::to_string(own_.tables[t].rows) + " of " +
                             Describe(whole_, static_cast<int64_t>(t)) + " in " +
                             exchange_->Describe(host()));
      }
      if (asks.forms[t] == Form::kWeightedSums) {
        if (ids > 0) {
          std::memcpy(bags.per_sample_weights.get(), next,
                      static_cast<size_t>(ids) * sizeof(float));
        }
        next += ids * static_cast<int64_t>(sizeof(float));
      }
    }
  }
  return {};
}

// Which features the hosts combine otherwise. They all call it for a batch, or none does.
Status Questions::CompareCombiners(const SharedBatch& batch) const {
  const std::string own = CombinersOf(batch.batch());
  const int64_t bytes = static_cast<int64_t>(own.size());
  Buffers out, in;
  for (int64_t h = 0; h < hosts(); ++h) {
    out.push_back(exchange_->Allocate(bytes));
    in.push_back(exchange_->Allocate(bytes));
    Put(own.data(), bytes, out.back().data);
    Put(own.data(), bytes, in.back().data);
  }
  OPWRIGHT_RETURN_IF_ERROR(
      exchange_->Swap(Cargo::kConfigurations, kHandshakeExchanges + batch.number, out, in));
  std::string found;
  for (int64_t h = 0; h < hosts(); ++h) {
    const std::string other(ItemOf(in, h).data, own.size());
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

Status Questions::Refuse(int64_t from, const std::string& problem) const {
  return InvalidArgumentError(exchange_->Describe(from) + " asks for " + problem);
}

int64_t Questions::IdBytes(size_t t) const {
  return whole_.tables[t].rows <= std::numeric_limits<int32_t>::max() ? 4 : 8;
}

}  // namespace opwright::embedding
