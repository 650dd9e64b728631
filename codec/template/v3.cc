// SPDX-License-Identifier: Apache-2.0
#include "codec/template/v3.h"

#include <string>
#include <vector>

#include "base/stdx/status.h"
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

  absl::StatusOr<Rendered> Render(const Conversation& conversation) const override {
    Rendered out;
    out.thinking = can_think_ && conversation.thinking.enabled;
    if (!conversation.tools.empty()) {
      out.tools = is_v31() ? ToolSyntax::kV31Tokens : ToolSyntax::kV3Tokens;
    }
    tokens_.Put(kBosToken, &out.segments);
    AddSystem(conversation, &out.segments);
    bool after_results = false;
    const auto& messages = conversation.messages;
    for (size_t i = 0; i < messages.size(); ++i) {
      for (const Part& part : messages[i].parts) {
        if (std::holds_alternative<ImagePart>(part)) {
          return Error(Reason::kBadField, "this model does not take images", "messages");
        }
      }
      if (messages[i].author == Author::kTool) {
        AddResult(messages, i, &out.segments);
        after_results = true;
      } else if (messages[i].author == Author::kAssistant) {
        AddAssistant(messages[i], after_results, out.thinking, &out.segments);
        after_results = false;
      } else if (messages[i].author != Author::kSystem) {
        tokens_.Put(kUserToken, &out.segments);
        out.segments.Text(TextOf(messages[i]));
        after_results = false;
      }
    }
    AddHeader(conversation, &out);
    return out;
  }

 private:
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
  void AddSystem(const Conversation& conversation, Segments* out) const {
    bool first = true;
    for (const Message& message : conversation.messages) {
      if (message.author != Author::kSystem) continue;
      const std::string text = TextOf(message);
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

  void AddResult(const std::vector<Message>& messages, size_t index, Segments* out) const {
    const auto is_tool = [&](size_t i) {
      return i < messages.size() && messages[i].author == Author::kTool;
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
    out->Text(TextOf(messages[index]));
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
        out->Text(message.reasoning.value_or(""));
        if (message.parts.empty()) return;
      }
      if (can_think_) tokens_.Put(kThinkEndToken, out);
    }
    std::string text = TextOf(message);
    if (const size_t end = text.rfind(kThinkEndToken); end != std::string::npos && is_v31()) {
      text.erase(0, end + kThinkEndToken.size());
    }
    out->Text(text);
    if (!message.calls.empty()) AddCalls(message.calls, out);
    if (!message.prefix) tokens_.Put(kEosToken, out);
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

  void AddHeader(const Conversation& conversation, Rendered* out) const {
    const auto& messages = conversation.messages;
    const Message* last = messages.empty() ? nullptr : &messages.back();
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
