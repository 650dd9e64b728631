// SPDX-License-Identifier: Apache-2.0
#include "codec/dialect/messages.h"

#include <gtest/gtest.h>

#include <string>

#include "base/stdx/status.h"

namespace weir::codec {
namespace {

absl::StatusOr<ChatRequest> Parse(std::string_view more) {
  return ParseMessages(R"({"model":"m","max_tokens":9,)" + std::string(more) + "}",
                       RequestLimits{});
}
absl::StatusOr<ChatRequest> ParseTurns(std::string_view turns) {
  return Parse(R"("messages":[)" + std::string(turns) + "]");
}

constexpr char kHi[] = R"("messages":[{"role":"user","content":"hi"}])";
constexpr char kTools[] = R"("tools":[{"name":"f","input_schema":{"type":"object"}},
                                      {"name":"g","type":"custom","input_schema":{}}])";

TEST(ParseMessages, ReadsAWholeRequest) {
  const auto got = Parse(R"(
    "system": [{"type":"text","text":"be brief","cache_control":{"type":"ephemeral"}},
               {"type":"text","text":"be kind"}],
    "messages": [
      {"role":"user","content":"weather?"},
      {"role":"assistant","content":[
        {"type":"thinking","thinking":"r1","signature":"s"}, {"type":"redacted_thinking","data":"x"},
        {"type":"thinking","thinking":"r2","signature":"s"}, {"type":"text","text":"let me look"},
        {"type":"tool_use","id":"t1","name":"f","input":{"b":1.0,"a":"é"}},
        {"type":"tool_use","id":"t2","name":"f","input":{}}]},
      {"role":"user","content":[
        {"type":"tool_result","tool_use_id":"t2","is_error":true,
         "content":[{"type":"text","text":"no"},{"type":"document","source":{}}]},
        {"type":"tool_result","tool_use_id":"t1"},
        {"type":"text","text":"and?"}, {"type":"image","source":
          {"type":"base64","media_type":"image/png","data":"AA=="}}]},
      {"role":"system","content":"be quick"}],
    "tools": [{"name":"f","description":"d","input_schema":{"type":"object"},
               "cache_control":{"type":"ephemeral"},"eager_input_streaming":true}],
    "tool_choice": {"type":"auto","disable_parallel_tool_use":true},
    "stop_sequences": ["x","y"], "temperature": 0.5, "top_p": 0.9, "top_k": 40, "stream": true,
    "thinking": {"type":"enabled","budget_tokens":1024}, "output_config": {"effort":"ultra"},
    "metadata": {"user_id":"u"}, "service_tier":"auto", "mcp_servers":[], "container":null,
    "context_management":{"edits":[]}, "stream_options":{"include_usage":true}, "n":7)");
  ASSERT_TRUE(got.ok()) << got.status();
  const Conversation& conversation = got->conversation;
  const auto& messages = conversation.messages;
  ASSERT_EQ(messages.size(), 7u);
  EXPECT_EQ(messages[0].author, Author::kSystem);
  EXPECT_EQ(TextOf(messages[0]), "be brief\n\nbe kind");
  EXPECT_EQ(messages[2].reasoning, "r1\n\nr2");
  EXPECT_EQ(TextOf(messages[2]), "let me look");
  EXPECT_EQ(messages[2].calls[0].arguments, "{\"b\": 1.0, \"a\": \"é\"}");
  EXPECT_EQ(messages[3].author, Author::kTool);
  EXPECT_EQ(messages[3].tool_call_id, "t2");
  EXPECT_EQ(TextOf(messages[3]), "no\n\n[Unsupported Document]");
  EXPECT_EQ(TextOf(messages[4]), "");
  EXPECT_EQ(TextOf(messages[5]), "and?");
  EXPECT_EQ(std::get<ImagePart>(messages[5].parts[1]).source, "data:image/png;base64,AA==");
  EXPECT_EQ(TextOf(messages[6]), "<system-reminder>\nbe quick\n</system-reminder>");
  EXPECT_EQ(messages[6].author, Author::kUser);
  EXPECT_FALSE(messages[6].prefix);
  EXPECT_FALSE(conversation.parallel_tool_calls);
  EXPECT_TRUE(conversation.thinking.enabled);
  EXPECT_EQ(conversation.thinking.budget_tokens, 1024u);
  EXPECT_EQ(conversation.thinking.effort, Effort::kMax);
  EXPECT_EQ(got->limits.stop, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(got->limits.max_tokens, 9u);
  EXPECT_EQ(got->sampling.top_k, 40);
  EXPECT_EQ(got->user, "u");
  EXPECT_EQ(got->n, 1);
  EXPECT_TRUE(got->stream.stream);
}

TEST(ParseMessages, AnswerGoesOnFromALastTurnOfTheAssistants) {
  const auto got = ParseTurns(R"({"role":"user","content":"a"},{"role":"assistant","content":"{"})");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(got->conversation.messages.back().prefix);
}

TEST(ParseMessages, ChoiceOfTools) {
  const struct {
    const char* fields;
    size_t tools;
    ToolChoice choice;
    bool thinking;
  } kCases[] = {
      {R"("tool_choice":{"type":"none"})", 0, ToolChoice::kAuto, true},
      {R"("tool_choice":{"type":"any"})", 2, ToolChoice::kAuto, true},
      {R"("tool_choice":{"type":"any"},"thinking":{"type":"disabled"})", 2, ToolChoice::kRequired,
       false},
      {R"("tool_choice":{"type":"tool","name":"g"})", 1, ToolChoice::kRequired, false},
  };
  for (const auto& c : kCases) {
    const auto got = Parse(std::string(kHi) + "," + kTools + "," + c.fields);
    ASSERT_TRUE(got.ok()) << c.fields << got.status();
    EXPECT_EQ(got->conversation.tools.size(), c.tools) << c.fields;
    EXPECT_EQ(got->conversation.tool_choice, c.choice) << c.fields;
    EXPECT_EQ(got->conversation.thinking.enabled, c.thinking) << c.fields;
  }
}

TEST(ParseMessages, RefusalsNameTheField) {
  const struct {
    std::string fields;
    const char* param;
  } kCases[] = {
      {R"("messages":[])", "messages"},
      {R"("system":"s")", "messages"},
      {std::string(kHi) + R"(,"max_tokens":0)", "max_tokens"},
      {std::string(kHi) + R"(,"temperature":"x")", "temperature"},
      {std::string(kHi) + R"(,"stop_sequences":["a",""])", "stop_sequences[1]"},
      {std::string(kHi) + R"(,"stop_sequences":"a")", "stop_sequences"},
      {std::string(kHi) + R"(,"thinking":{"type":"on"})", "thinking.type"},
      {std::string(kHi) + R"(,"output_config":{"effort":"huge"})", "output_config.effort"},
      {std::string(kHi) + R"(,"metadata":{"user_id":5})", "metadata.user_id"},
      {std::string(kHi) + R"(,"system":[{"type":"image"}])", "system[0].type"},
      {std::string(kHi) + R"(,"tools":[{"name":"f"}])", "tools[0].input_schema"},
      {std::string(kHi) + R"(,"tools":[{"name":"a b","input_schema":{}}])", "tools[0].name"},
      {std::string(kHi) + R"(,"tools":[{"type":"web_search_20250305","name":"web_search"}])",
       "tools[0].type"},
      {std::string(kHi) + "," + kTools + R"(,"tool_choice":{"type":"tool","name":"h"})",
       "tool_choice.name"},
      {std::string(kHi) + "," + kTools +
           R"(,"tool_choice":{"type":"tool","name":"f"},"thinking":{"type":"enabled"})",
       "tool_choice"},
      {std::string(kHi) + R"(,"tool_choice":{"type":"any"})", "tool_choice"},
  };
  for (const auto& c : kCases) {
    const absl::Status status = Parse(c.fields).status();
    EXPECT_EQ(ReasonOf(status), Reason::kBadField) << c.fields;
    EXPECT_EQ(ParamOf(status), c.param) << c.fields << status;
  }
}

TEST(ParseMessages, TurnsThatCannotBe) {
  constexpr char kCall[] = R"({"role":"assistant","content":[
    {"type":"tool_use","id":"t","name":"f","input":{}}]})";
  const struct {
    std::string turns;
    const char* param;
  } kCases[] = {
      {R"({"role":"tool","content":"x"})", "messages[0].role"},
      {R"({"role":"user"})", "messages[0].content"},
      {R"({"role":"user","content":5})", "messages[0].content"},
      {R"({"role":"user","content":[]})", "messages[0].content"},
      {R"({"role":"user","content":[{"type":"audio"}]})", "messages[0].content[0].type"},
      {R"({"role":"user","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]})",
       "messages[0].content[0].type"},
      {R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"t"}]})",
       "messages[0].content[0].tool_use_id"},
      {R"({"role":"user","content":[{"type":"image","source":{"type":"file","file_id":"f"}}]})",
       "messages[0].content[0].source.type"},
      {kCall, "messages[0].content"},
      {std::string(kCall) + R"(,{"role":"user","content":"x"})", "messages[0].content"},
      {std::string(kCall) + R"(,{"role":"user","content":[{"type":"text","text":"x"},
        {"type":"tool_result","tool_use_id":"t"}]})",
       "messages[0].content"},
      {std::string(kCall) + R"(,{"role":"user","content":[
        {"type":"tool_result","tool_use_id":"t"},{"type":"tool_result","tool_use_id":"t"}]})",
       "messages[1].content[1].tool_use_id"},
      {R"({"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}},
        {"type":"text","text":"x"}]})",
       "messages[0].content[1]"},
      {R"({"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}},
        {"type":"tool_use","id":"t","name":"f","input":{}}]})",
       "messages[0].content[1].id"},
      {R"({"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":"x"}]})",
       "messages[0].content[0].input"},
      {R"({"role":"assistant","content":[{"type":"image"}]})", "messages[0].content[0].type"},
  };
  for (const auto& c : kCases) {
    const absl::Status status = ParseTurns(c.turns).status();
    EXPECT_EQ(ReasonOf(status), Reason::kBadField) << c.turns;
    EXPECT_EQ(ParamOf(status), c.param) << c.turns << status;
  }
}

TEST(ParseMessages, AFormMayBeAskedFor) {
  const auto got = Parse(std::string(kHi) + R"(,"output_config":{"effort":"low","format":
      {"type":"json_schema","schema":{"type":"object"}}})");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->conversation.constraint.kind, ConstraintKind::kJsonSchema);
  EXPECT_EQ(got->conversation.constraint.text, R"({"type": "object"})");
  EXPECT_EQ(got->conversation.thinking.effort, Effort::kLow);
  const auto other = Parse(std::string(kHi) + R"(,"output_config":{"format":{"type":"xml"}})");
  EXPECT_EQ(ParamOf(other.status()), "output_config.format.type");
}

}  // namespace
}  // namespace weir::codec
