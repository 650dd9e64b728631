// SPDX-License-Identifier: Apache-2.0
#include "codec/template/v3.h"

#include <string>
#include <vector>

#include "codec/template/control_tokens.h"
#include "codec/template/response_format.h"

namespace weir::codec {
namespace {

constexpr std::string_view kToolsHead =
    "## Tools\nYou have access to the following tools:\n";
constexpr std::string_view kToolsTail =
    "\nIMPORTANT: ALWAYS adhere to this exact format for tool use:\n"
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool_call_name<｜tool▁sep｜>tool_call_arguments"
    "<｜tool▁call▁end｜>{{additional_tool_calls}}<｜tool▁calls▁end｜>\n\nWhere:\n\n"
    "- `tool_call_name` must be an exact match to one of the available tools\n"
    "- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters "
    "Schema\n"
    "- For multiple tool calls, chain them directly without separators or spaces\n";

class V3Template final : public Template {
 public:
  V3Template(TemplateKind kind, const Vocab& vocab)
      : Template(kind),
        tokens_(vocab, Spellings(kind)),
        can_think_(kind == TemplateKind::kV31 && vocab.FindAdded(kThinkToken) &&
                   vocab.FindAdded(kThinkEndToken)),
        tools_tail_(tokens_.Compile(kToolsTail)) {
    spelt_out_ = tokens_.missing();
  }

  bool can_think() const override { return can_think_; }

 private:
  void RenderTurns(const Conversation& conversation, std::vector<Turn> turns,
                   Rendered* out) const override {
    Segments* segments = &out->segments;
    out->thinking = can_think_ && conversation.thinking.enabled;
    if (!conversation.tools.empty()) {
      out->tools = is_v31() ? ToolSyntax::kV31Tokens : ToolSyntax::kV3Tokens;
    }
    tokens_.Put(kBosToken, segments);
    AddSystem(conversation, turns, segments);
    bool after_results = false;
    for (size_t i = 0; i < turns.size(); ++i) {
      if (turns[i].author == Author::kTool) {
        AddResult(turns, i, segments);
        after_results = true;
      } else if (turns[i].author == Author::kAssistant) {
        AddAssistant(*turns[i].message, after_results, out->thinking, segments);
        after_results = false;
      } else if (turns[i].author != Author::kSystem) {
        tokens_.Put(kUserToken, segments);
        AppendTextOf(*turns[i].message, segments);
        after_results = false;
      }
    }
    AddHeader(conversation, turns, out);
  }

  static std::vector<std::string_view> Spellings(TemplateKind kind) {
    std::vector<std::string_view> all = {kBosToken,
                                         kEosToken,
                                         kUserToken,
                                         kAssistantToken,
                                         kToolCallsBeginToken,
                                         kToolCallsEndToken,
                                         kToolCallBeginToken,
                                         kToolCallEndToken,
                                         kToolOutputBeginToken,
                                         kToolOutputEndToken,
                                         kToolSepToken};
    if (kind == TemplateKind::kV31) {
      all.push_back(kThinkToken);
      all.push_back(kThinkEndToken);
    } else {
      all.push_back(kToolOutputsBeginToken);
      all.push_back(kToolOutputsEndToken);
    }
    return all;
  }

  bool is_v31() const { return kind_ == TemplateKind::kV31; }

  // System texts stand at the front wherever they were said; V3.1 adds its tools there.
  void AddSystem(const Conversation& conversation, const std::vector<Turn>& turns,
                 Segments* out) const {
    bool first = true;
    for (const Turn& turn : turns) {
      if (turn.author != Author::kSystem) continue;
      const std::string text = TextOf(*turn.message);
      if (text.empty()) continue;
      if (!first) out->Text("\n\n");
      first = false;
      out->Text(text);
    }
    if (is_v31() && !conversation.tools.empty()) AddTools(conversation.tools, out);
    out->Text(ResponseFormatOf(conversation.constraint));
  }

  void AddTools(const std::vector<ToolDef>& tools, Segments* out) const {
    out->Text("\n\n");
    out->Text(kToolsHead);
    for (const ToolDef& tool : tools) {
      out->Text("\n### " + tool.name + "\nDescription: " + tool.description +
                "\n\nParameters: " + tool.parameters + "\n");
    }
    out->Add(tools_tail_);
  }

  void AddResult(const std::vector<Turn>& turns, size_t index, Segments* out) const {
    const auto is_tool = [&](size_t i) {
      return i < turns.size() && turns[i].author == Author::kTool;
    };
    const bool first = index == 0 || !is_tool(index - 1);
    if (!is_v31()) {
      if (first) {
        tokens_.Put(kToolOutputsBeginToken, out);
      } else {
        out->Text("\n");
      }
    }
    tokens_.Put(kToolOutputBeginToken, out);
    AppendTextOf(*turns[index].message, out);
    tokens_.Put(kToolOutputEndToken, out);
    if (!is_v31() && !is_tool(index + 1)) tokens_.Put(kToolOutputsEndToken, out);
  }

  void AddAssistant(const Message& message, bool after_results, bool thinking,
                    Segments* out) const {
    if (!after_results) {
      tokens_.Put(kAssistantToken, out);
      const bool open = thinking && message.prefix;
      if (open) {
        tokens_.Put(kThinkToken, out);
        if (message.reasoning) out->Text(*message.reasoning);
        if (message.parts.empty()) return;
      }
      if (can_think_) tokens_.Put(kThinkEndToken, out);
    }
    if (is_v31()) {
      AddAfterThinking(message, out);
    } else {
      AppendTextOf(message, out);
    }
    if (!message.calls.empty()) AddCalls(message.calls, out);
    if (!message.prefix) tokens_.Put(kEosToken, out);
  }

  // Some clients send the reasoning back in front of the content.
  static void AddAfterThinking(const Message& message, Segments* out) {
    const bool one = message.parts.size() == 1;  // needs no copy to be looked at
    const std::string joined = one ? std::string() : TextOf(message);
    std::string_view text = one ? std::get<TextPart>(message.parts[0]).text : joined;
    const size_t end = text.rfind(kThinkEndToken);
    if (end != std::string_view::npos) text.remove_prefix(end + kThinkEndToken.size());
    out->Text(text);
  }

  void AddCalls(const std::vector<ToolCall>& calls, Segments* out) const {
    tokens_.Put(kToolCallsBeginToken, out);
    bool first = true;
    for (const ToolCall& call : calls) {
      if (!first && !is_v31()) out->Text("\n");
      first = false;
      tokens_.Put(kToolCallBeginToken, out);
      if (is_v31()) {
        out->Text(call.name);
        tokens_.Put(kToolSepToken, out);
        out->Text(call.arguments);
      } else {
        out->Text("function");
        tokens_.Put(kToolSepToken, out);
        out->Text(call.name + "\n```json\n" + call.arguments + "\n```");
      }
      tokens_.Put(kToolCallEndToken, out);
    }
    tokens_.Put(kToolCallsEndToken, out);
  }

  void AddHeader(const Conversation& conversation, const std::vector<Turn>& turns,
                 Rendered* out) const {
    const Message* last = turns.empty() ? nullptr : turns.back().message;
    out->start = AnswerStart::kContent;
    if (last != nullptr && last->prefix) {
      const bool reasoning = out->thinking && last->parts.empty();
      out->start = reasoning ? AnswerStart::kReasoningContinued : AnswerStart::kContentContinued;
      return;
    }
    if (last == nullptr || last->author != Author::kTool) {
      tokens_.Put(kAssistantToken, &out->segments);
      if (can_think_) tokens_.Put(out->thinking ? kThinkToken : kThinkEndToken, &out->segments);
      if (out->thinking) out->start = AnswerStart::kReasoning;
    }
    if (conversation.tool_choice == ToolChoice::kRequired && !conversation.tools.empty() &&
        out->start == AnswerStart::kContent) {
      tokens_.Put(kToolCallsBeginToken, &out->segments);
      out->start = AnswerStart::kToolCalls;
    }
  }

  ControlTokens tokens_;
  bool can_think_;
  Segments tools_tail_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Template>> MakeV3Template(TemplateKind kind,
                                                               const Vocab& vocab) {
  return std::shared_ptr<const Template>(std::make_shared<V3Template>(kind, vocab));
}

}  // namespace weir::codec
