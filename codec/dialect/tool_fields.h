// SPDX-License-Identifier: Apache-2.0
//
// What the dialects say alike about tools. Internal to the dialects; rules as in field_reader.h.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "codec/conversation/conversation.h"
#include "codec/dialect/field_reader.h"

namespace weir::codec {

inline constexpr size_t kCallsMax = 1024;  // of one message

// The text `object[key]`, which must be there.
absl::Status ReadRequiredText(const JsonObject& object, std::string_view key,
                              std::string_view path, std::string* out);

absl::Status CheckToolName(std::string_view name, std::string_view path);

// The schema of a tool's arguments: an object's, or {}.
absl::Status ReadParameters(JsonValue value, std::string_view path, ToolDef* tool);

// `tool_choice` as a word: none, auto or required.
absl::Status ApplyChoiceWord(JsonValue value, Conversation* conversation);

// Only the tool of this name is left, and it must be called. `path` is where it was named.
absl::Status ChooseTool(std::string_view name, std::string_view path, Conversation* conversation);

}  // namespace weir::codec
