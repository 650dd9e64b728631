// SPDX-License-Identifier: Apache-2.0
//
// A failed status as the client sees it: HTTP status, headers and body in the shape of its dialect.
// Pure functions, any thread. Internal failures keep their detail to the log and give the request
// id instead; everything else is told as it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace weir::codec {

enum class ErrorShape : uint8_t { kOpenAi, kAnthropic };

struct ErrorReply {
  int http = 500;
  std::vector<std::pair<std::string, std::string>> headers;  // content-type, retry-after(-ms)
  std::string body;
};

// `retry_after_ms` is sent where the client may retry; 1000 unless the caller knows better.
ErrorReply MakeErrorReply(const absl::Status& status, ErrorShape shape, std::string_view request_id,
                          std::optional<uint64_t> retry_after_ms = std::nullopt);

// What a client is told of a failed status.
std::string ClientMessageOf(const absl::Status& status, std::string_view request_id);

// The body alone.
void AppendErrorBody(const absl::Status& status, ErrorShape shape, std::string_view request_id,
                     std::string* out);

// The same as an event of a stream whose headers are already sent. The stream ends after it,
// without [DONE].
void AppendErrorEvent(const absl::Status& status, ErrorShape shape, std::string_view request_id,
                      std::string* out);

}  // namespace weir::codec
