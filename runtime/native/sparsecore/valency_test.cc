#include "sparsecore/valency.h"

#include "base/testing/testing.h"
#include "sparsecore/testing/triples.h"

namespace opwright::sparsecore {
namespace {

Triples SomeTriples() {
  Triples triples{{2, 0, 2, 2}, {5, 6, 7, 8}, {1, 1, 1, 1}, {}};
  triples.positions = {1, 0, 2, 0};
  return triples;
}

TEST(Valency, PositionsBecomeSamples) {
  Triples triples = SomeTriples();
  Ints valencies(4, 9);
  EXPECT_OK(SeparatePositions(4, 3, &triples, valencies.data()));
  EXPECT(valencies == Ints({1, 0, 3, 0}));
  ExpectTriples(triples, {7, 0, 8, 6}, {5, 6, 7, 8}, {1, 1, 1, 1});
}

TEST(Valency, TooManyIdsAreRefused) {
  Triples triples = SomeTriples();
  Ints valencies(4);
  EXPECT_ERROR(SeparatePositions(4, 2, &triples, valencies.data()), kInvalid,
               "max_valency: is 2, sample 2 has 3 ids");
  EXPECT_ERROR(SeparatePositions(4, 0, &triples, valencies.data()), kInvalid,
               "max_valency: is 0, sample 0 has 1 ids");
  Triples none;
  EXPECT_OK(SeparatePositions(4, 0, &none, valencies.data()));
  EXPECT_OK(SeparatePositions(0, 7, &none, nullptr));
}

TEST(Valency, PositionsThatAreNoOrderAreRefused) {
  Ints valencies(4);
  for (const int32_t position : {-1, 3, INT32_MAX, INT32_MIN}) {
    Triples triples = SomeTriples();
    triples.positions[0] = position;
    EXPECT_ERROR(SeparatePositions(4, 4, &triples, valencies.data()), kInvalid,
                 "sorted_pos_ids: must be 0 to 2 for the 3 ids of sample 2, each once; one is");
  }
  Triples triples = SomeTriples();
  triples.positions[3] = 2;
  EXPECT_ERROR(SeparatePositions(4, 4, &triples, valencies.data()), kInvalid, "one is 2 again");
}

TEST(Valency, GainsAreRefused) {
  for (const float gain : {0.5f, 0.0f, -1.0f}) {
    Triples triples = SomeTriples();
    triples.gains[2] = gain;
    Ints valencies(4);
    EXPECT_ERROR(SeparatePositions(4, 4, &triples, valencies.data()), kInvalid,
                 "sorted_gains: must be 1");
  }
}

}  // namespace
}  // namespace opwright::sparsecore
