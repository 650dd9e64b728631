// SPDX-License-Identifier: Apache-2.0
//
// OpenAI Completions: body to ChatRequest with a raw prompt, which is a string, an array of one
// string, an array of token ids, or an array of one such array. Rules as in chat.h.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "codec/conversation/conversation.h"
#include "codec/dialect/request_limits.h"

namespace weir::codec {

absl::StatusOr<ChatRequest> ParseCompletions(std::string_view body, const RequestLimits& limits);

}  // namespace weir::codec
