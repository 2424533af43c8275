#include "rnn/spec.h"

#include <cstdint>
#include <functional>
#include <iterator>
#include <string>

#include "base/testing/pool.h"
#include "base/testing/testing.h"
#include "rnn/layout.h"

namespace opwright::rnn {
namespace {

CallSpec Good() {
  CallSpec spec;
  spec.units = 4;
  spec.input_size = 3;
  spec.time = 2;
  spec.batch = 5;
  return spec;
}

TEST(Spec, ValidSpecsAreAccepted) {
  CallSpec spec = Good();
  EXPECT_OK(Validate(spec));
  spec.projection = 4;
  EXPECT_OK(Validate(spec));
  spec.projection = 0;
  spec.skip_input = true;
  spec.input_size = 4;
  EXPECT_OK(Validate(spec));
}

TEST(Spec, ErrorNamesTheInvalidField) {
  const auto refused = [](const char* words, const std::function<void(CallSpec&)>& change) {
    CallSpec spec = Good();
    change(spec);
    EXPECT_ERROR(Validate(spec), StatusCode::kInvalidArgument, words);
  };
  refused("num_layers: must be positive, is 0", [](CallSpec& spec) { spec.layers = 0; });
  refused("num_units: must be positive, is -1", [](CallSpec& spec) { spec.units = -1; });
  refused("input_size: must be positive", [](CallSpec& spec) { spec.input_size = 0; });
  refused("num_proj: must lie between 0 and num_units = 4, is 5",
          [](CallSpec& spec) { spec.projection = 5; });
  refused("num_proj: must lie between", [](CallSpec& spec) { spec.projection = -1; });
  refused("only an lstm has a projection", [](CallSpec& spec) {
    spec.cell = Cell::kGru;
    spec.projection = 2;
  });
  refused("input_mode: skip_input needs input_size = num_units, but they are 3 and 4",
          [](CallSpec& spec) { spec.skip_input = true; });
  refused("num_units: the number of parameters",
          [](CallSpec& spec) { spec.units = spec.input_size = int64_t{1} << 31; });
  refused("input: needs at least one step", [](CallSpec& spec) { spec.time = 0; });
  refused("input: needs at least one step", [](CallSpec& spec) { spec.batch = -3; });
  refused("input: its shape, [2147483648 steps",
          [](CallSpec& spec) { spec.time = int64_t{1} << 31; });
  refused("makes sizes overflow",
          [](CallSpec& spec) { spec.time = spec.batch = spec.layers = 1 << 22; });
}

// Validate refuses arbitrary sizes, or the sizes that are computed from them do not overflow.
TEST(Spec, AcceptedSizesDoNotOverflow) {
  constexpr int64_t kSizes[] = {INT64_MIN,
                                -1,
                                0,
                                1,
                                2,
                                1000,
                                int64_t{1} << 16,
                                int64_t{1} << 31,
                                INT32_MAX,
                                int64_t{1} << 40,
                                int64_t{1} << 62,
                                INT64_MAX};
  Random random{testing::Seed()};
  const auto draw = [&] { return kSizes[random.Below(std::size(kSizes))]; };
  int64_t taken = 0;
  for (int64_t i = 0; i < testing::Rounds(20000); ++i) {
    CallSpec spec;
    spec.cell = static_cast<Cell>(random.Below(4));
    spec.skip_input = random.Below(4) == 0;
    spec.bidirectional = random.Below(2);
    spec.layers = draw();
    spec.units = draw();
    spec.input_size = spec.skip_input ? spec.units : draw();
    spec.projection = random.Below(2) ? draw() : 0;
    spec.time = draw();
    spec.batch = draw();
    if (Validate(static_cast<const StackSpec&>(spec)).ok()) EXPECT(ParamsSize(spec) > 0);
    if (!Validate(spec).ok()) continue;
    spec.training = true;
    EXPECT(ReserveLayout(spec).size >= ReserveLayout::kHeaderElements);
    ++taken;
  }
  EXPECT(taken > 0);
}

TEST(Spec, SameStackComparesEveryField) {
  const StackSpec stack = Good();
  EXPECT(SameStack(stack, stack));
  const std::function<void(StackSpec&)> changes[] = {
      [](StackSpec& other) { other.cell = Cell::kGru; },
      [](StackSpec& other) { other.skip_input = true; },
      [](StackSpec& other) { other.bidirectional = true; },
      [](StackSpec& other) { ++other.layers; },
      [](StackSpec& other) { ++other.units; },
      [](StackSpec& other) { ++other.input_size; },
      [](StackSpec& other) { ++other.projection; },
  };
  for (const auto& change : changes) {
    StackSpec other = stack;
    change(other);
    EXPECT(!SameStack(stack, other));
  }
}

}  // namespace
}  // namespace opwright::rnn
