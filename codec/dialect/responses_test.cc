// SPDX-License-Identifier: Apache-2.0
#include "codec/dialect/responses.h"

#include <gtest/gtest.h>

#include <string>

#include "base/stdx/status.h"

namespace weir::codec {
namespace {

absl::StatusOr<ChatRequest> Parse(const std::string& fields) {
  return ParseResponses(R"({"model":"m",)" + fields + "}", RequestLimits{});
}

// Who speaks, with what is said; calls by id and results by the call's.
std::string Turns(const ChatRequest& request) {
  std::string turns;
  for (const Message& message : request.conversation.messages) {
    const char* const kAuthors[] = {"S", "U", "A", "T", "R"};
    turns += kAuthors[static_cast<int>(message.author)];
    if (message.reasoning) turns += "(" + *message.reasoning + ")";
    turns += TextOf(message);
    for (const ToolCall& call : message.calls) turns += "+" + call.id;
    if (!message.tool_call_id.empty()) turns += "=" + message.tool_call_id;
    turns += " ";
  }
  return turns;
}

TEST(ParseResponses, ReadsAWholeRequest) {
  const auto got = Parse(R"(
    "instructions":"be brief", "input":"hi", "max_output_tokens":7, "temperature":0.5,
    "top_p":0.5, "stream":true, "store":true, "include":["reasoning.encrypted_content"],
    "reasoning":{"effort":"low","summary":"auto"}, "parallel_tool_calls":false,
    "text":{"format":{"type":"json_schema","name":"n","strict":true,
                      "schema":{"$schema":"x","type":"object"}},"verbosity":"low"},
    "truncation":"auto", "prompt_cache_key":"k", "client_metadata":{}, "user":"u",
    "previous_response_id":null, "tools":[
      {"type":"function","name":"f","description":null,"parameters":{"type":"object"},"strict":true},
      {"type":"namespace","name":"ns","description":"Weather tools","tools":[
        {"type":"function","name":"now","parameters":{}},
        {"type":"function","name":"now","description":"d","parameters":null}]},
      {"type":"custom","name":"apply_patch","format":{"type":"grammar"}},
      {"type":"web_search"}])");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(Turns(*got), "Sbe brief Uhi ");
  const Conversation& conversation = got->conversation;
  ASSERT_EQ(conversation.tools.size(), 4u);
  EXPECT_EQ(conversation.tools[1].name, "ns::now");
  EXPECT_EQ(conversation.tools[1].description, "Weather tools\n");
  EXPECT_EQ(conversation.tools[2].name, "ns::now_1");
  EXPECT_TRUE(conversation.tools[3].freeform);
  EXPECT_EQ(conversation.constraint.kind, ConstraintKind::kJsonSchema);
  EXPECT_EQ(conversation.constraint.text, R"({"$schema": "x", "type": "object"})");
  EXPECT_EQ(conversation.thinking.effort, Effort::kLow);
  EXPECT_EQ(got->limits.max_tokens, 7u);
  EXPECT_TRUE(got->stream.stream);
}

constexpr char kCall1[] = R"({"type":"function_call","call_id":"c1","name":"f","arguments":"{}"})";
constexpr char kCall2[] = R"({"type":"function_call","call_id":"c2","name":"f","arguments":"{}"})";
constexpr char kOut1[] = R"({"type":"function_call_output","call_id":"c1","output":"1"})";
constexpr char kOut2[] = R"({"type":"function_call_output","call_id":"c2",
                             "output":[{"type":"input_text","text":"2"}]})";
constexpr char kReasoning[] = R"({"type":"reasoning","id":"rs","summary":[],"content":[
    {"type":"reasoning_text","text":"r1"},{"type":"reasoning_text","text":"r2"}]})";

std::string Input(std::initializer_list<std::string> items) {
  std::string input = R"("input":[)";
  bool first = true;
  for (const std::string& item : items) {
    if (!first) input += ",";
    first = false;
    input += item;
  }
  return input + "]";
}

TEST(ParseResponses, CallsAndResultsMakeOneTurnHoweverMixed) {
  const std::string user = R"({"role":"user","content":"q"})";
  const std::string said = R"({"type":"message","role":"assistant","id":"m","status":"completed",
      "content":[{"type":"output_text","text":"a","annotations":[]}]})";
  const struct {
    std::string input;
    const char* turns;
  } kCases[] = {
      {Input({user, kCall1, kCall2, kOut1, kOut2}), "Uq A+c1+c2 T1=c1 T2=c2 "},
      {Input({user, kCall1, kOut1, kCall2, kOut2}), "Uq A+c1+c2 T1=c1 T2=c2 "},
      {Input({user, kReasoning, kCall1, kCall2, kOut2, kOut1}), "Uq A(r1\nr2)+c1+c2 T1=c1 T2=c2 "},
      {Input({user, said, kCall1, kOut1}), "Uq Aa+c1 T1=c1 "},
      {Input({user, kReasoning, said, kCall1, kOut1, kReasoning, kCall2, kOut2}),
       "Uq A(r1\nr2)a+c1 T1=c1 A(r1\nr2)+c2 T2=c2 "},
      {Input({user, said, said, user}), "Uq Aa\n\na Uq "},
      {Input({user, kCall1, kOut1, said, user}), "Uq A+c1 T1=c1 Aa Uq "},
      {Input({user, R"({"type":"web_search_call","id":"w"})", said}), "Uq Aa "},
      {Input({R"({"role":"developer","content":[{"type":"input_text","text":"d"}]})",
              R"({"role":"system","content":"s"})"}),
       "Ud Ss "},
  };
  for (const auto& c : kCases) {
    const auto got = Parse(c.input);
    ASSERT_TRUE(got.ok()) << c.input << got.status();
    EXPECT_EQ(Turns(*got), c.turns) << c.input;
  }
}

TEST(ParseResponses, FreeformCallsComeBackAsArguments) {
  const auto got = Parse(Input(
      {R"({"type":"custom_tool_call","call_id":"p","name":"apply_patch","input":"*** \"x\"\n"})",
       R"({"type":"custom_tool_call_output","call_id":"p","output":"ok"})"}));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->conversation.messages[0].calls[0].arguments, R"({"input": "*** \"x\"\n"})");
}

TEST(ParseResponses, RefusalsNameTheField) {
  const struct {
    std::string fields;
    const char* param;
  } kCases[] = {
      {R"("temperature":1)", "input"},
      {R"("input":[])", "input"},
      {R"("input":5)", "input"},
      {R"("input":[{"type":"web_search_call"}])", "input"},
      {R"("input":"x","previous_response_id":"r")", "previous_response_id"},
      {R"("input":"x","background":true)", "background"},
      {R"("input":"x","max_output_tokens":0)", "max_output_tokens"},
      {R"("input":"x","reasoning":{"effort":"huge"})", "reasoning.effort"},
      {R"("input":"x","text":{"format":{"type":"xml"}})", "text.format.type"},
      {R"("input":"x","tools":[{"type":"mcp"}])", "tools[0].type"},
      {R"("input":"x","tools":[{"type":"custom","name":"other"}])", "tools[0].name"},
      {R"("input":"x","tools":[{"type":"namespace","name":"n","tools":[
          {"type":"custom","name":"apply_patch"}]}])",
       "tools[0].tools[0].type"},
      {R"("input":"x","tool_choice":"required")", "tool_choice"},
      {R"("input":[{"role":"user","content":[{"type":"input_audio"}]}])",
       "input[0].content[0].type"},
      {R"("input":[{"type":"item_reference","id":"x"}])", "input[0]"},
      {Input({kCall1}), "input"},
      {Input({kCall1, kReasoning, kOut1}), "input"},
      {Input({kCall1, kCall1}), "input[1].call_id"},
      {Input({kOut1}), "input[0].call_id"},
      {Input({kCall1, kOut1, kOut1}), "input[2].call_id"},
  };
  for (const auto& c : kCases) {
    const absl::Status status = Parse(c.fields).status();
    EXPECT_EQ(ReasonOf(status), Reason::kBadField) << c.fields;
    EXPECT_EQ(ParamOf(status), c.param) << c.fields << status;
  }
}

TEST(ParseResponses, LogprobsByIncludeOrByNumber) {
  EXPECT_FALSE(Parse(R"("input":"x","top_logprobs":0)")->logprobs.enabled);
  const auto included = Parse(R"("input":"x","include":["message.output_text.logprobs"])");
  EXPECT_TRUE(included->logprobs.enabled && included->logprobs.top == 0);
  const auto numbered = Parse(R"("input":"x","top_logprobs":3)");
  EXPECT_TRUE(numbered->logprobs.enabled && numbered->logprobs.top == 3);
  EXPECT_EQ(ParamOf(Parse(R"("input":"x","include":[1])").status()), "include[0]");
  EXPECT_EQ(ParamOf(Parse(R"("input":"x","top_logprobs":21)").status()), "top_logprobs");
}

}  // namespace
}  // namespace weir::codec
