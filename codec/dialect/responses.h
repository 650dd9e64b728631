// SPDX-License-Identifier: Apache-2.0
//
// OpenAI Responses: body to ChatRequest. Rules as in chat.h. Items become messages: a turn of the
// assistant's is its reasoning, its text and its calls, whose results follow in the order of the
// calls however the items were mixed. Nothing is stored, so what refers to stored things is refused.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "codec/conversation/conversation.h"
#include "codec/dialect/request_limits.h"

namespace weir::codec {

absl::StatusOr<ChatRequest> ParseResponses(std::string_view body, const RequestLimits& limits);

}  // namespace weir::codec
