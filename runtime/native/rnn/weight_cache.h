// A cache of packed weights. The key is a digest of the parameters and not their address, so a
// call notices parameters that change in place. The caches of all kernels share one limit on
// the number of bytes.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "rnn/digest.h"
#include "rnn/spec.h"

namespace opwright::rnn {

// The cache of one kernel and one element type. Several threads may use it concurrently. No
// thread may use it while it is destroyed.
class WeightCache {
 public:
  struct Key {
    StackSpec stack;
    int lanes;      // The vector width for which the weights are packed.
    Digest digest;  // The digest of the parameters.

    bool operator==(const Key& other) const {
      return digest == other.digest && lanes == other.lanes && SameStack(stack, other.stack);
    }
  };
  // Callers share ownership, so packed weights that are evicted exist until no caller uses
  // them.
  using Blocks = std::shared_ptr<void>;

  WeightCache();
  ~WeightCache();  // The destructor evicts the cache's entries.
  WeightCache(const WeightCache&) = delete;
  WeightCache& operator=(const WeightCache&) = delete;

  // Returns null if there is no entry for the key.
  Blocks Find(const Key& key);

  // Inserts the packed form of the parameters at `params`, if the limit permits. If Insert
  // throws std::bad_alloc, the cache is unchanged.
  void Insert(const Key& key, const void* params, const Blocks& blocks, int64_t bytes);

  // The totals over the caches of all kernels.
  struct Usage {
    int64_t entries;
    int64_t bytes;
    int64_t limit;
  };
  static Usage InUse();
  // If the new limit is exceeded, the least recently used weights are evicted first.
  static void SetLimit(int64_t bytes);

 private:
  struct Entry {
    WeightCache* owner;
    Key key;
    const void* params;
    Blocks blocks;
    int64_t bytes;
  };
  using Entries = std::list<Entry>;
  struct Shared;

  static Shared& SharedState();
  // The caller must hold the lock of Shared.
  Entries::iterator* FindEntry(const Key& key);
  static void Drop(Entries::iterator entry, Entries* dropped);
  bool WasReplaced(const Digest& digest) const;

  // The entries of this cache, the most recently used one first.
  std::vector<Entries::iterator> entries_;
  // The digests of entries that were evicted because other weights at the same address replaced
  // them.
  std::vector<Digest> replaced_;
  bool address_is_reused_ = false;
};

}  // namespace opwright::rnn
