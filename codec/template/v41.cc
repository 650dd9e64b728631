// SPDX-License-Identifier: Apache-2.0
#include "codec/template/v41.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/stdx/status.h"
#include "codec/conversation/json_text.h"
#include "codec/template/control_tokens.h"
#include "codec/template/response_format.h"

namespace weir::codec {
namespace {

// The words that the models were trained on. Spellings of control tokens inside are the tokens.
struct Words {
  std::string_view calls;      // tag names, after the DSML mark
  std::string_view invoke;
  std::string_view parameter;
  std::string_view tools_head;
};

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

constexpr Words kWords41 = {" calls", " invoke", " parameter", kToolsHead41};
constexpr Words kWords4 = {"tool_calls", "invoke", "parameter", kToolsHead4};

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

bool IsTurnOfUser(const Message& message) {
  return message.author == Author::kUser || message.author == Author::kTool;
}

bool IsEmptySystem(const Message& message) {
  return message.author == Author::kSystem && TextOf(message).empty();
}

Message SystemOf(std::string text) {
  Message message;
  message.author = Author::kSystem;
  message.parts.emplace_back(TextPart{std::move(text)});
  return message;
}

// Within each run of user and tool messages the results take the order of the calls before it.
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

class V4Template final : public Template {
 public:
  V4Template(TemplateKind kind, const Vocab& vocab)
      : Template(kind),
        tokens_(vocab, Spellings(kind)),
        words_(kind == TemplateKind::kV41 ? kWords41 : kWords4),
        can_think_(vocab.FindAdded(kThinkToken) && vocab.FindAdded(kThinkEndToken)),
        tools_head_(tokens_.Compile(words_.tools_head)) {
    spelt_out_ = tokens_.missing();
  }

  bool can_think() const override { return can_think_; }

  absl::StatusOr<Rendered> Render(const Conversation& conversation) const override {
    for (const Message& message : conversation.messages) {
      for (const Part& part : message.parts) {
        if (std::holds_alternative<ImagePart>(part)) {
          return Error(Reason::kBadField, "this model does not take images here", "messages");
        }
      }
    }
    Rendered out;
    out.thinking = can_think_ && conversation.thinking.enabled;
    out.tools = conversation.tools.empty() ? ToolSyntax::kNone : ToolSyntax::kDsml;
    const std::vector<Message> messages = Normalise(conversation);
    Segments* segments = &out.segments;
    tokens_.Put(kBosToken, segments);
    AddPreamble(conversation, messages, out.thinking, segments);
    for (size_t i = 0; i < messages.size(); ++i) AddMessage(messages, i, out.thinking, segments);
    AddHeader(conversation, messages, &out);
    return out;
  }

 private:
  static std::vector<std::string_view> Spellings(TemplateKind kind) {
    std::vector<std::string_view> all = {kBosToken,     kEosToken,      kUserToken, kAssistantToken,
                                         kThinkToken,   kThinkEndToken, kDsmlToken,
                                         kReminderToken};
    if (kind == TemplateKind::kV41) all.push_back(kSystemToken);
    return all;
  }

  bool is_v41() const { return kind_ == TemplateKind::kV41; }

  // Leading system messages become one, which also carries tools and format; later ones stay
  // (V4.1) or speak as the user (V4). Empty ones vanish.
  std::vector<Message> Normalise(const Conversation& conversation) const {
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
      if (message.author == Author::kSystem && !is_v41()) messages.back().author = Author::kUser;
    }
    const bool json = conversation.constraint.kind != ConstraintKind::kNone;
    if (!system.empty() || !conversation.tools.empty() || json) {
      messages.insert(messages.begin(), SystemOf(std::move(system)));
    }
    OrderResults(&messages);
    return messages;
  }

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
  void AddPreamble(const Conversation& conversation, const std::vector<Message>& messages,
                   bool thinking, Segments* out) const {
    const bool system = !messages.empty() && messages[0].author == Author::kSystem;
    if (is_v41() && (system || thinking)) tokens_.Put(kSystemToken, out);
    if (thinking) AddEffort(conversation.thinking, out);
    if (!system) return;
    out->Text(TextOf(messages[0]));
    if (!conversation.tools.empty()) AddTools(conversation.tools, out);
    out->Text(ResponseFormatOf(conversation.constraint));
  }

  void AddTools(const std::vector<ToolDef>& tools, Segments* out) const {
    out->Text("\n\n");
    out->Add(tools_head_);
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
    out->Text(kToolsTail);
  }

  void AddMessage(const std::vector<Message>& messages, size_t index, bool thinking,
                  Segments* out) const {
    const Message& message = messages[index];
    switch (message.author) {
      case Author::kSystem:
        if (index == 0) return;  // part of the preamble
        tokens_.Put(kSystemToken, out);
        out->Text(TextOf(message));
        return;
      case Author::kReminder:
        tokens_.Put(kReminderToken, out);
        out->Text(TextOf(message));
        return;
      case Author::kUser:
      case Author::kTool:
        if (index > 0 && IsTurnOfUser(messages[index - 1])) {
          out->Text("\n\n");
        } else {
          tokens_.Put(kUserToken, out);
        }
        if (message.author == Author::kTool) out->Text("<tool_result>");
        out->Text(TextOf(message));
        if (message.author == Author::kTool) out->Text("</tool_result>");
        return;
      case Author::kAssistant:
        AddAssistant(message, thinking && index > 0, out);
        return;
    }
  }

  void AddAssistant(const Message& message, bool thinking, Segments* out) const {
    tokens_.Put(kAssistantToken, out);
    const bool reasoning_open = message.prefix && message.parts.empty() && message.reasoning &&
                                message.calls.empty() && thinking;
    if (thinking) {
      tokens_.Put(kThinkToken, out);
      out->Text(message.reasoning.value_or(""));
    }
    if (reasoning_open) return;
    if (can_think_) tokens_.Put(kThinkEndToken, out);
    out->Text(TextOf(message));
    if (!message.calls.empty()) AddCalls(message.calls, out);
    if (!message.prefix) tokens_.Put(kEosToken, out);
  }

  void Open(std::string_view tag, Segments* out) const {
    out->Text("<");
    tokens_.Put(kDsmlToken, out);
    out->Text(tag);
  }
  void Close(std::string_view tag, Segments* out) const {
    out->Text("</");
    tokens_.Put(kDsmlToken, out);
    out->Text(tag);
    out->Text(">");
  }

  void AddCalls(const std::vector<ToolCall>& calls, Segments* out) const {
    out->Text("\n\n");
    Open(words_.calls, out);
    out->Text(">\n");
    for (const ToolCall& call : calls) {
      Open(words_.invoke, out);
      out->Text(" name=\"" + call.name + "\">\n");
      AddArguments(call.arguments, out);
      out->Text("\n");
      Close(words_.invoke, out);
      out->Text("\n");
    }
    Close(words_.calls, out);
  }

  void AddArguments(const std::string& arguments, Segments* out) const {
    auto members = JsonMembers(arguments);
    if (!members.ok()) {
      members = std::vector<JsonMember>{{"arguments", true, arguments}};
    }
    bool first = true;
    for (const JsonMember& member : *members) {
      if (!first) out->Text("\n");
      first = false;
      Open(words_.parameter, out);
      out->Text(" name=\"" + member.key + "\" string=\"" +
                (member.is_string ? "true" : "false") + "\">" + member.value);
      Close(words_.parameter, out);
    }
  }

  // The head of the answer, unless a prefix is being continued.
  void AddHeader(const Conversation& conversation, const std::vector<Message>& messages,
                 Rendered* out) const {
    if (!messages.empty() && messages.back().prefix) {
      const Message& last = messages.back();
      const bool reasoning =
          out->thinking && messages.size() > 1 && last.parts.empty() && last.reasoning;
      out->start = reasoning ? AnswerStart::kReasoningContinued : AnswerStart::kContentContinued;
      return;
    }
    tokens_.Put(kAssistantToken, &out->segments);
    if (can_think_) tokens_.Put(out->thinking ? kThinkToken : kThinkEndToken, &out->segments);
    out->start = out->thinking ? AnswerStart::kReasoning : AnswerStart::kContent;
    if (conversation.tool_choice == ToolChoice::kRequired && !conversation.tools.empty() &&
        !out->thinking) {
      out->segments.Text("\n\n");
      Open(words_.calls, &out->segments);
      out->segments.Text(">\n");
      out->start = AnswerStart::kToolCalls;
    }
  }

  ControlTokens tokens_;
  Words words_;
  bool can_think_;
  Segments tools_head_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Template>> MakeV4Template(TemplateKind kind,
                                                               const Vocab& vocab) {
  return std::shared_ptr<const Template>(std::make_shared<V4Template>(kind, vocab));
}

}  // namespace weir::codec
