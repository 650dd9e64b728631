// SPDX-License-Identifier: Apache-2.0
//
// Anthropic Messages: body to ChatRequest. Rules as in chat.h. Blocks become messages: what a user
// says between tool results is one message, each result one of its own, and what the model cannot
// be shown (a document) is named by a placeholder. Unknown kinds of blocks are refused, since the
// answer would not be to what was asked.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "codec/conversation/conversation.h"
#include "codec/dialect/request_limits.h"

namespace weir::codec {

absl::StatusOr<ChatRequest> ParseMessages(std::string_view body, const RequestLimits& limits);

}  // namespace weir::codec
