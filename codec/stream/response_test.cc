// SPDX-License-Identifier: Apache-2.0
#include "codec/stream/response.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/stdx/status.h"
#include "codec/dialect/chat.h"
#include "codec/dialect/completions.h"

namespace weir::codec {
namespace {

using nlohmann::json;

// One request against the script vocabulary, its prompt and its response.
struct Exchange {
  explicit Exchange(std::string_view body, Api api = Api::kChat) {
    tokenizer = *Tokenizer::FromFile("deploy/models/script/tokenizer.json");
    const auto renderer = *Renderer::Create(tokenizer, TemplateKind::kV41, 512);
    auto parsed = api == Api::kChat ? ParseChat(body, RequestLimits{})
                                    : ParseCompletions(body, RequestLimits{});
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    request = *parsed;
    prompt = *renderer->Render(request, 100000);
    response = Response::Create(request, prompt, tokenizer, {"7", 99, request.model, "fp", "req-1"});
    response->Start(&out);
  }

  std::vector<TokenId> Ids(std::string_view text) const { return tokenizer->EncodeTrusted(text); }
  // Token by token, as a model would.
  bool Say(std::string_view text, int choice = 0) {
    for (const TokenId id : Ids(text)) {
      if (response->Push(choice, std::span(&id, 1), {}, &out)) return true;
    }
    return false;
  }
  void Finish(EngineFinish reason = EngineFinish::kStop, int choice = 0) {
    response->Finish(choice, reason, &out);
  }

  // The events sent so far; checks the framing.
  std::vector<json> Events() const {
    std::vector<json> events;
    for (size_t at = 0; at < out.size();) {
      const size_t end = out.find("\n\n", at);
      EXPECT_EQ(out.compare(at, 6, "data: "), 0);
      const std::string data = out.substr(at + 6, end - at - 6);
      if (data != "[DONE]") events.push_back(json::parse(data));
      at = end + 2;
    }
    return events;
  }
  bool Done() const { return out.size() >= 14 && out.substr(out.size() - 14) == "data: [DONE]\n\n"; }

  std::shared_ptr<const Tokenizer> tokenizer;
  ChatRequest request;
  Prompt prompt;
  std::unique_ptr<Response> response;
  std::string out;
};

std::string Join(const std::vector<json>& events, const char* key) {
  std::string text;
  for (const json& event : events) {
    if (event["choices"].empty()) continue;
    const json& delta = event["choices"][0]["delta"];
    if (delta.contains(key) && delta[key].is_string()) text += delta[key];
  }
  return text;
}

constexpr char kMessages[] = R"("model":"m","messages":[{"role":"user","content":"hi"}])";
std::string Body(std::string_view more) {
  return "{" + std::string(kMessages) + std::string(more) + "}";
}

TEST(ChatStream, ThinkingAnswer) {
  Exchange exchange(Body(R"(,"stream":true)"));
  exchange.Say("let me think</think>\n\nThe answer<｜end▁of▁sentence｜>");
  exchange.Finish();
  EXPECT_TRUE(exchange.Done());
  EXPECT_TRUE(exchange.response->done());
  const auto events = exchange.Events();
  EXPECT_EQ(events[0]["choices"][0]["delta"],
            json::parse(R"({"role":"assistant","content":null,"reasoning_content":""})"));
  EXPECT_EQ(Join(events, "reasoning_content"), "let me think");
  EXPECT_EQ(Join(events, "content"), "The answer");
  int finishes = 0;
  for (const json& event : events) {
    EXPECT_EQ(event["id"], "chatcmpl-7");
    finishes += !event["choices"][0]["finish_reason"].is_null();
    EXPECT_EQ(event.contains("usage"), &event == &events.back());
  }
  EXPECT_EQ(finishes, 1);
  const json& last = events.back();
  EXPECT_EQ(last["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(last["usage"]["prompt_tokens"], exchange.prompt.ids.size());
  EXPECT_EQ(last["usage"]["completion_tokens"],
            exchange.Ids("let me think</think>\n\nThe answer<｜end▁of▁sentence｜>").size());
  EXPECT_GT(last["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
}

TEST(ChatStream, IncludeUsageIsAChunkOfItsOwn) {
  Exchange exchange(Body(R"(,"stream":true,"stream_options":{"include_usage":true})"));
  exchange.response->SetCachedTokens(1);
  exchange.Say("x</think>y");
  exchange.Finish(EngineFinish::kLength);
  const auto events = exchange.Events();
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    EXPECT_TRUE(events[i].contains("usage") && events[i]["usage"].is_null());
  }
  EXPECT_TRUE(events.back()["choices"].empty());
  EXPECT_EQ(events.back()["usage"]["prompt_cache_hit_tokens"], 1);
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], "length");
}

TEST(ChatStream, ContinuousUsageRises) {
  Exchange exchange(Body(
      R"(,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true})"));
  exchange.Say("a b c d</think>e f");
  exchange.Finish();
  int before = 0;
  for (const json& event : exchange.Events()) {
    EXPECT_GE(event["usage"]["completion_tokens"], before);
    before = event["usage"]["completion_tokens"];
  }
  EXPECT_GT(before, 3);
}

constexpr char kTools[] =
    R"(,"tools":[{"type":"function","function":{"name":"f"}}],"thinking":{"type":"disabled"})";
constexpr char kTwoCalls[] =
    "Sure.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n"
    "<｜DSML｜ parameter name=\"a\" string=\"true\">x</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n"
    "<｜DSML｜ invoke name=\"g\">\n\n</｜DSML｜ invoke>\n</｜DSML｜ calls><｜end▁of▁sentence｜>";

TEST(ChatStream, ToolCallsHaveIndexAndIdOnce) {
  Exchange exchange(Body(std::string(kTools) + R"(,"stream":true)"));
  exchange.Say(kTwoCalls);
  exchange.Finish();
  const auto events = exchange.Events();
  EXPECT_EQ(Join(events, "content"), "Sure.");
  EXPECT_EQ(events[0]["choices"][0]["delta"], json::parse(R"({"role":"assistant","content":""})"));
  std::map<int, std::string> arguments;
  std::map<int, int> ids;
  for (const json& event : events) {
    const json& delta = event["choices"][0]["delta"];
    if (!delta.contains("tool_calls")) continue;
    const json& call = delta["tool_calls"][0];
    ASSERT_TRUE(call.contains("index"));
    ids[call["index"]] += call.contains("id");
    arguments[call["index"]] += call["function"]["arguments"];
  }
  EXPECT_EQ(arguments, (std::map<int, std::string>{{0, R"({"a": "x"})"}, {1, "{}"}}));
  EXPECT_EQ(ids, (std::map<int, int>{{0, 1}, {1, 1}}));
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "tool_calls");
}

TEST(ChatStream, LengthInsideACallKeepsItsReason) {
  Exchange exchange(Body(std::string(kTools) + R"(,"stream":true)"));
  exchange.Say("<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n");
  exchange.Finish(EngineFinish::kLength);
  EXPECT_EQ(exchange.Events().back()["choices"][0]["finish_reason"], "length");
}

TEST(ChatStream, StopStringEndsTheAnswer) {
  Exchange exchange(Body(R"(,"stream":true,"stop":"END","thinking":{"type":"disabled"})"));
  EXPECT_TRUE(exchange.Say("one two END three"));
  EXPECT_TRUE(exchange.Say("more"));
  exchange.Finish(EngineFinish::kLength);
  EXPECT_EQ(Join(exchange.Events(), "content"), "one two ");
  EXPECT_EQ(exchange.Events().back()["choices"][0]["finish_reason"], "stop");
}

TEST(ChatStream, FailureIsAnEventAndNoDone) {
  Exchange exchange(Body(R"(,"stream":true)"));
  exchange.Say("half");
  exchange.response->Fail(Error(Reason::kPeerLost, "the decode process went away"), &exchange.out);
  EXPECT_FALSE(exchange.Done());
  EXPECT_EQ(exchange.Events().back()["error"]["message"], "the decode process went away");
  const size_t size = exchange.out.size();
  exchange.Finish();
  exchange.Say("late");
  EXPECT_EQ(exchange.out.size(), size);
}

TEST(ChatBody, EqualsTheStream) {
  const std::string more = std::string(kTools);
  Exchange stream(Body(more + R"(,"stream":true)"));
  Exchange whole(Body(more));
  EXPECT_EQ(whole.response->content_type(), "application/json");
  for (Exchange* one : {&stream, &whole}) {
    one->Say(kTwoCalls);
    one->Finish();
  }
  const json body = json::parse(whole.out);
  const json& message = body["choices"][0]["message"];
  EXPECT_EQ(message["content"], Join(stream.Events(), "content"));
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], R"({"a": "x"})");
  EXPECT_EQ(message["tool_calls"][1]["function"]["name"], "g");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(body["usage"], stream.Events().back()["usage"]);
  EXPECT_EQ(body["system_fingerprint"], "fp");
}

TEST(ChatBody, SeveralChoicesInterleaved) {
  Exchange exchange(Body(R"(,"n":2,"thinking":{"type":"disabled"})"));
  exchange.Say("a", 1);
  exchange.Say("b", 0);
  exchange.Finish(EngineFinish::kStop, 1);
  EXPECT_TRUE(exchange.out.empty());
  exchange.Finish(EngineFinish::kLength, 0);
  const json body = json::parse(exchange.out);
  EXPECT_EQ(body["choices"][0]["message"]["content"], "b");
  EXPECT_EQ(body["choices"][1]["message"]["content"], "a");
  EXPECT_EQ(body["usage"]["completion_tokens"], 2);
}

TEST(ChatStream, AnInternalFailureNamesTheRequest) {
  Exchange exchange(Body(R"(,"stream":true)"));
  exchange.response->Fail(absl::InternalError("detail"), &exchange.out);
  const std::string message = exchange.Events().back()["error"]["message"];
  EXPECT_NE(message.find("req-1"), std::string::npos);
  EXPECT_EQ(message.find("detail"), std::string::npos);
}

TEST(ChatBody, Failure) {
  Exchange exchange(Body(""));
  exchange.response->Fail(Error(Reason::kDeadline, "too slow"), &exchange.out);
  EXPECT_EQ(json::parse(exchange.out)["error"]["code"], "timeout");
}

// Bytes of every logprob entry, joined.
std::string BytesOf(const json& entries) {
  std::string text;
  for (const json& entry : entries) {
    for (const json& byte : entry["bytes"]) text.push_back(static_cast<char>(byte.get<int>()));
  }
  return text;
}

TEST(Logprobs, BytesDecodeToTheTextInBothModes) {
  const std::string text = "why</think>né 🦀<｜end▁of▁sentence｜>";
  std::string collected[2];
  std::string reasoning[2];
  for (const bool streaming : {false, true}) {
    Exchange exchange(Body(std::string(R"(,"logprobs":true,"top_logprobs":1)") +
                           (streaming ? R"(,"stream":true)" : "")));
    for (const TokenId id : exchange.Ids(text)) {
      const TokenLogprob logprob{-0.5f, {{id, -0.5f}}};
      exchange.response->Push(0, std::span(&id, 1), std::span(&logprob, 1), &exchange.out);
    }
    exchange.Finish();
    std::vector<json> parts = streaming ? exchange.Events()
                                        : std::vector<json>{json::parse(exchange.out)};
    for (const json& part : parts) {
      const json& logprobs = part["choices"][0]["logprobs"];
      if (logprobs.is_null()) continue;
      collected[streaming] += BytesOf(logprobs["content"]);
      if (logprobs.contains("reasoning_content")) {
        reasoning[streaming] += BytesOf(logprobs["reasoning_content"]);
        EXPECT_EQ(logprobs["reasoning_content"][0]["top_logprobs"].size(), 1u);
      }
    }
  }
  EXPECT_EQ(collected[0], "né 🦀");
  EXPECT_EQ(reasoning[0], "why");
  EXPECT_EQ(collected[0], collected[1]);
  EXPECT_EQ(reasoning[0], reasoning[1]);
}

TEST(TextStream, EchoIdsAndChunks) {
  Exchange exchange(
      R"({"model":"m","prompt":"the water","echo":true,"stream":true,"return_token_ids":true})",
      Api::kCompletions);
  exchange.Say("\n falls</think>");
  exchange.Finish(EngineFinish::kLength);
  std::string text;
  json ids = json::array();
  for (const json& event : exchange.Events()) {
    EXPECT_EQ(event["object"], "text_completion");
    EXPECT_EQ(event["id"], "cmpl-7");
    text += event["choices"][0]["text"];
    for (const json& id : event["choices"][0]["token_ids"]) ids.push_back(id);
  }
  EXPECT_EQ(text, "the water\n falls</think>");
  EXPECT_EQ(ids, json(exchange.Ids("\n falls</think>")));
  EXPECT_EQ(exchange.Events()[0]["choices"][0]["prompt_token_ids"], json(exchange.prompt.ids));
  EXPECT_EQ(exchange.Events().back()["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(exchange.Done());
}

TEST(TextBody, LogprobsAreParallelArrays) {
  Exchange exchange(R"({"model":"m","prompt":[5,6],"logprobs":2})", Api::kCompletions);
  const auto ids = exchange.Ids("é the");
  std::vector<TokenLogprob> logprobs(ids.size(), TokenLogprob{-1.0f, {{40, -0.25f}, {41, -3.0f}}});
  exchange.response->Push(0, ids, logprobs, &exchange.out);
  exchange.Finish();
  const json choice = json::parse(exchange.out)["choices"][0];
  EXPECT_EQ(choice["text"], "é the");
  const json& got = choice["logprobs"];
  for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    EXPECT_EQ(got[key].size(), ids.size()) << key;
  }
  EXPECT_EQ(got["text_offset"].back(), 1);
}

}  // namespace
}  // namespace weir::codec
