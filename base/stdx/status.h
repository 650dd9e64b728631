// SPDX-License-Identifier: Apache-2.0
//
// The one vocabulary of failure: a Reason says what went wrong, and one table turns it into an
// absl code, an HTTP status, a gRPC code and the answers to "do we retry" and "may the client".
// Everything here is pure and may be called from any thread; statuses are values. A status without
// a reason (made by a library) counts as kBug. Messages are one sentence a user can act on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir {

enum class Reason : uint16_t {
  kOk = 0,
  kBadField = 1,       // a field has a wrong type or value; the message names it
  kTooLong = 2,        // prompt plus answer exceed the model's or the pool's limit
  kNoKey = 3,          // no or a wrong API key
  kForbidden = 4,      // the key may not do this
  kUnknownModel = 5,   // no such model, route or object
  kTenantRate = 6,     // the tenant is over its own limit
  kQueueFull = 7,      // a bounded queue had no room
  kNoCapacity = 8,     // slots or pages are exhausted
  kDeadline = 9,       // the request's deadline passed
  kPeerLost = 10,      // a process or link went away
  kLeaseExpired = 11,  // nobody renewed in time
  kStaleEpoch = 12,    // the sender's view is old
  kCorrupt = 13,       // a checksum or an invariant of stored bytes failed
  kCancelled = 14,     // the client or an operator withdrew the request
  kBug = 15,           // ours
  kTooLarge = 16,      // a body, header or file exceeds its limit (HTTP 413 or 431)
};
inline constexpr int kReasonCount = 17;

// One row of the table. `openai_type` and `anthropic_type` are the `type` strings of the error
// bodies in the two dialects.
struct ReasonInfo {
  Reason reason;
  std::string_view name;  // stable, for logs and metrics: "bad_field"
  absl::StatusCode code;
  int http;
  int grpc;
  std::string_view openai_type;
  std::string_view anthropic_type;
  bool retry_by_us;
  bool retry_by_client;
};

const ReasonInfo& InfoOf(Reason reason);
std::span<const ReasonInfo> AllReasons();

// A failed status carrying `reason`. `param` names the field at fault where there is one.
[[nodiscard]] absl::Status Error(Reason reason, std::string_view message,
                                 std::string_view param = {});

// The reason of a status: kOk for OK, kBug where none was attached.
Reason ReasonOf(const absl::Status& status);

// A reason's number as it crossed a wire: kBug for 0 and for numbers this build does not know.
Reason ReasonFromNumber(uint32_t number);

// The field named when the error was made; empty if none.
std::string ParamOf(const absl::Status& status);

}  // namespace weir

// Returns from the calling function when `expr` (an absl::Status) is not OK.
#define WEIR_TRY(expr)                         \
  do {                                         \
    if (absl::Status weir_try_status = (expr); \
        !weir_try_status.ok()) {               \
      return weir_try_status;                  \
    }                                          \
  } while (false)

#define WEIR_CONCAT_INNER(a, b) a##b
#define WEIR_CONCAT(a, b) WEIR_CONCAT_INNER(a, b)

// WEIR_ASSIGN(auto x, expr): moves the value of an absl::StatusOr into x or returns its status.
#define WEIR_ASSIGN(declaration, expr) \
  WEIR_ASSIGN_IMPL(WEIR_CONCAT(weir_assign_, __LINE__), declaration, expr)
#define WEIR_ASSIGN_IMPL(temporary, declaration, expr) \
  auto temporary = (expr);                             \
  if (!temporary.ok()) return temporary.status();      \
  declaration = *std::move(temporary)
