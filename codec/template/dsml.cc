// SPDX-License-Identifier: Apache-2.0
#include "codec/template/dsml.h"

#include <algorithm>
#include <utility>

#include "base/stdx/status.h"
#include "codec/conversation/json_text.h"

namespace weir::codec {
namespace {

bool IsEmptySystem(const Message& message) {
  return message.author == Author::kSystem && TextOf(message).empty();
}

Message SystemOf(std::string text) {
  Message message;
  message.author = Author::kSystem;
  message.parts.emplace_back(TextPart{std::move(text)});
  return message;
}

void Open(const ControlTokens& tokens, std::string_view tag, Segments* out) {
  out->Text("<");
  tokens.Put(kDsmlToken, out);
  out->Text(tag);
}
void Close(const ControlTokens& tokens, std::string_view tag, Segments* out) {
  out->Text("</");
  tokens.Put(kDsmlToken, out);
  out->Text(tag);
  out->Text(">");
}

// One parameter a member; what is no object is one parameter as it is.
void AddArguments(const ControlTokens& tokens, const DsmlTags& tags, const std::string& arguments,
                  Segments* out) {
  auto members = JsonMembers(arguments);
  if (!members.ok()) {
    members = std::vector<JsonMember>{{"arguments", true, arguments}};
  }
  bool first = true;
  for (const JsonMember& member : *members) {
    if (!first) out->Text("\n");
    first = false;
    Open(tokens, tags.parameter, out);
    out->Text(" name=\"" + member.key + "\" string=\"" + (member.is_string ? "true" : "false") +
              "\">" + member.value);
    Close(tokens, tags.parameter, out);
  }
}

}  // namespace

void AddToolLines(const std::vector<ToolDef>& tools, Segments* out) {
  bool first = true;
  for (const ToolDef& tool : tools) {
    std::string line = first ? "" : "\n";
    first = false;
    line += "{\"name\": ";
    AppendJsonString(tool.name, &line);
    line += ", \"description\": ";
    AppendJsonString(tool.description, &line);
    line += ", \"parameters\": ";
    line += tool.parameters;
    line += "}";
    out->Text(line);
  }
}

void OpenDsmlCalls(const ControlTokens& tokens, const DsmlTags& tags, Segments* out) {
  out->Text("\n\n");
  Open(tokens, tags.calls, out);
  out->Text(">\n");
}

void AddDsmlCalls(const ControlTokens& tokens, const DsmlTags& tags,
                  const std::vector<ToolCall>& calls, Segments* out) {
  OpenDsmlCalls(tokens, tags, out);
  for (const ToolCall& call : calls) {
    Open(tokens, tags.invoke, out);
    out->Text(" name=\"" + call.name + "\">\n");
    AddArguments(tokens, tags, call.arguments, out);
    out->Text("\n");
    Close(tokens, tags.invoke, out);
    out->Text("\n");
  }
  Close(tokens, tags.calls, out);
}

bool IsTurnOfUser(const Message& message) {
  return message.author == Author::kUser || message.author == Author::kTool;
}

void OrderResults(std::vector<Message>* messages) {
  const std::vector<ToolCall>* calls = nullptr;
  for (size_t i = 0; i < messages->size();) {
    Message& message = (*messages)[i];
    if (!IsTurnOfUser(message)) {
      if (message.author == Author::kAssistant) calls = &message.calls;
      ++i;
      continue;
    }
    std::vector<size_t> places;
    size_t end = i;
    for (; end < messages->size() && IsTurnOfUser((*messages)[end]); ++end) {
      if ((*messages)[end].author == Author::kTool) places.push_back(end);
    }
    std::vector<std::pair<size_t, Message>> results;
    for (const size_t place : places) {
      size_t order = 0;  // an unknown id goes first
      for (size_t c = 0; calls != nullptr && c < calls->size(); ++c) {
        if ((*calls)[c].id == (*messages)[place].tool_call_id) order = c + 1;
      }
      results.emplace_back(order, std::move((*messages)[place]));
    }
    std::stable_sort(results.begin(), results.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t k = 0; k < places.size(); ++k) {
      (*messages)[places[k]] = std::move(results[k].second);
    }
    i = end;
  }
}

std::vector<Message> JoinLeadingSystem(const Conversation& conversation) {
  std::vector<Message> messages;
  std::string system;
  bool leading = true;
  for (const Message& message : conversation.messages) {
    if (IsEmptySystem(message)) continue;
    if (leading && message.author == Author::kSystem) {
      if (!system.empty()) system += "\n\n";
      system += TextOf(message);
      continue;
    }
    leading = false;
    messages.push_back(message);
  }
  const bool formed = conversation.constraint.kind != ConstraintKind::kNone;
  if (!system.empty() || !conversation.tools.empty() || formed) {
    messages.insert(messages.begin(), SystemOf(std::move(system)));
  }
  return messages;
}

ptrdiff_t LastUser(const std::vector<Message>& messages) {
  ptrdiff_t last = static_cast<ptrdiff_t>(messages.size()) - 1;
  while (last >= 0 && messages[static_cast<size_t>(last)].author != Author::kUser) --last;
  return last;
}

absl::Status RefuseImages(const std::vector<Message>& messages) {
  for (const Message& message : messages) {
    for (const Part& part : message.parts) {
      if (std::holds_alternative<ImagePart>(part)) {
        return Error(Reason::kBadField, "this model does not take images here", "messages");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace weir::codec
