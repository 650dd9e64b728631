// SPDX-License-Identifier: Apache-2.0
//
// OpenAI Chat Completions: body to ChatRequest. A pure function of the bytes, on any thread; large
// bodies take milliseconds and belong on a pool. Every failure is kBadField or kTooLarge with a
// sentence that names the field and the field's path (`messages[2].content`) as the status' param.
// Unknown fields are ignored; known ones of a wrong type or range are refused.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "codec/conversation/conversation.h"
#include "codec/dialect/request_limits.h"

namespace weir::codec {

absl::StatusOr<ChatRequest> ParseChat(std::string_view body, const RequestLimits& limits);

}  // namespace weir::codec
