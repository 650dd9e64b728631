// SPDX-License-Identifier: Apache-2.0
#include "codec/dialect/responses_writer.h"

#include "base/stdx/bytes.h"
#include "base/stdx/status.h"
#include "codec/conversation/json_text.h"
#include "codec/dialect/error_body.h"

namespace weir::codec {
namespace {

std::string_view PrefixOf(ItemKind kind) {
  switch (kind) {
    case ItemKind::kReasoning:
      return "rs_";
    case ItemKind::kMessage:
      return "msg_";
    case ItemKind::kFunctionCall:
      return "fc_";
    case ItemKind::kFreeformCall:
      return "ctc_";
  }
  return "";
}

std::string_view NameOf(ItemStatus status) {
  switch (status) {
    case ItemStatus::kInProgress:
      return "in_progress";
    case ItemStatus::kCompleted:
      return "completed";
    case ItemStatus::kIncomplete:
      return "incomplete";
  }
  return "";
}

bool IsCall(ItemKind kind) {
  return kind == ItemKind::kFunctionCall || kind == ItemKind::kFreeformCall;
}

void AppendText(std::string_view key, std::string_view text, std::string* out) {
  *out += ",\"";
  *out += key;
  *out += "\":";
  AppendJsonString(text, out);
}

// The one part of a message or of reasoning.
void AppendPart(ItemKind kind, std::string_view text, std::string_view scores, std::string* out) {
  const bool reasoning = kind == ItemKind::kReasoning;
  *out += reasoning ? R"({"type":"reasoning_text","text":)" : R"({"type":"output_text","text":)";
  AppendJsonString(text, out);
  if (reasoning) {
    out->push_back('}');
    return;
  }
  *out += R"(,"annotations":[],"logprobs":[)";
  *out += scores;
  *out += "]}";
}

void AppendResponsesUsage(const Usage& usage, std::string* out) {
  const auto count = [out](std::string_view before, uint64_t value) {
    *out += before;
    AppendJsonNumber(static_cast<int64_t>(value), out);
  };
  count(R"({"input_tokens":)", usage.prompt_tokens);
  count(R"(,"input_tokens_details":{"cached_tokens":)", usage.cached_tokens);
  count(R"(},"output_tokens":)", usage.completion_tokens);
  count(R"(,"output_tokens_details":{"reasoning_tokens":)", usage.reasoning_tokens);
  count(R"(},"total_tokens":)", usage.prompt_tokens + usage.completion_tokens);
  out->push_back('}');
}

std::string_view EffortOf(const Thinking& thinking) {
  if (!thinking.enabled) return "none";
  switch (thinking.effort) {
    case Effort::kLow:
      return "low";
    case Effort::kMedium:
      return "medium";
    case Effort::kXhigh:
      return "xhigh";
    case Effort::kMax:
      return "max";
    default:
      return "high";
  }
}

struct Ending {
  bool completed;
  std::string_view status;
  std::string_view details;  // members of the response
};
Ending EndingOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength:
    case FinishReason::kResource:
      return {false, "incomplete",
              R"("error":null,"incomplete_details":{"reason":"max_output_tokens"})"};
    case FinishReason::kContentFilter:
      return {false, "incomplete",
              R"("error":null,"incomplete_details":{"reason":"content_filter"})"};
    default:
      return {true, "completed", R"("error":null,"incomplete_details":null)"};
  }
}

constexpr std::string_view kNoDetails = R"("error":null,"incomplete_details":null)";

}  // namespace

std::string FreeformInput(std::string_view arguments) {
  const auto members = JsonMembers(arguments);
  if (!members.ok()) return "";
  for (const JsonMember& member : *members) {
    if (member.key == "input" && member.is_string) return member.value;
  }
  return "";
}

ResponsesWriter::ResponsesWriter(const ChatRequest& request, const ResponseHead& head)
    : head_(head) {
  echo_ = R"("background":false,"instructions":null,"metadata":{},"parallel_tool_calls":)";
  echo_ += request.conversation.parallel_tool_calls ? "true" : "false";
  echo_ += R"(,"previous_response_id":null,"max_output_tokens":)";
  if (request.limits.max_tokens) {
    AppendJsonNumber(int64_t{*request.limits.max_tokens}, &echo_);
  } else {
    echo_ += "null";
  }
  echo_ += R"(,"reasoning":{"effort":")";
  echo_ += EffortOf(request.conversation.thinking);
  echo_ += R"(","summary":null},"service_tier":"default","store":false,"temperature":)";
  AppendJsonNumber(double{request.sampling.temperature}, &echo_);
  echo_ += R"(,"top_logprobs":)";
  AppendJsonNumber(int64_t{request.logprobs.top}, &echo_);
  echo_ += R"(,"top_p":)";
  AppendJsonNumber(double{request.sampling.top_p}, &echo_);
  // Tools and schemas can be long and are known to whoever sent them.
  const bool json = request.conversation.constraint.kind == ConstraintKind::kJsonObject;
  echo_ += json ? R"(,"text":{"format":{"type":"json_object"}},"tool_choice":")"
                : R"(,"text":{"format":{"type":"text"}},"tool_choice":")";
  echo_ += request.conversation.tool_choice == ToolChoice::kRequired ? "required" : "auto";
  echo_ += R"(","tools":[],"truncation":"disabled",)";
}

void ResponsesWriter::Open(std::string_view type, std::string* out) {
  *out += "event: ";
  *out += type;
  *out += "\ndata: {\"type\":\"";
  *out += type;
  *out += R"(","sequence_number":)";
  AppendJsonNumber(static_cast<int64_t>(events_++), out);
}

// Ends with the place of the item, and of the part in it where it has one.
void ResponsesWriter::OpenOfItem(std::string_view type, const ResponseItem& item,
                                 std::string* out) {
  Open(type, out);
  *out += R"(,"item_id":")";
  AppendItemId(item, out);
  *out += R"(","output_index":)";
  AppendJsonNumber(int64_t{item.index}, out);
  if (!IsCall(item.kind)) *out += R"(,"content_index":0)";
}

void ResponsesWriter::AppendItemId(const ResponseItem& item, std::string* out) const {
  *out += PrefixOf(item.kind);
  AppendJsonEscaped(head_.id, out);
  out->push_back('_');
  AppendJsonNumber(int64_t{item.index}, out);
}

void ResponsesWriter::AppendItem(const ResponseItem& item, std::string_view text,
                                 std::string* out) const {
  *out += R"({"id":")";
  AppendItemId(item, out);
  *out += R"(","status":")";
  *out += NameOf(item.status);
  out->push_back('"');
  const bool begun = item.status != ItemStatus::kInProgress;
  if (!IsCall(item.kind)) {
    if (item.kind == ItemKind::kReasoning) {
      *out += R"(,"type":"reasoning","summary":[],"content":[)";
    } else {
      *out += R"(,"type":"message","role":"assistant","phase":")";
      *out += item.commentary ? "commentary" : "final_answer";
      *out += R"(","content":[)";
    }
    if (begun) AppendPart(item.kind, text, item.scores, out);
    *out += "]}";
    return;
  }
  *out += item.kind == ItemKind::kFreeformCall ? R"(,"type":"custom_tool_call","call_id":")"
                                               : R"(,"type":"function_call","call_id":")";
  AppendCallId(head_.id, 0, item.call, out);
  out->push_back('"');
  // A name of a namespace is told in its two parts.
  const size_t cut = item.name.find("::");
  if (cut != std::string::npos) {
    AppendText("namespace", std::string_view(item.name).substr(0, cut), out);
    AppendText("name", std::string_view(item.name).substr(cut + 2), out);
  } else {
    AppendText("name", item.name, out);
  }
  AppendText(item.kind == ItemKind::kFreeformCall ? "input" : "arguments", text, out);
  out->push_back('}');
}

void ResponsesWriter::AppendObject(std::string_view status, std::string_view details,
                                   std::span<const ResponseItem> items, const Usage* usage,
                                   std::string* out) const {
  *out += R"({"id":"resp_)";
  AppendJsonEscaped(head_.id, out);
  *out += R"(","object":"response","created_at":)";
  AppendJsonNumber(head_.created, out);
  *out += R"(,"status":")";
  *out += status;
  *out += R"(",)";
  *out += details;
  *out += R"(,"model":)";
  AppendJsonString(head_.model, out);
  out->push_back(',');
  *out += echo_;
  *out += R"("output":[)";
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out->push_back(',');
    AppendItem(items[i], items[i].text, out);
  }
  *out += R"(],"usage":)";
  if (usage == nullptr) {
    *out += "null}";
    return;
  }
  AppendResponsesUsage(*usage, out);
  out->push_back('}');
}

void ResponsesWriter::Begin(std::string* out) {
  for (const char* type : {"response.created", "response.in_progress"}) {
    Open(type, out);
    *out += R"(,"response":)";
    AppendObject("in_progress", kNoDetails, {}, nullptr, out);
    *out += "}\n\n";
  }
}

void ResponsesWriter::ItemAdded(const ResponseItem& item, std::string* out) {
  Open("response.output_item.added", out);
  *out += R"(,"output_index":)";
  AppendJsonNumber(int64_t{item.index}, out);
  *out += R"(,"item":)";
  AppendItem(item, "", out);
  *out += "}\n\n";
  if (IsCall(item.kind)) return;
  OpenOfItem("response.content_part.added", item, out);
  *out += R"(,"part":)";
  AppendPart(item.kind, "", "", out);
  *out += "}\n\n";
}

void ResponsesWriter::ItemDelta(const ResponseItem& item, std::string_view delta,
                                std::string_view scores, std::string* out) {
  switch (item.kind) {
    case ItemKind::kReasoning:
      OpenOfItem("response.reasoning_text.delta", item, out);
      break;
    case ItemKind::kMessage:
      OpenOfItem("response.output_text.delta", item, out);
      break;
    case ItemKind::kFunctionCall:
      OpenOfItem("response.function_call_arguments.delta", item, out);
      break;
    case ItemKind::kFreeformCall:
      OpenOfItem("response.custom_tool_call_input.delta", item, out);
      break;
  }
  AppendText("delta", delta, out);
  if (item.kind == ItemKind::kMessage) {
    *out += R"(,"logprobs":[)";
    *out += scores;
    out->push_back(']');
  }
  *out += "}\n\n";
}

void ResponsesWriter::ItemDone(const ResponseItem& item, std::string* out) {
  switch (item.kind) {
    case ItemKind::kReasoning:
      OpenOfItem("response.reasoning_text.done", item, out);
      AppendText("text", item.text, out);
      break;
    case ItemKind::kMessage:
      OpenOfItem("response.output_text.done", item, out);
      AppendText("text", item.text, out);
      *out += R"(,"logprobs":[)";
      *out += item.scores;
      out->push_back(']');
      break;
    case ItemKind::kFunctionCall:
      OpenOfItem("response.function_call_arguments.done", item, out);
      AppendText("name", item.name, out);
      AppendText("arguments", item.text, out);
      break;
    case ItemKind::kFreeformCall:
      OpenOfItem("response.custom_tool_call_input.done", item, out);
      AppendText("input", item.text, out);
      break;
  }
  *out += "}\n\n";
  if (!IsCall(item.kind)) {
    OpenOfItem("response.content_part.done", item, out);
    *out += R"(,"part":)";
    AppendPart(item.kind, item.text, item.scores, out);
    *out += "}\n\n";
  }
  Open("response.output_item.done", out);
  *out += R"(,"output_index":)";
  AppendJsonNumber(int64_t{item.index}, out);
  *out += R"(,"item":)";
  AppendItem(item, item.text, out);
  *out += "}\n\n";
}

void ResponsesWriter::End(FinishReason reason, std::span<const ResponseItem> items,
                          const Usage& usage, std::string* out) {
  Open(EndingOf(reason).completed ? "response.completed" : "response.incomplete", out);
  *out += R"(,"response":)";
  Body(reason, items, usage, out);
  *out += "}\n\n";
}

void ResponsesWriter::Failed(const absl::Status& status, std::string_view request_id,
                             std::span<const ResponseItem> items, const Usage& usage,
                             std::string* out) {
  std::string details = R"("incomplete_details":null,"error":{"code":"server_error","message":)";
  AppendJsonString(ClientMessageOf(status, request_id), &details);
  details.push_back('}');
  Open("response.failed", out);
  *out += R"(,"response":)";
  AppendObject("failed", details, items, &usage, out);
  *out += "}\n\n";
}

void ResponsesWriter::Body(FinishReason reason, std::span<const ResponseItem> items,
                           const Usage& usage, std::string* out) const {
  const Ending ending = EndingOf(reason);
  AppendObject(ending.status, ending.details, items, &usage, out);
}

}  // namespace weir::codec
