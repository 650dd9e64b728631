// SPDX-License-Identifier: Apache-2.0
#include "codec/template/v32.h"

#include <string>
#include <vector>

#include "base/stdx/status.h"
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

  absl::StatusOr<Rendered> Render(const Conversation& conversation) const override {
    WEIR_TRY(RefuseImages(conversation.messages));
    Rendered out;
    out.thinking = can_think_ && conversation.thinking.enabled;
    out.tools = conversation.tools.empty() ? ToolSyntax::kNone : ToolSyntax::kDsml;
    std::vector<Message> messages = JoinLeadingSystem(conversation);
    // It knows no reminders and one place for a system's words.
    for (size_t i = 0; i < messages.size(); ++i) {
      Author& author = messages[i].author;
      if (author == Author::kReminder || (author == Author::kSystem && i > 0)) {
        author = Author::kUser;
      }
    }
    OrderResults(&messages);
    tokens_.Put(kBosToken, &out.segments);
    AddSystem(conversation, messages, &out.segments);
    const ptrdiff_t thinks_from = keeps_ ? 0 : LastUser(messages);
    for (size_t i = 0; i < messages.size(); ++i) {
      AddMessage(messages, i, out.thinking && static_cast<ptrdiff_t>(i) >= thinks_from,
                 &out.segments);
    }
    AddHeader(conversation, messages, &out);
    return out;
  }

 private:
  void AddSystem(const Conversation& conversation, const std::vector<Message>& messages,
                 Segments* out) const {
    if (messages.empty() || messages[0].author != Author::kSystem) return;
    out->Text(TextOf(messages[0]));
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

  void AddMessage(const std::vector<Message>& messages, size_t index, bool thinks,
                  Segments* out) const {
    const Message& message = messages[index];
    switch (message.author) {
      case Author::kSystem:
      case Author::kReminder:
        return;
      case Author::kUser:
        tokens_.Put(kUserToken, out);
        out->Text(TextOf(message));
        tokens_.Put(kAssistantToken, out);
        PutThink(thinks, out);
        return;
      case Author::kTool:
        AddResult(messages, index, thinks, out);
        return;
      case Author::kAssistant:
        AddAssistant(message, index > 0 && IsTurnOfUser(messages[index - 1]), thinks, out);
        return;
    }
  }

  void AddResult(const std::vector<Message>& messages, size_t index, bool thinks,
                 Segments* out) const {
    const auto is_result = [&](size_t i) {
      return i < messages.size() && messages[i].author == Author::kTool;
    };
    if (index == 0 || !is_result(index - 1)) out->Text("\n\n<function_results>");
    out->Text("\n<result>" + TextOf(messages[index]) + "</result>");
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
      out->Text(message.reasoning.value_or(""));
      if (ReasoningOpen(message)) return;
      PutThink(false, out);
    }
    out->Text(TextOf(message));
    if (!message.calls.empty()) AddDsmlCalls(tokens_, kTags, message.calls, out);
    if (!message.prefix) tokens_.Put(kEosToken, out);
  }

  static bool ReasoningOpen(const Message& message) {
    return message.prefix && message.parts.empty() && message.calls.empty() && message.reasoning;
  }

  void AddHeader(const Conversation& conversation, const std::vector<Message>& messages,
                 Rendered* out) const {
    if (!messages.empty() && messages.back().prefix) {
      out->start = out->thinking && ReasoningOpen(messages.back())
                       ? AnswerStart::kReasoningContinued
                       : AnswerStart::kContentContinued;
      return;
    }
    if (messages.empty() || !IsTurnOfUser(messages.back())) {
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
