#include "rnn/weight_cache.h"

#include <unistd.h>

#include <algorithm>
#include <mutex>

namespace opwright::rnn {
namespace {

// The largest numbers of entries and of evicted digests of one kernel. Several layers may share
// one kernel.
constexpr size_t kMaxEntries = 16;
constexpr size_t kMaxReplaced = 16;

// Returns a fraction of the physical memory, but at most 512 MiB, which suffices for most
// models.
int64_t DefaultLimit() {
  constexpr int64_t kMax = int64_t{512} << 20;
  const int64_t pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || size <= 0) return kMax;
  return std::min(kMax, pages / 32 * size);
}

}  // namespace

struct WeightCache::Shared {
  std::mutex mutex;
  Entries entries;  // The entries of all kernels, the most recently used one first.
  int64_t bytes = 0;
  int64_t limit = DefaultLimit();
};

// The object is never destroyed, so it outlives every kernel.
WeightCache::Shared& WeightCache::SharedState() {
  static Shared& shared = *new Shared;
  return shared;
}

WeightCache::WeightCache() {
  entries_.reserve(kMaxEntries);
  replaced_.reserve(kMaxReplaced);
}

WeightCache::~WeightCache() {
  // Destroyed after the lock is released, so that memory is freed without the lock.
  Entries dropped;
  Shared& shared = SharedState();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  while (!entries_.empty()) Drop(entries_.back(), &dropped);
}

WeightCache::Entries::iterator* WeightCache::FindEntry(const Key& key) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](auto entry) { return entry->key == key; });
  return found == entries_.end() ? nullptr : &*found;
}

void WeightCache::Drop(Entries::iterator entry, Entries* dropped) {
  Shared& shared = SharedState();
  std::vector<Entries::iterator>& entries = entry->owner->entries_;
  entries.erase(std::find(entries.begin(), entries.end(), entry));
  shared.bytes -= entry->bytes;
  dropped->splice(dropped->end(), shared.entries, entry);
}

WeightCache::Blocks WeightCache::Find(const Key& key) {
  Shared& shared = SharedState();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  Entries::iterator* const found = FindEntry(key);
  if (!found) return nullptr;
  const Entries::iterator entry = *found;
  std::rotate(entries_.data(), found, found + 1);
  shared.entries.splice(shared.entries.begin(), shared.entries, entry);
  return entry->blocks;
}

bool WeightCache::WasReplaced(const Digest& digest) const {
  return std::find(replaced_.begin(), replaced_.end(), digest) != replaced_.end();
}

void WeightCache::Insert(const Key& key, const void* params, const Blocks& blocks,
                         int64_t bytes) {
  Entries made{Entry{this, key, params, blocks, bytes}}, dropped;
  Shared& shared = SharedState();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  // Another thread may have inserted the entry since this call's Find.
  if (FindEntry(key)) return;
  // An entry with other weights at the same address is usually stale, so it is evicted. But if
  // evicted weights are inserted again, several sets of weights use this address by turns. From
  // then on, only the least recently used entries are evicted.
  address_is_reused_ = address_is_reused_ || WasReplaced(key.digest);
  const auto same = std::find_if(entries_.begin(), entries_.end(),
                                 [&](auto entry) { return entry->params == params; });
  if (!address_is_reused_ && same != entries_.end()) {
    if (replaced_.size() == kMaxReplaced) replaced_.erase(replaced_.begin());
    replaced_.push_back((*same)->key.digest);
    Drop(*same, &dropped);
  }
  if (bytes > shared.limit) return;
  if (entries_.size() == kMaxEntries) Drop(entries_.back(), &dropped);
  while (shared.bytes > shared.limit - bytes) {
    Drop(std::prev(shared.entries.end()), &dropped);
  }
  shared.entries.splice(shared.entries.begin(), made);
  shared.bytes += bytes;
  entries_.insert(entries_.begin(), shared.entries.begin());
}

WeightCache::Usage WeightCache::InUse() {
  Shared& shared = SharedState();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  return {static_cast<int64_t>(shared.entries.size()), shared.bytes, shared.limit};
}

void WeightCache::SetLimit(int64_t bytes) {
  Entries dropped;
  Shared& shared = SharedState();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  shared.limit = std::max<int64_t>(0, bytes);
  while (shared.bytes > shared.limit) {
    Drop(std::prev(shared.entries.end()), &dropped);
  }
}

}  // namespace opwright::rnn
