// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "base/stdx/random.h"
#include "base/stdx/status.h"
#include "codec/dialect/chat.h"
#include "codec/dialect/completions.h"

namespace weir::codec {
namespace {

constexpr char kUser[] = R"("model":"m","messages":[{"role":"user","content":"hi"}])";

std::string Chat(std::string_view more) {
  return "{" + std::string(kUser) + "," + std::string(more) + "}";
}

struct Refusal {
  Reason reason = Reason::kOk;
  std::string param;
  std::string message;
};
Refusal RefusalOf(const absl::Status& status) {
  return {ReasonOf(status), ParamOf(status), std::string(status.message())};
}
Refusal ChatRefusal(std::string_view body) {
  return RefusalOf(ParseChat(body, RequestLimits{}).status());
}
Refusal TextRefusal(std::string_view body) {
  return RefusalOf(ParseCompletions(body, RequestLimits{}).status());
}

TEST(ParseChat, ReadsAWholeRequest) {
  const auto got = ParseChat(R"({
    "model": "weir", "stream": true, "stream_options": {"include_usage": true, "x": 1},
    "messages": [
      {"role": "system", "content": "be brief", "name": "n"},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": null, "reasoning_content": "r",
       "tool_calls": [{"id": "c1", "type": "function",
                       "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": "42"}],
    "tools": [{"type": "function", "function": {"name": "f", "description": null,
               "parameters": {"type":"object","properties":{"a":{"type":"number"}}}}}],
    "temperature": 0, "top_p": 0.5, "top_k": -1, "min_p": 0.1, "seed": 7, "n": 2,
    "presence_penalty": 1, "frequency_penalty": -1.5, "repetition_penalty": 1.1,
    "logit_bias": {"5": -100, "6": 1.5}, "max_tokens": 5, "max_completion_tokens": 9,
    "min_tokens": 2, "stop": ["a", "b"], "ignore_eos": true, "logprobs": true, "top_logprobs": 3,
    "user": "u", "user_id": "w", "cache_salt": "s", "return_token_ids": true,
    "reasoning_effort": "max", "parallel_tool_calls": false, "metadata": {"k": "v"},
    "store": false, "service_tier": "auto", "prompt_cache_key": "k", "verbosity": "low",
    "priority": 3, "future_field": [1, {"deep": []}], "response_format": {"type": "text"}
  })",
                             RequestLimits{});
  ASSERT_TRUE(got.ok()) << got.status();
  const Conversation& conversation = got->conversation;
  ASSERT_EQ(conversation.messages.size(), 4u);
  EXPECT_EQ(TextOf(conversation.messages[1]), "a\n\nb");
  EXPECT_EQ(conversation.messages[2].reasoning, "r");
  EXPECT_EQ(conversation.messages[2].calls[0].arguments, "{\"a\": 1}");
  EXPECT_EQ(conversation.tools[0].parameters,
            "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"number\"}}}");
  EXPECT_TRUE(conversation.thinking.enabled);
  EXPECT_EQ(conversation.thinking.effort, Effort::kMax);
  EXPECT_FALSE(conversation.parallel_tool_calls);
  EXPECT_EQ(got->limits.max_tokens, 9u);
  EXPECT_EQ(got->limits.min_tokens, 2u);
  EXPECT_EQ(got->limits.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(got->sampling.temperature, 0);
  EXPECT_EQ(got->sampling.seed, 7u);
  EXPECT_EQ(got->sampling.top_k, 0);
  EXPECT_EQ(got->sampling.logit_bias.size(), 2u);
  EXPECT_EQ(got->logprobs.top, 3);
  EXPECT_EQ(got->n, 2);
  EXPECT_EQ(got->user, "w");
  EXPECT_TRUE(got->stream.stream && got->stream.include_usage && got->return_token_ids);
}

TEST(ParseChat, NullIsAbsent) {
  const auto got = ParseChat(
      Chat(R"("temperature":null,"stop":null,"tools":null,"logprobs":null,"max_tokens":null)"),
      RequestLimits{});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->sampling.temperature, 1.0f);
  EXPECT_FALSE(got->limits.max_tokens);
}

// What is added to a good body, and the field that the refusal must name.
const struct {
  const char* more;
  const char* param;
} kChatRefusals[] = {
    {R"("max_tokens":0)", "max_tokens"},
    {R"("max_tokens":-1)", "max_tokens"},
    {R"("max_tokens":9223372036854775808)", "max_tokens"},
    {R"("max_tokens":1.5)", "max_tokens"},
    {R"("max_tokens":"5")", "max_tokens"},
    {R"("max_completion_tokens":0)", "max_completion_tokens"},
    {R"("min_tokens":9,"max_tokens":3)", "min_tokens"},
    {R"("temperature":3)", "temperature"},
    {R"("temperature":-1)", "temperature"},
    {R"("temperature":1e308)", "temperature"},
    {R"("temperature":"hot")", "temperature"},
    {R"("top_p":0)", "top_p"},
    {R"("top_p":1.01)", "top_p"},
    {R"("top_k":-5)", "top_k"},
    {R"("n":0)", "n"},
    {R"("n":5000000)", "n"},
    {R"("presence_penalty":3)", "presence_penalty"},
    {R"("seed":18446744073709551615)", "seed"},
    {R"("logit_bias":{"x":1})", "logit_bias.x"},
    {R"("logit_bias":{"2147483648":1})", "logit_bias.2147483648"},
    {R"("logit_bias":{"-1":1})", "logit_bias.-1"},
    {R"("logit_bias":{"1":101})", "logit_bias.1"},
    {R"("stop":["a",""])", "stop[1]"},
    {R"("stop":5)", "stop"},
    {R"("stop":["1","2","3","4","5","6","7","8","9","0","a","b","c","d","e","f","g"])", "stop"},
    {R"("stream":1)", "stream"},
    {R"("stream_options":{"include_usage":true})", "stream_options"},
    {R"("stream":true,"stream_options":{"include_usage":3})", "stream_options.include_usage"},
    {R"("top_logprobs":1000000000)", "top_logprobs"},
    {R"("top_logprobs":3)", "top_logprobs"},
    {R"("model":5)", "model"},
    {R"("messages":[])", "messages"},
    {R"("messages":{})", "messages"},
    {R"("messages":[5])", "messages[0]"},
    {R"("messages":[{"content":"x"}])", "messages[0].role"},
    {R"("messages":[{"role":"wizard","content":"x"}])", "messages[0].role"},
    {R"("messages":[{"role":"user"}])", "messages[0].content"},
    {R"("messages":[{"role":"user","content":"a"},{"role":"user","content":7}])",
     "messages[1].content"},
    {R"("messages":[{"role":"user","content":[{"type":"audio"}]}])",
     "messages[0].content[0].type"},
    {R"("messages":[{"role":"user","content":[{"type":"text"}]}])",
     "messages[0].content[0].text"},
    {R"("messages":[{"role":"system","content":[{"type":"image_url"}]}])",
     "messages[0].content[0]"},
    {R"("messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])",
     "messages[0].content[0].image_url"},
    {R"("messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"f"}}]}])",
     "messages[0].content[0].file.file_id"},
    {R"("messages":[{"role":"user","content":[{"type":"file","file":{"file_data":"x"}}]}])",
     "messages[0].content[0].file.file_data"},
    {R"("messages":[{"role":"assistant"}])", "messages[0]"},
    {R"("messages":[{"role":"assistant","content":"x","tool_calls":[]}])",
     "messages[0].tool_calls"},
    {R"("messages":[{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f",
        "arguments":"{}"}}]}])",
     "messages[0].tool_calls"},
    {R"("messages":[{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f"}}]}])",
     "messages[0].tool_calls[0].function.arguments"},
    {R"("messages":[{"role":"tool","tool_call_id":"z","content":"x"}])",
     "messages[0].tool_call_id"},
    {R"("messages":[{"role":"assistant","content":"a","prefix":true},
        {"role":"user","content":"b"}])",
     "messages[0].prefix"},
    {R"("tools":[{"type":"web"}])", "tools[0].type"},
    {R"("tools":[{"type":"function","function":{"name":"a b"}}])", "tools[0].function.name"},
    {R"("tools":[{"type":"function","function":{"name":"a"}},
        {"type":"function","function":{"name":"a"}}])",
     "tools[1].function.name"},
    {R"("tools":[{"type":"function","function":{"name":"a","parameters":{"type":"array"}}}])",
     "tools[0].function.parameters.type"},
    {R"("tool_choice":"perhaps")", "tool_choice"},
    {R"("tool_choice":{"type":"function","function":{"name":"g"}})",
     "tool_choice.function.name"},
    {R"("thinking":{"type":"enabled"},"tool_choice":"required",
        "tools":[{"type":"function","function":{"name":"a"}}])",
     "tool_choice"},
    {R"("thinking":{"type":"deep"})", "thinking.type"},
    {R"("reasoning_effort":"utmost")", "reasoning_effort"},
    {R"("response_format":{"type":"regex"})", "response_format.type"},
    {R"("response_format":{"type":"json_schema","json_schema":{"schema":[]}})",
     "response_format.json_schema.schema"},
    {R"("tool_choice":"required")", "tool_choice"},
    {R"("tool_choice":"required","tools":[])", "tool_choice"},
    {R"("functions":[])", "functions"},
    {R"("function_call":"auto")", "function_call"},
    {R"("messages":[{"role":"assistant","content":"a","function_call":{}}])",
     "messages[0].function_call"},
    {R"("echo":true)", "echo"},
    {R"("best_of":2)", "best_of"},
    {R"("suffix":"x")", "suffix"},
    {R"("use_beam_search":true)", "use_beam_search"},
    {R"("guided_json":{})", "guided_json"},
    {R"("guided_choice":["a"])", "guided_choice"},
    {R"("response_format":"json")", "response_format"},
    {R"("kv_transfer_params":{})", "kv_transfer_params"},
    {R"("prompt_logprobs":-1)", "prompt_logprobs"},
};

TEST(ParseChat, EveryRefusalNamesTheField) {
  for (const auto& one : kChatRefusals) {
    const Refusal refusal = ChatRefusal(Chat(one.more));
    EXPECT_EQ(refusal.reason, Reason::kBadField) << one.more;
    EXPECT_EQ(refusal.param, one.param) << one.more;
    EXPECT_NE(refusal.message.find("`" + std::string(one.param) + "`"), std::string::npos)
        << refusal.message;
  }
  EXPECT_EQ(ChatRefusal("{}").param, "messages");
}

TEST(ParseChat, WhatChangesNothingIsTaken) {
  EXPECT_TRUE(ParseChat(Chat(R"("echo":false,"best_of":1,"use_beam_search":false,"suffix":null,
                                "functions":null,"response_format":null,"tool_choice":"auto")"),
                        RequestLimits{})
                  .ok());
}

TEST(ParseChat, ForcedCallTurnsUnaskedThinkingOff) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"a"}},
                               {"type":"function","function":{"name":"b"}}])";
  const auto named = ParseChat(
      Chat(tools + R"(,"tool_choice":{"type":"function","function":{"name":"b"}})"),
      RequestLimits{});
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->conversation.tools.size(), 1u);
  EXPECT_EQ(named->conversation.tool_choice, ToolChoice::kRequired);
  EXPECT_FALSE(named->conversation.thinking.enabled);
  const auto none = ParseChat(Chat(tools + R"(,"tool_choice":"none")"), RequestLimits{});
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->conversation.tools.empty());
}

TEST(ParseChat, HostileBodiesAreErrors) {
  const auto bad = [](const std::string& body) { return ChatRefusal(body).reason; };
  EXPECT_EQ(bad(""), Reason::kBadField);
  EXPECT_EQ(bad("null"), Reason::kBadField);
  EXPECT_EQ(bad("[]"), Reason::kBadField);
  EXPECT_EQ(bad("{\"model\":"), Reason::kBadField);
  EXPECT_EQ(bad(Chat("\"x\":\"\xff\xfe\"")), Reason::kBadField);
  EXPECT_EQ(bad(Chat(R"("user":"\ud800")")), Reason::kBadField);
  EXPECT_EQ(bad(Chat("\"x\":1e99999")), Reason::kBadField);
  for (const int depth : {1000, 1000000}) {
    EXPECT_EQ(bad(Chat("\"x\":" + std::string(static_cast<size_t>(depth), '['))),
              Reason::kBadField);
    EXPECT_EQ(bad(Chat("\"tools\":" + std::string(static_cast<size_t>(depth), '[') +
                       std::string(static_cast<size_t>(depth), ']'))),
              Reason::kBadField);
  }
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_EQ(bad(Chat("\"x\":" + objects)), Reason::kBadField);
  RequestLimits small;
  small.body_bytes_max = 10;
  EXPECT_EQ(ReasonOf(ParseChat(Chat("\"n\":1"), small).status()), Reason::kTooLarge);
  std::string many = R"({"model":"m","messages":[)";
  for (int i = 0; i < 20000; ++i) many += R"({"role":"user","content":"x"},)";
  many += R"({"role":"user","content":"x"}]})";
  EXPECT_EQ(ChatRefusal(many).param, "messages");
}

TEST(ParseChat, EveryPrefixOfABodyIsRefusedCleanly) {
  const std::string body = Chat(R"("stop":["a"],"tools":[{"type":"function","function":
      {"name":"f","parameters":{"type":"object"}}}],"seed":1)");
  ASSERT_TRUE(ParseChat(body, RequestLimits{}).ok());
  for (size_t size = 0; size < body.size(); ++size) {
    EXPECT_FALSE(ParseChat(std::string_view(body).substr(0, size), RequestLimits{}).ok());
  }
}

// Damaged bodies are parsed or refused, nothing else; the sanitizers watch.
TEST(ParseChat, DamagedBodiesAreRefusedOrRead) {
  const std::string body = Chat(R"("stop":["a"],"n":2,"logit_bias":{"1":2},"thinking":{"type":
      "enabled"},"messages":[{"role":"user","content":[{"type":"text","text":"\u00e9\ud83e\udd80"}]},
      {"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"f",
      "arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"x"}],"tools":[{"type":
      "function","function":{"name":"f","parameters":{"type":"object","a":[1,2.5e3,null]}}}])");
  ASSERT_TRUE(ParseChat(body, RequestLimits{}).ok());
  constexpr std::string_view kBytes = "\"{}[],:0129eE+-.\\u/ntf\x00\xff\xc3";
  Random random(17);
  int read = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string damaged = body;
    for (uint64_t n = 1 + random.Below(3); n > 0; --n) {
      damaged[random.Below(damaged.size())] = kBytes[random.Below(kBytes.size())];
    }
    const auto got = ParseChat(damaged, RequestLimits{});
    read += got.ok();
    if (!got.ok()) {
      EXPECT_EQ(ReasonOf(got.status()), Reason::kBadField);
    }
  }
  EXPECT_GT(read, 0);
}

TEST(ParseCompletions, ReadsEveryKindOfPrompt) {
  const auto prompt = [](std::string_view json) {
    auto got = ParseCompletions(R"({"model":"m","prompt":)" + std::string(json) + "}",
                                RequestLimits{});
    EXPECT_TRUE(got.ok()) << got.status();
    return got->raw->prompt;
  };
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(std::get<std::string>(prompt("\"text\"")), "text");
  EXPECT_EQ(std::get<std::string>(prompt("[\"text\"]")), "text");
  EXPECT_EQ(std::get<Ids>(prompt("[1, 2, 3]")), (Ids{1, 2, 3}));
  EXPECT_EQ(std::get<Ids>(prompt("[[4, 5]]")), (Ids{4, 5}));
}

TEST(ParseCompletions, RefusesBadPrompts) {
  const struct {
    const char* json;
    const char* param;
  } cases[] = {
      {"[-1]", "prompt[0]"},       {"[1, 2147483648]", "prompt[1]"}, {"[1.5]", "prompt[0]"},
      {"[]", "prompt"},            {"[[]]", "prompt[0]"},            {"[\"a\", 1]", "prompt"},
      {"[1, \"a\"]", "prompt[1]"}, {"5", "prompt"},                  {"[[1],[2]]", "prompt"},
      {"null", "prompt"},          {"[[1, true]]", "prompt[0][1]"},
  };
  for (const auto& one : cases) {
    const Refusal refusal =
        TextRefusal(R"({"model":"m","prompt":)" + std::string(one.json) + "}");
    EXPECT_EQ(refusal.reason, Reason::kBadField) << one.json;
    EXPECT_EQ(refusal.param, one.param) << one.json;
  }
  EXPECT_EQ(TextRefusal(R"({"model":"m"})").param, "prompt");
  EXPECT_EQ(TextRefusal(R"({"model":"m","prompt":"a","logprobs":21})").param, "logprobs");
  EXPECT_EQ(TextRefusal(R"({"model":"m","prompt":"a","best_of":3})").param, "best_of");
}

TEST(ParseCompletions, ReadsOptions) {
  const auto got = ParseCompletions(
      R"({"model":"m","prompt":[1],"echo":true,"logprobs":null,"max_tokens":3,"ignore_eos":true})",
      RequestLimits{});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(got->echo);
  EXPECT_FALSE(got->logprobs.enabled);
  EXPECT_EQ(got->limits.max_tokens, 3u);
}

}  // namespace
}  // namespace weir::codec
