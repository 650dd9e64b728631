// SPDX-License-Identifier: Apache-2.0
#include "codec/template/v41.h"

#include <algorithm>
#include <string>
#include <vector>

#include "codec/template/control_tokens.h"
#include "codec/template/dsml.h"
#include "codec/template/response_format.h"

namespace weir::codec {
namespace {

// The words that the models were trained on. Spellings of control tokens inside are the tokens.
constexpr std::string_view kToolsHead41 =
    "## Tools\n\nYou have access to a set of tools to help answer the user's question. You can "
    "invoke tools by writing a \"<｜DSML｜ calls>\" block like the following:\n\n"
    "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"$TOOL_NAME\">\n"
    "<｜DSML｜ parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE"
    "</｜DSML｜ parameter>\n...\n</｜DSML｜ invoke>\n<｜DSML｜ invoke name=\"$TOOL_NAME2\">\n...\n"
    "</｜DSML｜ invoke>\n</｜DSML｜ calls>\n\n"
    "String parameters should be specified as is and set `string=\"true\"`. For all other types "
    "(numbers, booleans, arrays, objects), pass the value in JSON format and set "
    "`string=\"false\"`.\n\n"
    "If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning "
    "inside <think>...</think> BEFORE any tool calls or final response.\n\n"
    "Otherwise, output directly after </think> with tool calls or final response.\n\n"
    "### Available Tool Schemas\n\n";
constexpr std::string_view kToolsHead4 =
    "## Tools\n\nYou have access to a set of tools to help answer the user's question. You can "
    "invoke tools by writing a \"<｜DSML｜tool_calls>\" block like the following:\n\n"
    "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"$TOOL_NAME\">\n"
    "<｜DSML｜parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE"
    "</｜DSML｜parameter>\n...\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"$TOOL_NAME2\">\n...\n"
    "</｜DSML｜invoke>\n</｜DSML｜tool_calls>\n\n"
    "String parameters should be specified as is and set `string=\"true\"`. For all other types "
    "(numbers, booleans, arrays, objects), pass the value in JSON format and set "
    "`string=\"false\"`.\n\n"
    "If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning "
    "inside <think>...</think> BEFORE any tool calls or final response.\n\n"
    "Otherwise, output directly after </think> with tool calls or final response.\n\n"
    "### Available Tool Schemas\n\n";
constexpr std::string_view kToolsTail =
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool "
    "calls.\n";
constexpr std::string_view kEffortA =
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to "
    "resolve the root cause, rigorously stress-testing your logic against all potential paths, "
    "edge cases, and adversarial scenarios.\n"
    "Explicitly write out your entire deliberation process, documenting every intermediate step, "
    "considered alternative, and rejected hypothesis to ensure absolutely no assumption is left "
    "unchecked.\n\n";
constexpr std::string_view kEffortB =
    "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n"
    "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: "
    "exhaustively decompose the problem into its most fundamental components, trace every causal "
    "chain to its root, and resolve the underlying cause rather than any surface symptom.\n"
    "Do not stop reasoning until you have independently verified the solution from multiple angles "
    "and are certain that no assumption remains unchecked and no error remains undiscovered.\n\n";

constexpr DsmlTags kTags41 = {" calls", " invoke", " parameter"};
constexpr DsmlTags kTags4 = {"tool_calls", "invoke", "parameter"};

// The levels of the released encoder; Medium is the API's name for its default.
int LevelOf(const Thinking& thinking) {
  if (thinking.effort_level) return *thinking.effort_level;
  switch (thinking.effort) {
    case Effort::kLow:
      return 50;
    case Effort::kMax:
      return 100;
    default:
      return 75;
  }
}

class V4Template final : public Template {
 public:
  V4Template(TemplateKind kind, const Vocab& vocab, EarlierReasoning earlier)
      : Template(kind),
        tokens_(vocab, Spellings(kind)),
        tags_(kind == TemplateKind::kV41 ? kTags41 : kTags4),
        can_think_(vocab.FindAdded(kThinkToken) && vocab.FindAdded(kThinkEndToken)),
        drops_(earlier == EarlierReasoning::kDropped),
        tools_head_(tokens_.Compile(kind == TemplateKind::kV41 ? kToolsHead41 : kToolsHead4)) {
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
    for (size_t i = 1; i < turns.size() && !is_v41(); ++i) {
      if (turns[i].author == Author::kSystem) turns[i].author = Author::kUser;
    }
    OrderResults(&turns);
    Segments* segments = &out->segments;
    tokens_.Put(kBosToken, segments);
    AddPreamble(conversation, turns, out->thinking, segments);
    // Reasoning of earlier turns is dropped as the released encoder can: never among tools.
    const ptrdiff_t reasons_after =
        drops_ && conversation.tools.empty() ? std::max<ptrdiff_t>(LastUser(turns), 0) : 0;
    for (size_t i = 0; i < turns.size(); ++i) {
      const bool reasons = out->thinking && static_cast<ptrdiff_t>(i) > reasons_after;
      AddTurn(turns, i, reasons, segments);
    }
    AddHeader(conversation, turns, out);
  }

  static std::vector<std::string_view> Spellings(TemplateKind kind) {
    std::vector<std::string_view> all = {kBosToken,     kEosToken,      kUserToken, kAssistantToken,
                                         kThinkToken,   kThinkEndToken, kDsmlToken,
                                         kReminderToken};
    if (kind == TemplateKind::kV41) all.push_back(kSystemToken);
    return all;
  }

  bool is_v41() const { return kind_ == TemplateKind::kV41; }

  void AddEffort(const Thinking& thinking, Segments* out) const {
    if (is_v41()) {
      out->Text("Reasoning Effort: " + std::to_string(LevelOf(thinking)) +
                " (range 1-100, the higher the value, the more thorough the reasoning)\n\n");
    } else if (thinking.effort == Effort::kMax) {
      out->Text(kEffortB);
    } else if (thinking.effort != Effort::kLow) {
      out->Text(kEffortA);
    }
  }

  // Everything up to the end of the first system message.
  void AddPreamble(const Conversation& conversation, const std::vector<Turn>& turns,
                   bool thinking, Segments* out) const {
    const bool system = !turns.empty() && turns[0].author == Author::kSystem;
    if (is_v41() && (system || thinking)) tokens_.Put(kSystemToken, out);
    if (thinking) AddEffort(conversation.thinking, out);
    if (!system) return;
    AppendTextOf(*turns[0].message, out);
    if (!conversation.tools.empty()) {
      out->Text("\n\n");
      out->Add(tools_head_);
      AddToolLines(conversation.tools, out);
      out->Text(kToolsTail);
    }
    out->Text(ResponseFormatOf(conversation.constraint));
  }

  void AddTurn(const std::vector<Turn>& turns, size_t index, bool reasons, Segments* out) const {
    const Author author = turns[index].author;
    const Message& message = *turns[index].message;
    switch (author) {
      case Author::kSystem:
        if (index == 0) return;  // part of the preamble
        tokens_.Put(kSystemToken, out);
        AppendTextOf(message, out);
        return;
      case Author::kReminder:
        tokens_.Put(kReminderToken, out);
        AppendTextOf(message, out);
        return;
      case Author::kUser:
      case Author::kTool:
        if (index > 0 && IsTurnOfUser(turns[index - 1])) {
          out->Text("\n\n");
        } else {
          tokens_.Put(kUserToken, out);
        }
        if (author == Author::kTool) out->Text("<tool_result>");
        AppendTextOf(message, out);
        if (author == Author::kTool) out->Text("</tool_result>");
        return;
      case Author::kAssistant:
        AddAssistant(message, reasons, out);
        return;
    }
  }

  void AddAssistant(const Message& message, bool reasons, Segments* out) const {
    tokens_.Put(kAssistantToken, out);
    const bool reasoning_open = message.prefix && message.parts.empty() && message.reasoning &&
                                message.calls.empty() && reasons;
    if (reasons) {
      tokens_.Put(kThinkToken, out);
      if (message.reasoning) out->Text(*message.reasoning);
    }
    if (reasoning_open) return;
    if (can_think_) tokens_.Put(kThinkEndToken, out);
    AppendTextOf(message, out);
    if (!message.calls.empty()) AddDsmlCalls(tokens_, tags_, message.calls, out);
    if (!message.prefix) tokens_.Put(kEosToken, out);
  }

  // The head of the answer, unless a prefix is being continued.
  void AddHeader(const Conversation& conversation, const std::vector<Turn>& turns,
                 Rendered* out) const {
    if (!turns.empty() && turns.back().message->prefix) {
      const Message& last = *turns.back().message;
      const bool reasoning =
          out->thinking && turns.size() > 1 && last.parts.empty() && last.reasoning;
      out->start = reasoning ? AnswerStart::kReasoningContinued : AnswerStart::kContentContinued;
      return;
    }
    tokens_.Put(kAssistantToken, &out->segments);
    if (can_think_) tokens_.Put(out->thinking ? kThinkToken : kThinkEndToken, &out->segments);
    out->start = out->thinking ? AnswerStart::kReasoning : AnswerStart::kContent;
    if (conversation.tool_choice == ToolChoice::kRequired && !conversation.tools.empty() &&
        !out->thinking) {
      OpenDsmlCalls(tokens_, tags_, &out->segments);
      out->start = AnswerStart::kToolCalls;
    }
  }

  ControlTokens tokens_;
  DsmlTags tags_;
  bool can_think_;
  bool drops_;
  Segments tools_head_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Template>> MakeV4Template(TemplateKind kind,
                                                               const Vocab& vocab,
                                                               EarlierReasoning earlier) {
  return std::shared_ptr<const Template>(std::make_shared<V4Template>(kind, vocab, earlier));
}

}  // namespace weir::codec
