// SPDX-License-Identifier: Apache-2.0
#include "codec/template/dsml.h"

#include <algorithm>
#include <utility>

#include "codec/conversation/json_text.h"

namespace weir::codec {
namespace {

bool IsEmptySystem(const Turn& turn) {
  const auto& parts = turn.message->parts;
  return turn.author == Author::kSystem &&
         (parts.empty() || (parts.size() == 1 && std::get<TextPart>(parts[0]).text.empty()));
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
              "\">");
    out->Text(member.value);
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

bool IsTurnOfUser(const Turn& turn) {
  return turn.author == Author::kUser || turn.author == Author::kTool;
}

void OrderResults(std::vector<Turn>* turns) {
  const std::vector<ToolCall>* calls = nullptr;
  for (size_t i = 0; i < turns->size();) {
    const Turn& turn = (*turns)[i];
    if (!IsTurnOfUser(turn)) {
      if (turn.author == Author::kAssistant) calls = &turn.message->calls;
      ++i;
      continue;
    }
    std::vector<size_t> places;
    size_t end = i;
    for (; end < turns->size() && IsTurnOfUser((*turns)[end]); ++end) {
      if ((*turns)[end].author == Author::kTool) places.push_back(end);
    }
    std::vector<std::pair<size_t, Turn>> results;
    for (const size_t place : places) {
      size_t order = 0;  // an unknown id goes first
      for (size_t c = 0; calls != nullptr && c < calls->size(); ++c) {
        if ((*calls)[c].id == (*turns)[place].message->tool_call_id) order = c + 1;
      }
      results.emplace_back(order, (*turns)[place]);
    }
    std::stable_sort(results.begin(), results.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t k = 0; k < places.size(); ++k) (*turns)[places[k]] = results[k].second;
    i = end;
  }
}

void JoinLeadingSystem(const Conversation& conversation, std::vector<Turn>* turns,
                       Message* joined) {
  turns->erase(std::remove_if(turns->begin(), turns->end(), IsEmptySystem), turns->end());
  const auto rest = std::find_if(turns->begin(), turns->end(), [](const Turn& turn) {
    return turn.author != Author::kSystem;
  });
  const auto leading = rest - turns->begin();
  const bool needed =
      !conversation.tools.empty() || conversation.constraint.kind != ConstraintKind::kNone;
  if (leading == 1 || (leading == 0 && !needed)) return;
  joined->author = Author::kSystem;
  for (auto turn = turns->begin(); turn != rest; ++turn) {
    joined->parts.insert(joined->parts.end(), turn->message->parts.begin(),
                         turn->message->parts.end());
  }
  turns->erase(turns->begin(), rest);
  turns->insert(turns->begin(), Turn{Author::kSystem, joined});
}

ptrdiff_t LastUser(const std::vector<Turn>& turns) {
  ptrdiff_t last = static_cast<ptrdiff_t>(turns.size()) - 1;
  while (last >= 0 && turns[static_cast<size_t>(last)].author != Author::kUser) --last;
  return last;
}

}  // namespace weir::codec
