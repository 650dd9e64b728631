// SPDX-License-Identifier: Apache-2.0
#include "codec/template/v32.h"

#include <string>
#include <vector>

#include "codec/template/control_tokens.h"
#include "codec/template/dsml.h"
#include "codec/template/response_format.h"

namespace weir::codec {
namespace {

// The words that the model was trained on. Spellings of control tokens inside are the tokens.
constexpr std::string_view kToolsHead =
    "## Tools\nYou have access to a set of tools you can use to answer the user's question.\n"
    "You can invoke functions by writing a \"<｜DSML｜function_calls>\" block like the following as "
    "part of your reply to the user:\n<｜DSML｜function_calls>\n"
    "<｜DSML｜invoke name=\"$FUNCTION_NAME\">\n"
    "<｜DSML｜parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE"
    "</｜DSML｜parameter>\n...\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"$FUNCTION_NAME2\">\n...\n"
    "</｜DSML｜invoke>\n</｜DSML｜function_calls>\n"
    "String and scalar parameters should be specified as is without any escaping or quotes, while "
    "lists and objects should use JSON format. The \"string\" attribute should be set to \"true\" "
    "for string type parameters and \"false\" for other types (numbers, booleans, arrays, "
    "objects).\n"
    "If the thinking_mode is enabled, then after function results you should strongly consider "
    "outputting a thinking block. Here is an example:\n<｜DSML｜function_calls>\n...\n"
    "</｜DSML｜function_calls>\n<function_results>\n...\n</function_results>\n"
    "<think>...thinking about results</think>\n"
    "Here are the functions available in JSONSchema format:\n<functions>\n";
constexpr std::string_view kToolsTail = "\n</functions>\n";

constexpr DsmlTags kTags = {"function_calls", "invoke", "parameter"};

class V32Template final : public Template {
 public:
  V32Template(const Vocab& vocab, EarlierReasoning earlier)
      : Template(TemplateKind::kV32),
        tokens_(vocab, {kBosToken, kEosToken, kUserToken, kAssistantToken, kThinkToken,
                        kThinkEndToken, kDsmlToken}),
        can_think_(vocab.FindAdded(kThinkToken) && vocab.FindAdded(kThinkEndToken)),
        keeps_(earlier == EarlierReasoning::kKept),
        tools_head_(tokens_.Compile(kToolsHead)) {
    spelt_out_ = tokens_.missing();
  }

  bool can_think() const override { return can_think_; }

 private:
  void RenderTurns(const Conversation& conversation, std::vector<Turn> turns,
                   Rendered* out) const override {
    out->thinking = can_think_ && conversation.thinking.enabled;
    out->tools = conversation.tools.empty() ? ToolSyntax::kNone : ToolSyntax::kDsml;
    Message joined;
    JoinLeadingSystem(conversation, &turns, &joined);
    // It knows no reminders and one place for a system's words.
    for (size_t i = 0; i < turns.size(); ++i) {
      Author& author = turns[i].author;
      if (author == Author::kReminder || (author == Author::kSystem && i > 0)) {
        author = Author::kUser;
      }
    }
    OrderResults(&turns);
    tokens_.Put(kBosToken, &out->segments);
    AddSystem(conversation, turns, &out->segments);
    const ptrdiff_t thinks_from = keeps_ ? 0 : LastUser(turns);
    for (size_t i = 0; i < turns.size(); ++i) {
      AddTurn(turns, i, out->thinking && static_cast<ptrdiff_t>(i) >= thinks_from,
              &out->segments);
    }
    AddHeader(conversation, turns, out);
  }

  void AddSystem(const Conversation& conversation, const std::vector<Turn>& turns,
                 Segments* out) const {
    if (turns.empty() || turns[0].author != Author::kSystem) return;
    AppendTextOf(*turns[0].message, out);
    if (!conversation.tools.empty()) {
      out->Text("\n\n");
      out->Add(tools_head_);
      AddToolLines(conversation.tools, out);
      out->Text(kToolsTail);
    }
    out->Text(ResponseFormatOf(conversation.constraint));
  }

  // The head of an answer, without the assistant's mark.
  void PutThink(bool thinks, Segments* out) const {
    if (can_think_) tokens_.Put(thinks ? kThinkToken : kThinkEndToken, out);
  }

  void AddTurn(const std::vector<Turn>& turns, size_t index, bool thinks, Segments* out) const {
    const Message& message = *turns[index].message;
    switch (turns[index].author) {
      case Author::kSystem:
      case Author::kReminder:
        return;
      case Author::kUser:
        tokens_.Put(kUserToken, out);
        AppendTextOf(message, out);
        tokens_.Put(kAssistantToken, out);
        PutThink(thinks, out);
        return;
      case Author::kTool:
        AddResult(turns, index, thinks, out);
        return;
      case Author::kAssistant:
        AddAssistant(message, index > 0 && IsTurnOfUser(turns[index - 1]), thinks, out);
        return;
    }
  }

  void AddResult(const std::vector<Turn>& turns, size_t index, bool thinks,
                 Segments* out) const {
    const auto is_result = [&](size_t i) {
      return i < turns.size() && turns[i].author == Author::kTool;
    };
    if (index == 0 || !is_result(index - 1)) out->Text("\n\n<function_results>");
    out->Text("\n<result>");
    AppendTextOf(*turns[index].message, out);
    out->Text("</result>");
    if (is_result(index + 1)) return;
    out->Text("\n</function_results>\n\n");
    PutThink(thinks, out);
  }

  void AddAssistant(const Message& message, bool has_head, bool thinks, Segments* out) const {
    if (!has_head) {
      tokens_.Put(kAssistantToken, out);
      PutThink(thinks, out);
    }
    if (thinks) {
      if (message.reasoning) out->Text(*message.reasoning);
      if (ReasoningOpen(message)) return;
      PutThink(false, out);
    }
    AppendTextOf(message, out);
    if (!message.calls.empty()) AddDsmlCalls(tokens_, kTags, message.calls, out);
    if (!message.prefix) tokens_.Put(kEosToken, out);
  }

  static bool ReasoningOpen(const Message& message) {
    return message.prefix && message.parts.empty() && message.calls.empty() && message.reasoning;
  }

  void AddHeader(const Conversation& conversation, const std::vector<Turn>& turns,
                 Rendered* out) const {
    if (!turns.empty() && turns.back().message->prefix) {
      out->start = out->thinking && ReasoningOpen(*turns.back().message)
                       ? AnswerStart::kReasoningContinued
                       : AnswerStart::kContentContinued;
      return;
    }
    if (turns.empty() || !IsTurnOfUser(turns.back())) {
      tokens_.Put(kAssistantToken, &out->segments);
      PutThink(out->thinking, &out->segments);
    }
    out->start = out->thinking ? AnswerStart::kReasoning : AnswerStart::kContent;
    if (conversation.tool_choice == ToolChoice::kRequired && !conversation.tools.empty() &&
        !out->thinking) {
      OpenDsmlCalls(tokens_, kTags, &out->segments);
      out->start = AnswerStart::kToolCalls;
    }
  }

  ControlTokens tokens_;
  bool can_think_;
  bool keeps_;
  Segments tools_head_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Template>> MakeV32Template(const Vocab& vocab,
                                                                EarlierReasoning earlier) {
  return std::shared_ptr<const Template>(std::make_shared<V32Template>(vocab, earlier));
}

}  // namespace weir::codec
