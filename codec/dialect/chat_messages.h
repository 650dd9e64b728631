// SPDX-License-Identifier: Apache-2.0
//
// The `messages` and `tools` of a Chat Completions body. Internal to the dialect; rules as in
// field_reader.h.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codec/conversation/conversation.h"
#include "codec/dialect/field_reader.h"

namespace weir::codec {

// Every message, and that each tool call is answered exactly once right after it was made.
absl::StatusOr<std::vector<Message>> ReadMessages(JsonValue value, const RequestLimits& limits);

absl::StatusOr<std::vector<ToolDef>> ReadTools(JsonValue value, const RequestLimits& limits);

// none, auto, required or one function by name; narrows `conversation->tools` accordingly.
absl::Status ApplyToolChoice(JsonValue value, Conversation* conversation);

}  // namespace weir::codec
