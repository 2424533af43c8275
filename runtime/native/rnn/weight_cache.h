// A cache of packed weights. Its key is a digest of the parameters and not their address, so a
// call finds out when parameters change in place. All kernels share one limit on the bytes.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "rnn/digest.h"
#include "rnn/spec.h"

namespace opwright::rnn {

// The entries of one kernel, of one element type. Threads may use it concurrently, but not
// while it is destroyed.
class WeightCache {
 public:
  struct Key {
    StackSpec stack;
    int lanes;      // The width for which they are packed.
    Digest digest;  // Of the parameters.

    bool operator==(const Key& other) const {
      return digest == other.digest && lanes == other.lanes && SameStack(stack, other.stack);
    }
  };
  // Packed weights live while a caller uses them, also after they are evicted.
  using Blocks = std::shared_ptr<void>;

  WeightCache();
  ~WeightCache();  // Evicts its entries.
  WeightCache(const WeightCache&) = delete;
  WeightCache& operator=(const WeightCache&) = delete;

  // Null if there are none.
  Blocks Find(const Key& key);

  // Inserts the packed form of the parameters at `params`, if the limit allows it. If it throws
  // std::bad_alloc, the cache is unchanged.
  void Insert(const Key& key, const void* params, const Blocks& blocks, int64_t bytes);

  // Totals over all kernels.
  struct Usage {
    int64_t entries;
    int64_t bytes;
    int64_t limit;
  };
  static Usage InUse();
  // Evicts the least recently used weights first.
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
  // All of these require the lock.
  Entries::iterator* FindEntry(const Key& key);
  static void Drop(Entries::iterator entry, Entries* dropped);
  bool WasReplaced(const Digest& digest) const;

  // The most recently used entry comes first.
  std::vector<Entries::iterator> entries_;
  // Digests of entries that were evicted because other weights came to lie at their address.
  std::vector<Digest> replaced_;
  bool address_is_reused_ = false;
};

}  // namespace opwright::rnn
