// SPDX-License-Identifier: Apache-2.0
//
// Fields about thinking, which every dialect has under names of its own. Internal to the dialects;
// rules as in field_reader.h.
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "codec/conversation/conversation.h"
#include "codec/dialect/field_reader.h"

namespace weir::codec {

// What was said about thinking, which two fields decide together.
struct ThinkingFields {
  std::optional<bool> enabled;  // `thinking.type`, which wins
  std::optional<bool> by_effort;
};

// `thinking`: type and budget_tokens.
absl::Status ReadThinking(JsonValue value, ThinkingFields* fields, Thinking* thinking);

// none, minimal, low, medium, high, xhigh, max (or ultra).
absl::Status ReadEffort(JsonValue value, std::string_view path, ThinkingFields* fields,
                        Thinking* thinking);

// On unless somebody said otherwise. A forced call switches it off, which is refused where thinking
// was asked for; after tool_choice was applied.
absl::Status SettleThinking(const ThinkingFields& fields, Conversation* conversation);

}  // namespace weir::codec
