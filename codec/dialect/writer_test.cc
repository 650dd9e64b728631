// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/stdx/status.h"
#include "codec/dialect/error_body.h"
#include "codec/dialect/models_body.h"
#include "codec/dialect/openai_writer.h"

namespace weir::codec {
namespace {

using nlohmann::json;

const ResponseHead kHead{"7f", 1234, "m\"1", ""};
constexpr char kOpen[] =
    R"(data: {"id":"chatcmpl-7f","object":"chat.completion.chunk","created":1234,"model":"m\"1",)"
    R"("system_fingerprint":null,"choices":[{"index":0,"delta":)";

TEST(ChatChunks, HaveTheExactShape) {
  const ChatChunkWriter plain(kHead, false);
  const ChatChunkWriter thinking(kHead, true);
  const ChunkTail tail;
  const std::string close = R"(,"logprobs":null,"finish_reason":null}]})" "\n\n";
  std::string out;
  plain.Role(0, tail, &out);
  EXPECT_EQ(out, kOpen + std::string(R"({"role":"assistant","content":""})") + close);
  out.clear();
  thinking.Role(0, tail, &out);
  EXPECT_EQ(out, kOpen +
                     std::string(
                         R"({"role":"assistant","content":null,"reasoning_content":""})") +
                     close);
  out.clear();
  thinking.Content(0, "é\n", tail, &out);
  EXPECT_EQ(out, kOpen + std::string(R"({"content":"é\n","reasoning_content":null})") + close);
  out.clear();
  thinking.Reasoning(0, "r", tail, &out);
  EXPECT_EQ(out, kOpen + std::string(R"({"content":null,"reasoning_content":"r"})") + close);
  out.clear();
  plain.ToolBegin(0, 1, "f", tail, &out);
  EXPECT_EQ(out, kOpen +
                     std::string(R"({"tool_calls":[{"index":1,"id":"call_7f_1","type":"function",)"
                                 R"("function":{"name":"f","arguments":""}}]})") +
                     close);
  out.clear();
  plain.ToolArguments(0, 1, "{\"a\"", tail, &out);
  EXPECT_EQ(out,
            kOpen +
                std::string(
                    R"({"tool_calls":[{"index":1,"function":{"arguments":"{\"a\""}}]})") +
                close);
}

TEST(ChatChunks, UsageRidesOnTheFinishOrAlone) {
  const ChatChunkWriter plain(kHead, false);
  const Usage usage{10, 4, 3, 1};
  ChunkTail tail;
  tail.finish = FinishReason::kLength;
  tail.usage_field = UsageField::kValue;
  tail.usage = &usage;
  std::string out;
  plain.Content(0, "", tail, &out);
  json chunk = json::parse(out.substr(6));
  EXPECT_EQ(chunk["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(chunk["usage"]["total_tokens"], 14);
  EXPECT_EQ(chunk["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
  EXPECT_EQ(chunk["usage"]["prompt_cache_hit_tokens"], 3);
  EXPECT_EQ(chunk["usage"]["prompt_cache_miss_tokens"], 7);
  out.clear();
  plain.UsageOnly(usage, &out);
  chunk = json::parse(out.substr(6));
  EXPECT_TRUE(chunk["choices"].empty());
  EXPECT_EQ(chunk["usage"]["completion_tokens"], 4);
}

TEST(Bodies, AreOneJsonObject) {
  std::vector<CollectedChoice> choices(2);
  choices[0].content = "a";
  choices[0].finish = FinishReason::kStop;
  choices[1].calls = {{"f", "{\"x\": 1}"}, {"g", "{}"}};
  choices[1].finish = FinishReason::kToolCalls;
  std::string out;
  AppendChatBody(kHead, true, choices, "[1,2]", Usage{2, 3, 0, 0}, &out);
  const json body = json::parse(out);
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["choices"][0]["message"]["content"], "a");
  EXPECT_EQ(body["choices"][1]["message"]["tool_calls"][1]["id"], "call_7f_1_1");
  EXPECT_EQ(body["choices"][1]["message"]["tool_calls"][0]["function"]["arguments"], "{\"x\": 1}");
  EXPECT_EQ(body["prompt_token_ids"], json({1, 2}));
  out.clear();
  AppendTextBody(kHead, choices, "", Usage{}, &out);
  EXPECT_EQ(json::parse(out)["object"], "text_completion");
  EXPECT_EQ(json::parse(out)["choices"][0]["text"], "a");
}

TEST(Errors, TellTheFieldAndTheRetry) {
  const auto bad = Error(Reason::kBadField, "`n` must be between 1 and 16", "n");
  ErrorReply reply = MakeErrorReply(bad, ErrorShape::kOpenAi, "req-1");
  EXPECT_EQ(reply.http, 400);
  EXPECT_EQ(reply.body,
            R"({"error":{"message":"`n` must be between 1 and 16","type":"invalid_request_error",)"
            R"("param":"n","code":"invalid_request_error"}})");
  EXPECT_EQ(reply.headers.size(), 1u);
  reply = MakeErrorReply(Error(Reason::kQueueFull, "busy"), ErrorShape::kOpenAi, "r", 1500);
  EXPECT_EQ(reply.http, 503);
  ASSERT_EQ(reply.headers.size(), 3u);
  EXPECT_EQ(reply.headers[1], (std::pair<std::string, std::string>("retry-after", "2")));
  EXPECT_EQ(reply.headers[2], (std::pair<std::string, std::string>("retry-after-ms", "1500")));
  reply = MakeErrorReply(Error(Reason::kUnknownModel, "no model x", "model"), ErrorShape::kOpenAi,
                         "r");
  EXPECT_EQ(reply.http, 404);
  EXPECT_EQ(json::parse(reply.body)["error"]["code"], "model_not_found");
  reply = MakeErrorReply(Error(Reason::kUnknownModel, "nothing there"), ErrorShape::kOpenAi, "r");
  EXPECT_EQ(json::parse(reply.body)["error"]["code"], "not_found");
  reply = MakeErrorReply(Error(Reason::kTooLong, "too long"), ErrorShape::kOpenAi, "r");
  EXPECT_EQ(json::parse(reply.body)["error"]["code"], "context_length_exceeded");
}

TEST(Errors, InternalDetailStaysInside) {
  const auto bug = absl::InternalError("pointer 0xdead");
  const ErrorReply reply = MakeErrorReply(bug, ErrorShape::kAnthropic, "req-9");
  EXPECT_EQ(reply.http, 500);
  EXPECT_EQ(reply.body.find("0xdead"), std::string::npos);
  EXPECT_EQ(json::parse(reply.body)["error"]["type"], "api_error");
  EXPECT_EQ(json::parse(reply.body)["request_id"], "req-9");
}

TEST(Errors, InsideAStream) {
  std::string out;
  AppendErrorEvent(Error(Reason::kPeerLost, "lost"), ErrorShape::kOpenAi, "r", &out);
  EXPECT_EQ(out.substr(0, 6), "data: ");
  EXPECT_EQ(out.substr(out.size() - 2), "\n\n");
  EXPECT_EQ(json::parse(out.substr(6))["error"]["message"], "lost");
  out.clear();
  AppendErrorEvent(Error(Reason::kPeerLost, "lost"), ErrorShape::kAnthropic, "r", &out);
  EXPECT_EQ(out.rfind("event: error\ndata: ", 0), 0u);
}

TEST(Models, ListAndOne) {
  const ModelCard card{"weir", 5, "weir", 4096};
  const json list = json::parse(ModelListBody(std::span(&card, 1)));
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"][0], json::parse(ModelBody(card)));
  EXPECT_EQ(list["data"][0]["object"], "model");
  EXPECT_EQ(list["data"][0]["max_model_len"], 4096);
}

}  // namespace
}  // namespace weir::codec
