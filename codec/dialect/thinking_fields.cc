// SPDX-License-Identifier: Apache-2.0
#include "codec/dialect/thinking_fields.h"

#include "base/stdx/status.h"

namespace weir::codec {

absl::Status ReadThinking(JsonValue value, ThinkingFields* fields, Thinking* thinking) {
  WEIR_ASSIGN(const JsonObject object, ReadObject(value, "thinking"));
  for (const auto field : object) {
    if (field.value.is_null()) continue;
    if (field.key == "type") {
      std::string_view type;
      const bool text = field.value.get(type) == simdjson::SUCCESS;
      if (!text || (type != "enabled" && type != "adaptive" && type != "disabled")) {
        return BadField("thinking.type", "must be \"enabled\", \"adaptive\" or \"disabled\"");
      }
      fields->enabled = type != "disabled";
    } else if (field.key == "budget_tokens") {
      int64_t budget = 0;
      WEIR_TRY(ReadInteger(field.value, "thinking.budget_tokens", 0, INT64_MAX, &budget));
      thinking->budget_tokens = static_cast<uint64_t>(budget);
    }
  }
  return absl::OkStatus();
}

absl::Status ReadEffort(JsonValue value, std::string_view path, ThinkingFields* fields,
                        Thinking* thinking) {
  std::string_view effort;
  if (value.get(effort) != simdjson::SUCCESS) {
    return BadField(path, "must be a string");
  }
  if (effort == "none") {
    fields->by_effort = false;
    return absl::OkStatus();
  }
  if (effort == "minimal" || effort == "low") {
    thinking->effort = Effort::kLow;
  } else if (effort == "medium") {
    thinking->effort = Effort::kMedium;
  } else if (effort == "high") {
    thinking->effort = Effort::kHigh;
  } else if (effort == "xhigh") {
    thinking->effort = Effort::kXhigh;
  } else if (effort == "max" || effort == "ultra") {
    thinking->effort = Effort::kMax;
  } else {
    return BadField(path, "must be one of none, minimal, low, medium, high, xhigh, max");
  }
  fields->by_effort = true;
  return absl::OkStatus();
}

absl::Status SettleThinking(const ThinkingFields& fields, Conversation* conversation) {
  bool& enabled = conversation->thinking.enabled;
  enabled = fields.enabled.value_or(fields.by_effort.value_or(true));
  if (conversation->tool_choice == ToolChoice::kRequired && enabled) {
    if (fields.enabled || fields.by_effort) {
      return BadField("tool_choice", "cannot demand a call while thinking is on");
    }
    enabled = false;  // nobody asked for thinking, but for a call
  }
  return absl::OkStatus();
}

}  // namespace weir::codec
