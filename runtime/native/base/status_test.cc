#include "base/status.h"

#include <memory>
#include <string>
#include <utility>

#include "base/testing/testing.h"

namespace opwright {
namespace {

TEST(Status, HasCodeAndMessage) {
  EXPECT(OkStatus().ok());
  EXPECT(Status().ok());
  EXPECT_EQ(Status().message(), "");
  const Status status = InvalidArgumentError("num_units", "must be positive");
  EXPECT(!status.ok());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "num_units: must be positive");
}

TEST(Status, EachErrorHasItsCode) {
  EXPECT_EQ(InvalidArgumentError("a").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(FailedPreconditionError("a").code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(UnimplementedError("a").code(), StatusCode::kUnimplemented);
  EXPECT_EQ(ResourceExhaustedError("a").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(InternalError("a").code(), StatusCode::kInternal);
}

TEST(Status, PrependPutsTextBeforeTheMessage) {
  Status status = InternalError("no device");
  status.Prepend("step 3: ");
  EXPECT_EQ(status.message(), "step 3: no device");
  EXPECT_EQ(status.code(), StatusCode::kInternal);
}

Status Half(int value, int* half) {
  if (value % 2) return InvalidArgumentError("value", "must be even");
  *half = value / 2;
  return OkStatus();
}

Status Quarter(int value, int* quarter) {
  OPWRIGHT_RETURN_IF_ERROR(Half(value, quarter));
  OPWRIGHT_RETURN_IF_ERROR(Half(*quarter, quarter));
  return OkStatus();
}

TEST(Status, ReturnIfErrorReturnsTheFirstError) {
  int quarter = 0;
  EXPECT_OK(Quarter(8, &quarter));
  EXPECT_EQ(quarter, 2);
  EXPECT_ERROR(Quarter(7, &quarter), StatusCode::kInvalidArgument, "must be even");
  EXPECT_EQ(quarter, 2);
  EXPECT_ERROR(Quarter(6, &quarter), StatusCode::kInvalidArgument, "must be even");
}

StatusOr<std::unique_ptr<std::string>> Make(bool good) {
  if (!good) return FailedPreconditionError("nothing to make it of");
  return std::make_unique<std::string>("made");
}

TEST(Status, StatusOrHasAValueOrAnError) {
  StatusOr<std::unique_ptr<std::string>> made = Make(true);
  EXPECT_OK(made);
  EXPECT(made.status().ok());
  EXPECT_EQ(**made, "made");
  EXPECT_EQ(made->get()->size(), 4u);
  const std::unique_ptr<std::string> taken = *std::move(made);
  EXPECT_EQ(*taken, "made");
  EXPECT_ERROR(Make(false), StatusCode::kFailedPrecondition, "nothing");
}

}  // namespace
}  // namespace opwright
