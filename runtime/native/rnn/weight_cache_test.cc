#include "rnn/weight_cache.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "base/testing/pool.h"
#include "base/testing/testing.h"

namespace opwright::rnn {
namespace {

// Sets the limit of the cache while the object exists.
class Limit {
 public:
  explicit Limit(int64_t bytes) { WeightCache::SetLimit(bytes); }
  ~Limit() { WeightCache::SetLimit(before_); }

 private:
  const int64_t before_ = WeightCache::InUse().limit;
};

WeightCache::Key KeyOf(uint64_t which) {
  WeightCache::Key key{};
  key.digest.words[0] = which;
  return key;
}

// Returns whether the cache has the entry. If it does not, inserts the entry.
bool FindOrKeep(WeightCache& cache, uint64_t which, const void* params, int64_t bytes = 8) {
  if (cache.Find(KeyOf(which))) return true;
  cache.Insert(KeyOf(which), params, std::make_shared<uint64_t>(which), bytes);
  return false;
}

TEST(WeightCache, FindsByStackLanesAndDigest) {
  WeightCache cache;
  WeightCache::Key key = KeyOf(5);
  key.lanes = 8;
  key.stack.units = 3;
  cache.Insert(key, &key, std::make_shared<uint64_t>(5), 8);
  EXPECT(cache.Find(key) != nullptr);
  WeightCache::Key other = key;
  other.lanes = 4;
  EXPECT(cache.Find(other) == nullptr);
  other = key;
  other.stack.units = 4;
  EXPECT(cache.Find(other) == nullptr);
  other = key;
  other.digest.words[1] = 1;
  EXPECT(cache.Find(other) == nullptr);
  EXPECT(WeightCache().Find(key) == nullptr);
}

TEST(WeightCache, ChangeInPlaceLeavesOneEntry) {
  WeightCache cache;
  int variable;
  for (uint64_t i = 0; i < 2000; ++i) {
    EXPECT(!FindOrKeep(cache, i, &variable));
    EXPECT_EQ(WeightCache::InUse().entries, 1);
  }
}

// After evicted weights are inserted again, the cache keeps many weights of one address.
TEST(WeightCache, WeightsThatAlternateStayCached) {
  WeightCache cache;
  int variable;
  for (int round = 0; round < 5; ++round) {
    for (uint64_t i = 0; i < 8; ++i) {
      const bool found = FindOrKeep(cache, i, &variable);
      if (round >= 2) EXPECT(found);
    }
  }
}

TEST(WeightCache, EntriesOfAKernelAreLimited) {
  WeightCache cache;
  for (uint64_t i = 0; i < 2000; ++i) {
    FindOrKeep(cache, i, reinterpret_cast<void*>(i));
    EXPECT(WeightCache::InUse().entries <= 16);
  }
  EXPECT_EQ(WeightCache::InUse().entries, 16);
  EXPECT(cache.Find(KeyOf(1999)) != nullptr);
  EXPECT(cache.Find(KeyOf(1983)) == nullptr);
}

TEST(WeightCache, LeastRecentlyUsedIsEvictedFirst) {
  const Limit limit(30);
  WeightCache cache, another;
  FindOrKeep(cache, 1, reinterpret_cast<void*>(1), 10);
  FindOrKeep(another, 2, reinterpret_cast<void*>(2), 10);
  FindOrKeep(cache, 3, reinterpret_cast<void*>(3), 10);
  EXPECT(cache.Find(KeyOf(1)) != nullptr);
  FindOrKeep(cache, 4, reinterpret_cast<void*>(4), 10);
  EXPECT(another.Find(KeyOf(2)) == nullptr);
  EXPECT(cache.Find(KeyOf(1)) != nullptr);
  EXPECT(cache.Find(KeyOf(3)) != nullptr);
  WeightCache::SetLimit(10);
  EXPECT(cache.Find(KeyOf(3)) != nullptr);
  EXPECT_EQ(WeightCache::InUse().bytes, 10);
  // An entry above the limit is not inserted and evicts nothing.
  FindOrKeep(cache, 5, reinterpret_cast<void*>(5), 11);
  EXPECT(cache.Find(KeyOf(5)) == nullptr);
  EXPECT(cache.Find(KeyOf(3)) != nullptr);
}

TEST(WeightCache, EntryInUseOutlivesItsKernel) {
  WeightCache::Blocks held;
  {
    WeightCache cache;
    FindOrKeep(cache, 77, nullptr);
    held = cache.Find(KeyOf(77));
  }
  EXPECT_EQ(WeightCache::InUse().entries, 0);
  EXPECT_EQ(WeightCache::InUse().bytes, 0);
  EXPECT_EQ(*static_cast<uint64_t*>(held.get()), uint64_t{77});
}

// Callers are concurrent, and kernels are created and destroyed. Find always returns the
// weights of its key, and the cache never exceeds its limit.
TEST(WeightCache, ConcurrentCallersKeepTheLimit) {
  constexpr int64_t kLimit = 64 << 10;
  constexpr int kCallers = 4;
  const int64_t rounds = testing::Rounds(600);
  const Limit limit(kLimit);
  std::atomic<int> wrong{0};
  {
    WeightCache shared[3];
    std::vector<std::thread> threads;
    for (int caller = 0; caller < kCallers; ++caller) {
      threads.emplace_back([&, caller] {
        Random random{static_cast<uint64_t>(caller)};
        for (int64_t i = 0; i < rounds; ++i) {
          WeightCache own;
          WeightCache& cache = i % 4 == 0 ? own : shared[random.Below(3)];
          const WeightCache::Key key = KeyOf(static_cast<uint64_t>(random.Below(40)));
          const int64_t size = 256 << (key.digest.words[0] % 9);
          if (auto found = cache.Find(key)) {
            wrong += *static_cast<uint64_t*>(found.get()) != key.digest.words[0];
            continue;
          }
          const WeightCache::Blocks blocks(::operator new(static_cast<size_t>(size)),
                                           [](void* memory) { ::operator delete(memory); });
          *static_cast<uint64_t*>(blocks.get()) = key.digest.words[0];
          const int64_t where = key.digest.words[0] % 3 ? 0 : random.Below(9);
          cache.Insert(key, reinterpret_cast<void*>(where), blocks, size);
          const WeightCache::Usage usage = WeightCache::InUse();
          wrong += usage.bytes > kLimit || usage.entries > 16 * (3 + kCallers);
          if (i % 500 == 499) {
            WeightCache::SetLimit(0);
            WeightCache::SetLimit(kLimit);
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(WeightCache::InUse().entries, 0);
  EXPECT_EQ(WeightCache::InUse().bytes, 0);
}

}  // namespace
}  // namespace opwright::rnn
