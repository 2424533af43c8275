// Helpers that the tests of all formats share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/testing/testing.h"
#include "sparsecore/triples.h"

namespace opwright::sparsecore {

constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;
using Ints = std::vector<int32_t>;
using Reals = std::vector<float>;

inline void ExpectTriples(const Triples& triples, const Ints& samples, const Ints& rows,
                          const Reals& gains) {
  EXPECT(std::equal(triples.samples.begin(), triples.samples.end(), samples.begin(),
                    samples.end()));
  EXPECT(std::equal(triples.rows.begin(), triples.rows.end(), rows.begin(), rows.end()));
  EXPECT_EQ(triples.gains.size(), gains.size());
  for (size_t i = 0; i < gains.size(); ++i) EXPECT_NEAR(triples.gains[i], gains[i], 1e-6);
}

}  // namespace opwright::sparsecore
