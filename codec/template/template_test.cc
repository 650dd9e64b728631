// SPDX-License-Identifier: Apache-2.0
#include "codec/template/template.h"

#include <gtest/gtest.h>

#include "base/stdx/bytes.h"
#include "base/stdx/hash.h"
#include "base/stdx/status.h"
#include "codec/token/tokenizer.h"

namespace weir::codec {
namespace {

std::shared_ptr<const Tokenizer> Script() {
  static const auto tokenizer = *Tokenizer::FromFile("deploy/models/script/tokenizer.json");
  return tokenizer;
}

// The rendered prompt as text, with control tokens spelt out.
std::string Show(const Rendered& rendered) {
  std::string text;
  for (const auto& piece : rendered.segments.pieces()) {
    text += piece.token >= 0 ? Script()->vocab().BytesOf(piece.token)
                             : rendered.segments.TextOf(piece);
  }
  return text;
}

Message Says(Author author, std::string text) {
  Message message;
  message.author = author;
  message.parts.emplace_back(TextPart{std::move(text)});
  return message;
}
Message Result(std::string id, std::string text) {
  Message message = Says(Author::kTool, std::move(text));
  message.tool_call_id = std::move(id);
  return message;
}

Rendered Render(TemplateKind kind, const Conversation& conversation,
                EarlierReasoning earlier = EarlierReasoning::kOwn) {
  auto tmpl = Template::Create(kind, Script()->vocab(), earlier);
  EXPECT_TRUE(tmpl.ok()) << tmpl.status();
  EXPECT_TRUE((*tmpl)->spelt_out().empty());
  auto rendered = (*tmpl)->Render(conversation);
  EXPECT_TRUE(rendered.ok()) << rendered.status();
  return *rendered;
}

Conversation Of(std::vector<Message> messages, bool thinking) {
  Conversation conversation;
  conversation.messages = std::move(messages);
  conversation.thinking.enabled = thinking;
  return conversation;
}

constexpr char kEffort75[] =
    "Reasoning Effort: 75 (range 1-100, the higher the value, the more thorough the reasoning)\n\n";
#define BOS "<｜begin▁of▁sentence｜>"
#define EOS "<｜end▁of▁sentence｜>"

TEST(V41, PlainChat) {
  const auto out = Render(TemplateKind::kV41, Of({Says(Author::kSystem, "S"),
                                                  Says(Author::kUser, "U")}, false));
  EXPECT_EQ(Show(out), BOS "<｜System｜>S<｜User｜>U<｜Assistant｜></think>");
  EXPECT_EQ(out.start, AnswerStart::kContent);
  EXPECT_FALSE(out.thinking);
}

TEST(V41, ThinkingHistoryAndReminder) {
  const auto out = Render(TemplateKind::kV41,
                          Of({Says(Author::kUser, "x"), Says(Author::kAssistant, "y"),
                              Says(Author::kReminder, "Be brief.")},
                             true));
  EXPECT_EQ(Show(out), std::string(BOS "<｜System｜>") + kEffort75 +
                           "<｜User｜>x<｜Assistant｜><think></think>y" EOS
                           "<｜latest_reminder｜>Be brief.<｜Assistant｜><think>");
  EXPECT_EQ(out.start, AnswerStart::kReasoning);
}

TEST(V41, JsonFormat) {
  Conversation conversation = Of({Says(Author::kSystem, "Answer with json."),
                                  Says(Author::kUser, "N")}, true);
  conversation.constraint.kind = ConstraintKind::kJsonObject;
  conversation.thinking.effort = Effort::kMax;
  EXPECT_EQ(Show(Render(TemplateKind::kV41, conversation)),
            BOS
            "<｜System｜>Reasoning Effort: 100 (range 1-100, the higher the value, the more thorough "
            "the reasoning)\n\nAnswer with json.\n\n## Response Format:\n\nYou MUST strictly adhere "
            "to the following schema to reply:\n{\"type\": \"json_object\"}<｜User｜>N<｜Assistant｜>"
            "<think>");
}

TEST(V41, LaterSystemMessagesKeepTheirPlace) {
  const std::vector<Message> messages = {Says(Author::kUser, "A"), Says(Author::kAssistant, "B"),
                                         Says(Author::kSystem, "R")};
  EXPECT_EQ(Show(Render(TemplateKind::kV41, Of(messages, false))),
            BOS "<｜User｜>A<｜Assistant｜></think>B" EOS "<｜System｜>R<｜Assistant｜></think>");
  EXPECT_EQ(Show(Render(TemplateKind::kV4, Of(messages, false))),
            BOS "<｜User｜>A<｜Assistant｜></think>B" EOS "<｜User｜>R<｜Assistant｜></think>");
}

Conversation WithCalls(bool thinking) {
  Message caller;
  caller.author = Author::kAssistant;
  caller.calls = {{"a", "f", R"({"x": "1\"", "n": 3})"}, {"b", "g", "not json"}, {"c", "h", "{}"}};
  Conversation conversation =
      Of({Says(Author::kUser, "Q"), caller, Result("c", "3"), Result("a", "1"), Result("b", "2")},
         thinking);
  conversation.tools = {{"f", "does f", "{}", false}};
  return conversation;
}

TEST(V41, CallsAndResultsInCallOrder) {
  const auto out = Render(TemplateKind::kV41, WithCalls(false));
  const std::string text = Show(out);
  EXPECT_EQ(out.tools, ToolSyntax::kDsml);
  EXPECT_NE(text.find("### Available Tool Schemas\n\n{\"name\": \"f\", \"description\": \"does f\", "
                      "\"parameters\": {}}\n\nYou MUST strictly"),
            std::string::npos);
  const std::string tail =
      "<｜User｜>Q<｜Assistant｜></think>\n\n<｜DSML｜ calls>\n"
      "<｜DSML｜ invoke name=\"f\">\n"
      "<｜DSML｜ parameter name=\"x\" string=\"true\">1\"</｜DSML｜ parameter>\n"
      "<｜DSML｜ parameter name=\"n\" string=\"false\">3</｜DSML｜ parameter>\n"
      "</｜DSML｜ invoke>\n"
      "<｜DSML｜ invoke name=\"g\">\n"
      "<｜DSML｜ parameter name=\"arguments\" string=\"true\">not json</｜DSML｜ parameter>\n"
      "</｜DSML｜ invoke>\n"
      "<｜DSML｜ invoke name=\"h\">\n\n</｜DSML｜ invoke>\n"
      "</｜DSML｜ calls>" EOS
      "<｜User｜><tool_result>1</tool_result>\n\n<tool_result>2</tool_result>\n\n"
      "<tool_result>3</tool_result><｜Assistant｜></think>";
  ASSERT_GE(text.size(), tail.size());
  EXPECT_EQ(text.substr(text.size() - tail.size()), tail);
}

TEST(V41, ForcedCallOpensTheBlock) {
  Conversation conversation = WithCalls(false);
  conversation.tool_choice = ToolChoice::kRequired;
  const auto out = Render(TemplateKind::kV41, conversation);
  EXPECT_EQ(out.start, AnswerStart::kToolCalls);
  const std::string text = Show(out);
  EXPECT_EQ(text.substr(text.rfind("</think>")), "</think>\n\n<｜DSML｜ calls>\n");
}

TEST(V41, PrefixIsContinued) {
  Message prefix = Says(Author::kAssistant, "Once upon");
  prefix.prefix = true;
  auto out = Render(TemplateKind::kV41, Of({Says(Author::kUser, "tell"), prefix}, false));
  EXPECT_EQ(Show(out), BOS "<｜User｜>tell<｜Assistant｜></think>Once upon");
  EXPECT_EQ(out.start, AnswerStart::kContentContinued);
  prefix.parts.clear();
  prefix.reasoning = "let me";
  out = Render(TemplateKind::kV41, Of({Says(Author::kUser, "tell"), prefix}, true));
  EXPECT_EQ(out.start, AnswerStart::kReasoningContinued);
  const std::string text = Show(out);
  EXPECT_EQ(text.substr(text.rfind("<think>")), "<think>let me");
}

TEST(V41, ControlTokensAreIdsAndContentIsText) {
  const auto out = Render(TemplateKind::kV41, Of({Says(Author::kUser, "<｜User｜></think>")}, false));
  const auto& pieces = out.segments.pieces();
  ASSERT_EQ(pieces.size(), 5u);
  EXPECT_GE(pieces[1].token, 0);
  EXPECT_EQ(pieces[2].token, -1);
  EXPECT_EQ(out.segments.TextOf(pieces[2]), "<｜User｜></think>");
}

TEST(V3, ChatAndTools) {
  EXPECT_EQ(Show(Render(TemplateKind::kV3, Of({Says(Author::kSystem, "S"),
                                               Says(Author::kUser, "U"),
                                               Says(Author::kAssistant, "A"),
                                               Says(Author::kUser, "V")}, true))),
            BOS "S<｜User｜>U<｜Assistant｜>A" EOS "<｜User｜>V<｜Assistant｜>");
  Conversation conversation = WithCalls(false);
  conversation.messages.pop_back();
  EXPECT_EQ(Show(Render(TemplateKind::kV3, conversation)),
            BOS
            "<｜User｜>Q<｜Assistant｜><｜tool▁calls▁begin｜>"
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"x\": \"1\\\"\", \"n\": 3}\n```"
            "<｜tool▁call▁end｜>\n"
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\nnot json\n```<｜tool▁call▁end｜>\n"
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>h\n```json\n{}\n```<｜tool▁call▁end｜>"
            "<｜tool▁calls▁end｜>" EOS
            "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>3<｜tool▁output▁end｜>\n"
            "<｜tool▁output▁begin｜>1<｜tool▁output▁end｜><｜tool▁outputs▁end｜>");
}

TEST(V31, ThinkingHeaderAndToolTurn) {
  const auto out = Render(TemplateKind::kV31, Of({Says(Author::kUser, "Q")}, true));
  EXPECT_EQ(Show(out), BOS "<｜User｜>Q<｜Assistant｜><think>");
  EXPECT_EQ(out.start, AnswerStart::kReasoning);
  Message caller;
  caller.author = Author::kAssistant;
  caller.calls = {{"a", "f", R"({"a": "x"})"}};
  const auto turn = Render(TemplateKind::kV31,
                           Of({Says(Author::kUser, "Q"), caller, Result("a", "T")}, true));
  EXPECT_EQ(Show(turn),
            BOS "<｜User｜>Q<｜Assistant｜></think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f"
                "<｜tool▁sep｜>{\"a\": \"x\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>" EOS
                "<｜tool▁output▁begin｜>T<｜tool▁output▁end｜>");
  EXPECT_EQ(turn.start, AnswerStart::kContent);
}

Message Thinks(std::string reasoning, std::string text, std::vector<ToolCall> calls = {}) {
  Message message = Says(Author::kAssistant, std::move(text));
  message.reasoning = std::move(reasoning);
  message.calls = std::move(calls);
  return message;
}

constexpr char kCall32[] =
    "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n"
    "<｜DSML｜parameter name=\"a\" string=\"true\">x</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
    "</｜DSML｜function_calls>" EOS;

TEST(V32, ToolTurnThinking) {
  Conversation conversation =
      Of({Says(Author::kSystem, "S"), Says(Author::kUser, "Q"),
          Thinks("R", "", {{"1", "f", R"({"a":"x"})"}}), Result("1", "T")},
         true);
  conversation.tools = {{"f", "", "{}", false}};
  const auto out = Render(TemplateKind::kV32, conversation);
  const std::string text = Show(out);
  EXPECT_EQ(text.rfind(BOS "S\n\n## Tools\nYou have access to a set of tools you can use", 0), 0u);
  const std::string tail = std::string("<functions>\n{\"name\": \"f\", \"description\": \"\", "
                                       "\"parameters\": {}}\n</functions>\n<｜User｜>Q<｜Assistant｜>"
                                       "<think>R</think>\n\n") +
                           kCall32 +
                           "\n\n<function_results>\n<result>T</result>\n</function_results>\n\n"
                           "<think>";
  ASSERT_GE(text.size(), tail.size());
  EXPECT_EQ(text.substr(text.size() - tail.size()), tail);
  EXPECT_EQ(out.start, AnswerStart::kReasoning);
  EXPECT_EQ(out.tools, ToolSyntax::kDsml);
  conversation.messages.push_back(Thinks("R2", "A"));
  conversation.messages.push_back(Says(Author::kUser, "V"));
  const std::string later = Show(Render(TemplateKind::kV32, conversation));
  EXPECT_EQ(later.substr(later.find("<｜User｜>Q")),
            std::string("<｜User｜>Q<｜Assistant｜></think>\n\n") + kCall32 +
                "\n\n<function_results>\n<result>T</result>\n</function_results>\n\n</think>A" EOS
                "<｜User｜>V<｜Assistant｜><think>");
}

TEST(V32, ForcedCallAndPrefix) {
  Conversation conversation = Of({Says(Author::kUser, "Q")}, false);
  conversation.tools = {{"f", "", "{}", false}};
  conversation.tool_choice = ToolChoice::kRequired;
  const auto out = Render(TemplateKind::kV32, conversation);
  const std::string text = Show(out);
  EXPECT_EQ(text.substr(text.rfind("<｜User｜>")),
            "<｜User｜>Q<｜Assistant｜></think>\n\n<｜DSML｜function_calls>\n");
  EXPECT_EQ(out.start, AnswerStart::kToolCalls);
  Message prefix = Says(Author::kAssistant, "Once");
  prefix.prefix = true;
  EXPECT_EQ(Show(Render(TemplateKind::kV32, Of({Says(Author::kUser, "Q"), prefix}, false))),
            BOS "<｜User｜>Q<｜Assistant｜></think>Once");
  prefix.parts.clear();
  prefix.reasoning = "hm";
  const auto open = Render(TemplateKind::kV32, Of({Says(Author::kUser, "Q"), prefix}, true));
  EXPECT_EQ(Show(open), BOS "<｜User｜>Q<｜Assistant｜><think>hm");
  EXPECT_EQ(open.start, AnswerStart::kReasoningContinued);
}

TEST(EarlierReasoning, IsKeptOrDropped) {
  const std::vector<Message> messages = {Says(Author::kUser, "A"), Thinks("r1", "B"),
                                         Says(Author::kUser, "C"), Thinks("r2", "D")};
  const std::string kept = "<think>r1</think>B" EOS;
  const std::string last = "<think>r2</think>D" EOS;
  for (const TemplateKind kind : {TemplateKind::kV32, TemplateKind::kV4, TemplateKind::kV41}) {
    const std::string with = Show(Render(kind, Of(messages, true), EarlierReasoning::kKept));
    const std::string without = Show(Render(kind, Of(messages, true), EarlierReasoning::kDropped));
    EXPECT_NE(with.find("<｜Assistant｜>" + kept), std::string::npos) << with;
    EXPECT_EQ(without.find("r1"), std::string::npos) << without;
    EXPECT_NE(without.find("<｜Assistant｜></think>B" EOS), std::string::npos) << without;
    for (const std::string& text : {with, without}) EXPECT_NE(text.find(last), std::string::npos);
    EXPECT_EQ(Show(Render(kind, Of(messages, true))), kind == TemplateKind::kV32 ? without : with);
  }
  // Never among tools, where it says why they were called.
  Conversation tools = Of(messages, true);
  tools.tools = {{"f", "", "{}", false}};
  EXPECT_NE(Show(Render(TemplateKind::kV41, tools, EarlierReasoning::kDropped)).find(kept),
            std::string::npos);
  EXPECT_FALSE(EarlierReasoningByName("sometimes").ok());
}

// A prompt and the answer to it are the beginning of the next prompt: what was computed for them is
// of use again.
TEST(Templates, ConversationsOnlyGrow) {
  struct Case {
    TemplateKind kind;
    bool thinking;
  };
  for (const auto& [kind, thinking] :
       {Case{TemplateKind::kV3, false}, Case{TemplateKind::kV31, false},
        Case{TemplateKind::kV32, false}, Case{TemplateKind::kV32, true},
        Case{TemplateKind::kV4, false}, Case{TemplateKind::kV4, true},
        Case{TemplateKind::kV41, false}, Case{TemplateKind::kV41, true}}) {
    const std::string reasoning = thinking ? "because</think>" : "";
    Conversation conversation = Of({Says(Author::kSystem, "S")}, thinking);
    conversation.tools = {{"f", "does f", "{}", false}};
    std::string before;
    for (int turn = 0; turn < 4; ++turn) {
      conversation.messages.push_back(Says(Author::kUser, "Q" + std::to_string(turn)));
      const std::string prompt = Show(Render(kind, conversation, EarlierReasoning::kKept));
      EXPECT_EQ(prompt.rfind(before, 0), 0u) << before << "\nthen\n" << prompt;
      Message answer = Thinks("because", "A");
      if (!thinking) answer.reasoning.reset();
      conversation.messages.push_back(answer);
      before = prompt + reasoning + "A" EOS;
    }
    conversation.messages.push_back(Says(Author::kReminder, "R"));
    EXPECT_EQ(Show(Render(kind, conversation, EarlierReasoning::kKept)).rfind(before, 0), 0u);
  }
}

// The words that the models were trained on, by their lengths and digests.
TEST(Templates, FixedTexts) {
  Conversation conversation = Of({Says(Author::kUser, "Q")}, false);
  conversation.tools = {{"f", "", "{}", false}};
  conversation.constraint.kind = ConstraintKind::kJsonObject;
  const auto digest = [](std::string_view part) {
    return HexOf(Sha256(BytesOf(part))).substr(0, 16);
  };
  struct Case {
    TemplateKind kind;
    size_t head;
    const char* head_digest;
    std::string tool;
    size_t tail;
    const char* tail_digest;
  };
  const std::string line = R"({"name": "f", "description": "", "parameters": {}})";
  for (const Case& want :
       {Case{TemplateKind::kV41, 884, "2ae2ff83edf99018", line, 99, "690702850fe25651"},
        Case{TemplateKind::kV4, 890, "c7c9042638154a23", line, 99, "690702850fe25651"},
        Case{TemplateKind::kV32, 1126, "1998c90fabebde65", line, 14, "18b2c321c9fc49fe"},
        Case{TemplateKind::kV31, 49, "c7b7193049bb12e2",
             "\n### f\nDescription: \n\nParameters: {}\n", 495, "c5a85b6215c49e98"}}) {
    const std::string text = Show(Render(want.kind, conversation));
    const size_t at = text.find(want.tool);
    ASSERT_NE(at, std::string::npos) << text;
    const std::string_view view(text);
    EXPECT_EQ(digest(view.substr(at - want.head, want.head)), want.head_digest) << NameOf(want.kind);
    const size_t end = at + want.tool.size();
    EXPECT_EQ(digest(view.substr(end, want.tail)), want.tail_digest) << NameOf(want.kind);
    EXPECT_EQ(digest(view.substr(end + want.tail, 82)), "6d26ed6fec4035e0") << NameOf(want.kind);
  }
  conversation.constraint = {};
  conversation.tools.clear();
  conversation.thinking.enabled = true;
  const auto effort = [&](Effort value, size_t size) {
    conversation.thinking.effort = value;
    const std::string text = Show(Render(TemplateKind::kV4, conversation));
    return digest(std::string_view(text).substr(std::string_view(BOS).size(), size));
  };
  EXPECT_EQ(effort(Effort::kDefault, 476), "f7a24f3b3050d4a8");
  EXPECT_EQ(effort(Effort::kMax, 528), "53fb31b8392ec5b4");
}

TEST(Templates, SmallVocabularyDegradesOrIsRefused) {
  // This vocabulary has turn tokens only: no thinking, and other marks are spelt out.
  const auto small = *Tokenizer::FromFile("codec/token/testdata/plain_bytelevel.json");
  const auto tmpl = Template::Create(TemplateKind::kV41, small->vocab());
  ASSERT_TRUE(tmpl.ok()) << tmpl.status();
  EXPECT_FALSE((*tmpl)->can_think());
  EXPECT_FALSE((*tmpl)->spelt_out().empty());
  const auto out = (*tmpl)->Render(Of({Says(Author::kUser, "cat")}, true));
  ASSERT_TRUE(out.ok());
  EXPECT_FALSE(out->thinking);
  EXPECT_EQ(out->start, AnswerStart::kContent);
  EXPECT_EQ(out->segments.pieces().size(), 4u);
  const auto ids_only = Tokenizer::IdsOnly(64, 0, 1);
  const auto refused = Template::Create(TemplateKind::kV3, ids_only->vocab());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(std::string(refused.status().message()).find("<｜User｜>"), std::string::npos);
}

TEST(Templates, AreChosenByModelTypeAndVocabulary) {
  const Vocab& vocab = Script()->vocab();
  EXPECT_EQ(*ChooseTemplate("deepseek_v41", vocab), TemplateKind::kV41);
  EXPECT_EQ(*ChooseTemplate("deepseek_v4_flash", vocab), TemplateKind::kV4);
  EXPECT_EQ(*ChooseTemplate("deepseek_v3", vocab), TemplateKind::kV31);
  EXPECT_EQ(*ChooseTemplate("deepseek_v32", vocab), TemplateKind::kV32);
  EXPECT_EQ(*ChooseTemplate("deepseek_v32", Tokenizer::IdsOnly(9, 0, 1)->vocab()),
            TemplateKind::kV31);
  EXPECT_EQ(*ChooseTemplate("deepseek_v3", Tokenizer::IdsOnly(9, 0, 1)->vocab()),
            TemplateKind::kV3);
  EXPECT_FALSE(ChooseTemplate("llama", vocab).ok());
  EXPECT_EQ(*TemplateByName("v31"), TemplateKind::kV31);
  EXPECT_FALSE(TemplateByName("v9").ok());
}

TEST(Templates, ImagesAreRefusedForNow) {
  Message message = Says(Author::kUser, "look");
  message.parts.emplace_back(ImagePart{"http://x/y.png", ImageDetail::kAuto});
  for (const TemplateKind kind :
       {TemplateKind::kV3, TemplateKind::kV31, TemplateKind::kV32, TemplateKind::kV41}) {
    const auto out = (*Template::Create(kind, Script()->vocab()))->Render(Of({message}, false));
    EXPECT_EQ(ReasonOf(out.status()), Reason::kBadField);
  }
}

}  // namespace
}  // namespace weir::codec
