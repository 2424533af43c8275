#include "sparsecore/lookup.h"

#include <cmath>
#include <cstdint>

#include "base/testing/pool.h"
#include "base/testing/testing.h"
#include "sparsecore/testing/triples.h"

namespace opwright::sparsecore {
namespace {

TEST(Lookup, SumsOfIntegersWrapAround) {
  Pool pool(2);
  PoolContext exec(pool);
  const Ints table = {1, 2, INT32_MAX, 4};
  const Triples triples = Triples{{0, 0, 2}, {0, 1, 1}, {2, -1, 1}};
  Ints sums(6, 9);
  EXPECT_OK(SumRows(triples, table.data(), 2, 3, sums.data(), exec));
  EXPECT(sums == Ints({2 - INT32_MAX, 0, 0, 0, INT32_MAX, 4}));
  // Integer sums wrap around.
  EXPECT_OK(SumRows(Triples{{0, 0}, {1, 1}, {1, 1}}, table.data(), 2, 1, sums.data(), exec));
  EXPECT_EQ(sums[0], -2);
  for (const float gain : {0.5f, 16777218.f, NAN}) {
    EXPECT_ERROR(SumRows(Triples{{0}, {0}, {gain}}, table.data(), 2, 1, sums.data(), exec),
                 kInvalid, "must be integers of at most 2^24");
  }
}

}  // namespace
}  // namespace opwright::sparsecore
