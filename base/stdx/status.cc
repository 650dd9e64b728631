// SPDX-License-Identifier: Apache-2.0
#include "base/stdx/status.h"

#include <array>

#include "absl/strings/cord.h"
#include "base/stdx/check.h"

namespace weir {
namespace {

constexpr absl::string_view kReasonUrl = "weir/reason";
constexpr absl::string_view kParamUrl = "weir/param";

using C = absl::StatusCode;
// Order of the rows is the order of the enum; InfoOf indexes by value.
constexpr std::array<ReasonInfo, kReasonCount> kTable = {{
    {Reason::kOk, "ok", C::kOk, 200, 0, "", "", false, false},
    {Reason::kBadField, "bad_field", C::kInvalidArgument, 400, 3, "invalid_request_error",
     "invalid_request_error", false, false},
    {Reason::kTooLong, "too_long", C::kOutOfRange, 400, 11, "invalid_request_error",
     "invalid_request_error", false, false},
    {Reason::kNoKey, "no_key", C::kUnauthenticated, 401, 16, "authentication_error",
     "authentication_error", false, false},
    {Reason::kForbidden, "forbidden", C::kPermissionDenied, 403, 7, "permission_error",
     "permission_error", false, false},
    {Reason::kUnknownModel, "unknown_model", C::kNotFound, 404, 5, "not_found_error",
     "not_found_error", false, false},
    {Reason::kTenantRate, "tenant_rate", C::kResourceExhausted, 429, 8, "rate_limit_error",
     "rate_limit_error", false, true},
    {Reason::kQueueFull, "queue_full", C::kUnavailable, 503, 14, "overloaded_error",
     "overloaded_error", true, true},
    {Reason::kNoCapacity, "no_capacity", C::kUnavailable, 503, 14, "overloaded_error",
     "overloaded_error", true, true},
    {Reason::kDeadline, "deadline", C::kDeadlineExceeded, 504, 4, "timeout_error", "timeout_error",
     false, true},
    {Reason::kPeerLost, "peer_lost", C::kUnavailable, 503, 14, "overloaded_error",
     "overloaded_error", true, true},
    {Reason::kLeaseExpired, "lease_expired", C::kUnavailable, 503, 14, "overloaded_error",
     "overloaded_error", true, true},
    {Reason::kStaleEpoch, "stale_epoch", C::kAborted, 503, 10, "overloaded_error",
     "overloaded_error", true, false},
    {Reason::kCorrupt, "corrupt", C::kDataLoss, 500, 15, "internal_error", "api_error", true,
     false},
    {Reason::kCancelled, "cancelled", C::kCancelled, 499, 1, "cancelled", "cancelled", false,
     false},
    {Reason::kBug, "bug", C::kInternal, 500, 13, "internal_error", "api_error", false, false},
    {Reason::kTooLarge, "too_large", C::kOutOfRange, 413, 11, "invalid_request_error",
     "request_too_large", false, false},
}};

}  // namespace

const ReasonInfo& InfoOf(Reason reason) {
  const auto index = static_cast<size_t>(reason);
  return index < kTable.size() ? kTable[index] : kTable[static_cast<size_t>(Reason::kBug)];
}

std::span<const ReasonInfo> AllReasons() { return kTable; }

absl::Status Error(Reason reason, std::string_view message, std::string_view param) {
  WEIR_CHECK(reason != Reason::kOk);
  absl::Status status(InfoOf(reason).code, absl::string_view(message.data(), message.size()));
  status.SetPayload(kReasonUrl, absl::Cord(std::to_string(static_cast<int>(reason))));
  if (!param.empty()) {
    status.SetPayload(kParamUrl, absl::Cord(absl::string_view(param.data(), param.size())));
  }
  return status;
}

Reason ReasonFromNumber(uint32_t number) {
  return number > 0 && number < static_cast<uint32_t>(kReasonCount) ? static_cast<Reason>(number)
                                                                    : Reason::kBug;
}

Reason ReasonOf(const absl::Status& status) {
  if (status.ok()) return Reason::kOk;
  const auto payload = status.GetPayload(kReasonUrl);
  if (!payload) return Reason::kBug;
  return ReasonFromNumber(static_cast<uint32_t>(std::stoi(std::string(*payload))));
}

std::string ParamOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kParamUrl);
  return payload ? std::string(*payload) : std::string();
}

}  // namespace weir
