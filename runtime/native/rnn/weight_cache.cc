#include "rnn/weight_cache.h"

#include <unistd.h>

#include <algorithm>
#include <mutex>

namespace opwright::rnn {
namespace {

// Of one kernel: as many layers may share it, or as many copies be stale, as there are.
constexpr size_t kMaxEntries = 16;
constexpr size_t kMaxReplaced = 16;

// A share of the memory that there is, and no more than most models need.
int64_t DefaultLimit() {
  constexpr int64_t kMax = int64_t{512} << 20;
  const int64_t pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || size <= 0) return kMax;
  return std::min(kMax, pages / 32 * size);
}

}  // namespace

struct WeightCache::Process {
  std::mutex mutex;
  Entries entries;  // Of all kernels, the last one used first.
  int64_t bytes = 0;
  int64_t limit = DefaultLimit();
};

// Outlives every kernel.
WeightCache::Process& WeightCache::OfProcess() {
  static Process& process = *new Process;
  return process;
}

WeightCache::WeightCache() {
  mine_.reserve(kMaxEntries);
  replaced_.reserve(kMaxReplaced);
}

WeightCache::~WeightCache() {
  Entries dropped;  // Freed without the lock, here and below.
  Process& process = OfProcess();
  const std::lock_guard<std::mutex> lock(process.mutex);
  while (!mine_.empty()) Drop(mine_.back(), &dropped);
}

WeightCache::Entries::iterator* WeightCache::FindMine(const Key& key) {
  const auto found =
      std::find_if(mine_.begin(), mine_.end(), [&](auto entry) { return entry->key == key; });
  return found == mine_.end() ? nullptr : &*found;
}

void WeightCache::Drop(Entries::iterator entry, Entries* dropped) {
  Process& process = OfProcess();
  std::vector<Entries::iterator>& mine = entry->owner->mine_;
  mine.erase(std::find(mine.begin(), mine.end(), entry));
  process.bytes -= entry->bytes;
  dropped->splice(dropped->end(), process.entries, entry);
}

WeightCache::Blocks WeightCache::Find(const Key& key) {
  Process& process = OfProcess();
  const std::lock_guard<std::mutex> lock(process.mutex);
  Entries::iterator* const found = FindMine(key);
  if (!found) return nullptr;
  const Entries::iterator entry = *found;
  std::rotate(mine_.data(), found, found + 1);
  process.entries.splice(process.entries.begin(), process.entries, entry);
  return entry->blocks;
}

bool WeightCache::CameBack(const Digest& digest) const {
  return std::find(replaced_.begin(), replaced_.end(), digest) != replaced_.end();
}

void WeightCache::Keep(const Key& key, const void* params, const Blocks& blocks,
                       int64_t bytes) {
  Entries made{Entry{this, key, params, blocks, bytes}}, dropped;
  Process& process = OfProcess();
  const std::lock_guard<std::mutex> lock(process.mutex);
  if (FindMine(key)) return;  // Another caller was quicker.
  // Weights that were at this address have been changed and will hardly come back. Where they
  // do, many come and go at the same address, and only what is not used makes room.
  moves_ = moves_ || CameBack(key.digest);
  const auto same = std::find_if(mine_.begin(), mine_.end(),
                                 [&](auto entry) { return entry->params == params; });
  if (!moves_ && same != mine_.end()) {
    if (replaced_.size() == kMaxReplaced) replaced_.erase(replaced_.begin());
    replaced_.push_back((*same)->key.digest);
    Drop(*same, &dropped);
  }
  if (bytes > process.limit) return;
  if (mine_.size() == kMaxEntries) Drop(mine_.back(), &dropped);
  while (process.bytes > process.limit - bytes) {
    Drop(std::prev(process.entries.end()), &dropped);
  }
  process.entries.splice(process.entries.begin(), made);
  process.bytes += bytes;
  mine_.insert(mine_.begin(), process.entries.begin());
}

WeightCache::Usage WeightCache::InUse() {
  Process& process = OfProcess();
  const std::lock_guard<std::mutex> lock(process.mutex);
  return {static_cast<int64_t>(process.entries.size()), process.bytes, process.limit};
}

void WeightCache::SetLimit(int64_t bytes) {
  Entries dropped;
  Process& process = OfProcess();
  const std::lock_guard<std::mutex> lock(process.mutex);
  process.limit = std::max<int64_t>(0, bytes);
  while (process.bytes > process.limit) {
    Drop(std::prev(process.entries.end()), &dropped);
  }
}

}  // namespace opwright::rnn
