// Packed weights of earlier calls, found again by what the parameters are, not by where they
// lie: whoever changes them in place is noticed. All kernels share one bound on their bytes.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "rnn/digest.h"
#include "rnn/spec.h"

namespace opwright::rnn {

// What one kernel keeps, of one element type. Safe for callers at once; none of them may be
// left when it is destroyed.
class WeightCache {
 public:
  struct Key {
    StackSpec stack;
    int lanes;      // How they are packed.
    Digest digest;  // Of the parameters.

    bool operator==(const Key& other) const {
      return digest == other.digest && lanes == other.lanes && SameStack(stack, other.stack);
    }
  };
  // Packed weights live for as long as somebody holds them, kept or not.
  using Blocks = std::shared_ptr<void>;

  WeightCache();
  ~WeightCache();  // What it keeps goes with it.
  WeightCache(const WeightCache&) = delete;
  WeightCache& operator=(const WeightCache&) = delete;

  // Null if there are none.
  Blocks Find(const Key& key);

  // Keeps what was made of the parameters at `params`, if the limit allows it. Throws
  // std::bad_alloc, and is then as before.
  void Insert(const Key& key, const void* params, const Blocks& blocks, int64_t bytes);

  // Of all kernels together.
  struct Usage {
    int64_t entries;
    int64_t bytes;
    int64_t limit;
  };
  static Usage InUse();
  // Weights that were not used for longest go first.
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
  // All of these need the lock.
  Entries::iterator* FindEntry(const Key& key);
  static void Drop(Entries::iterator entry, Entries* dropped);
  bool WasReplaced(const Digest& digest) const;

  // The last one used first.
  std::vector<Entries::iterator> entries_;
  // What gave way because other weights came to lie where they had been.
  std::vector<Digest> replaced_;
  bool address_is_reused_ = false;
};

}  // namespace opwright::rnn
