// Tests groups of equal keys against an ordered map.
#include "sparsecore/stable_sort.h"

#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "base/testing/pool.h"
#include "base/testing/testing.h"

namespace opwright::sparsecore {
namespace {

using Keys = UninitializedVector<int32_t>;
using Model = std::map<int64_t, std::vector<int32_t>>;  // The positions of each key.

Keys DrawKeys(Random& random, int64_t size, int64_t end) {
  Keys keys(static_cast<size_t>(size));
  for (int32_t& key : keys) key = static_cast<int32_t>(random.Below(end));
  return keys;
}

Model Read(const Groups& groups) {
  Model read;
  for (int64_t i = 0; i < groups.size(); ++i) {
    std::vector<int32_t>& positions = read[groups.keys[i]];
    EXPECT(positions.empty());
    positions.assign(groups.order.begin() + groups.begins[i],
                     groups.order.begin() + groups.begins[i + 1]);
  }
  return read;
}

// The sizes need one thread or several. The keys are few, many, or the largest ones.
TEST(StableSort, GroupsHaveThePositionsOfTheirKeysInOrder) {
  Pool pool(3);
  PoolContext exec(pool);
  Random random{testing::Seed()};
  constexpr int64_t kAll = std::numeric_limits<int32_t>::max();
  for (const GroupOrder order : {GroupOrder::kAscending, GroupOrder::kSpread}) {
    for (const int64_t size : {int64_t{0}, int64_t{1}, 1 + random.Below(100), int64_t{40000}}) {
      for (const int64_t end : {int64_t{1}, 1 + random.Below(50), int64_t{100000}, kAll}) {
        Keys keys = DrawKeys(random, size, end);
        if (size > 1 && end == kAll) keys[0] = std::numeric_limits<int32_t>::max();
        Model model;
        for (size_t i = 0; i < keys.size(); ++i) {
          model[keys[i]].push_back(static_cast<int32_t>(i));
        }
        EXPECT(Read(GroupByKey(keys, exec, order)) == model);
      }
    }
  }
}

TEST(StableSort, GroupsAscendOrAreSpread) {
  Pool pool(3);
  PoolContext exec(pool);
  Random random{testing::Seed()};
  const auto neighbors = [&](const Keys& keys, GroupOrder order) {
    const Groups groups = GroupByKey(keys, exec, order);
    int64_t near = 0;
    for (int64_t i = 1; i < groups.size(); ++i) {
      const int64_t step = groups.keys[i] - groups.keys[i - 1];
      if (order == GroupOrder::kAscending) EXPECT(step > 0);
      near += step > 0 && step <= 16;
    }
    return static_cast<double>(near) / static_cast<double>(groups.size());
  };
  const Keys some = DrawKeys(random, 30000, 100000), most = DrawKeys(random, 90000, 100000);
  EXPECT(neighbors(some, GroupOrder::kAscending) > 0.9);
  EXPECT(neighbors(some, GroupOrder::kSpread) < 0.1);
  EXPECT(neighbors(most, GroupOrder::kSpread) > 0.9);
}

}  // namespace
}  // namespace opwright::sparsecore
