// SPDX-License-Identifier: Apache-2.0
#include "base/stdx/status.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

TEST(Status, TableRowsStandInTheOrderOfTheEnum) {
  for (int i = 0; i < kReasonCount; ++i) {
    EXPECT_EQ(static_cast<int>(InfoOf(static_cast<Reason>(i)).reason), i);
  }
}

TEST(Status, ErrorKeepsReasonMessageAndField) {
  const absl::Status status = Error(Reason::kBadField, "max_tokens must be positive", "max_tokens");
  EXPECT_EQ(ReasonOf(status), Reason::kBadField);
  EXPECT_EQ(ParamOf(status), "max_tokens");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(Status, UnknownNumbersAreBugs) {
  EXPECT_EQ(ReasonFromNumber(9), Reason::kDeadline);
  EXPECT_EQ(ReasonFromNumber(0), Reason::kBug);
  EXPECT_EQ(ReasonFromNumber(kReasonCount), Reason::kBug);
  EXPECT_EQ(ReasonFromNumber(0xffffffffu), Reason::kBug);
}

TEST(Status, ForeignStatusIsABug) {
  EXPECT_EQ(ReasonOf(absl::UnknownError("x")), Reason::kBug);
  EXPECT_EQ(ReasonOf(absl::OkStatus()), Reason::kOk);
}

absl::StatusOr<int> Half(int n) {
  if (n % 2 != 0) return Error(Reason::kBadField, "n must be even", "n");
  return n / 2;
}

absl::StatusOr<int> Quarter(int n) {
  WEIR_ASSIGN(const int half, Half(n));
  return Half(half);
}

TEST(Status, AssignReturnsTheFirstFailure) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(ReasonOf(Quarter(6).status()), Reason::kBadField);
}

}  // namespace
}  // namespace weir
