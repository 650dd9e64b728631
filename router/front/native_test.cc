// SPDX-License-Identifier: Apache-2.0
//
// Requests and answers of the native API, without gRPC.
#include <gtest/gtest.h>

#include <limits>

#include "codec/dialect/chat.h"
#include "codec/dialect/completions.h"
#include "router/front/native_request.h"
#include "router/front/native_response.h"

namespace weir::router {
namespace {

const codec::RequestLimits kLimits;

TEST(NativeRequest, HasEveryFieldOfAChat) {
  v1::GenerateRequest request;
  v1::ChatTurn* turn = request.mutable_chat()->add_turns();
  turn->set_role("user");
  turn->set_content("a \"quoted\"\ntext");
  turn = request.mutable_chat()->add_turns();
  turn->set_role("assistant");
  turn->set_reasoning("r");
  v1::ToolUse* use = turn->add_calls();
  use->set_id("c");
  use->set_name("f");
  use->set_arguments("{\"a\":1}");
  turn = request.mutable_chat()->add_turns();
  turn->set_role("tool");
  turn->set_tool_call_id("c");
  turn->set_content("42");
  v1::ToolSpec* tool = request.mutable_chat()->add_tools();
  tool->set_name("f");
  tool->set_parameters("{\"type\":\"object\"}");
  request.mutable_chat()->set_tool_choice("function:f");
  request.set_max_tokens(9);
  request.add_stop("x");
  request.set_temperature(0.5f);
  request.set_seed(18446744073709551615u);
  request.set_logprobs(true);
  request.set_top_logprobs(2);
  request.set_user("u");
  v1::LogitBias* bias = request.add_logit_bias();
  bias->set_token(5);
  bias->set_bias(-1.5f);
  const NativeBody body = BodyOf(request);
  EXPECT_EQ(body.page, Page::kChat);
  const auto read = codec::ParseChat(body.json, kLimits);
  ASSERT_TRUE(read.ok()) << read.status() << body.json;
  const auto& messages = read->conversation.messages;
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(TextOf(messages[0]), "a \"quoted\"\ntext");
  EXPECT_EQ(messages[1].reasoning, "r");
  EXPECT_EQ(messages[1].calls[0].arguments, "{\"a\":1}");
  EXPECT_EQ(read->conversation.tool_choice, codec::ToolChoice::kRequired);
  EXPECT_EQ(read->sampling.seed, 18446744073709551615u);
  EXPECT_EQ(read->sampling.temperature, 0.5f);
  EXPECT_EQ(read->sampling.logit_bias[0].second, -1.5f);
  EXPECT_EQ(read->logprobs.top, 2);
  EXPECT_EQ(read->limits.max_tokens, 9u);
  EXPECT_TRUE(read->stream.stream);
}

TEST(NativeRequest, IdsTextAndNothing) {
  v1::GenerateRequest request;
  EXPECT_FALSE(codec::ParseCompletions(BodyOf(request).json, kLimits).ok());
  request.mutable_ids()->add_ids(7);
  auto read = codec::ParseCompletions(BodyOf(request).json, kLimits);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(std::get<std::vector<TokenId>>(read->raw->prompt), (std::vector<TokenId>{7}));
  request.set_text("t");
  read = codec::ParseCompletions(BodyOf(request).json, kLimits);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(std::get<std::string>(read->raw->prompt), "t");
}

TEST(NativeRequest, WhatCannotBeIsRefusedByItsName) {
  v1::GenerateRequest request;
  request.set_text("t");
  request.set_temperature(std::numeric_limits<float>::quiet_NaN());
  EXPECT_FALSE(codec::ParseCompletions(BodyOf(request).json, kLimits).ok());
  v1::GenerateRequest chat;
  chat.mutable_chat()->add_turns()->set_role("user");
  v1::ToolSpec* tool = chat.mutable_chat()->add_tools();
  tool->set_name("f");
  tool->set_parameters("}},\"model\":\"other\",\"x\":{{");
  EXPECT_FALSE(codec::ParseChat(BodyOf(chat).json, kLimits).ok());
  EXPECT_EQ(NativeParam("messages[2].content"), "chat.turns[2].content");
  EXPECT_EQ(NativeParam("tool_choice"), "chat.tool_choice");
  EXPECT_EQ(NativeParam("top_p"), "top_p");
}

TEST(NativeResponse, EventsCarryIdsTextAndTheEnd) {
  const auto tokenizer = *codec::Tokenizer::FromFile("deploy/models/script/tokenizer.json");
  const auto renderer = *codec::Renderer::Create(tokenizer, codec::TemplateKind::kV41, 512);
  const auto request = *codec::ParseChat(
      R"({"messages":[{"role":"user","content":"hi"}],"logprobs":true,
          "tools":[{"type":"function","function":{"name":"f"}}]})",
      kLimits);
  const codec::Prompt prompt = *renderer->Render(request, 1000);
  const auto response = MakeNativeResponse(request, prompt, tokenizer, {"7", 0, "m", "", "r"});
  std::string out;
  response->Start(&out);
  const std::vector<TokenId> ids = tokenizer->EncodeTrusted(
      "why</think>Sure.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n</｜DSML｜ invoke>\n"
      "</｜DSML｜ calls>");
  const std::vector<codec::TokenLogprob> scores(ids.size(), {-0.5f, {{3, -0.5f}}});
  response->Push(0, ids, scores, &out);
  response->Finish(0, codec::EngineFinish::kStop, &out);
  std::string_view rest = out;
  v1::GenerateEvent event;
  ASSERT_TRUE(event.ParseFromString(std::string(TakeNativeMessage(&rest))));
  EXPECT_EQ(std::vector<TokenId>(event.ids().begin(), event.ids().end()), ids);
  EXPECT_EQ(event.logprobs_size(), event.ids_size());
  EXPECT_EQ(event.reasoning(), "why");
  EXPECT_EQ(event.text(), "Sure.");
  ASSERT_EQ(event.calls_size(), 1);
  EXPECT_EQ(event.calls(0).name(), "f");
  EXPECT_EQ(event.calls(0).arguments(), "{}");
  EXPECT_EQ(event.calls(0).id(), "call_7_0");
  ASSERT_TRUE(event.ParseFromString(std::string(TakeNativeMessage(&rest))));
  EXPECT_EQ(event.finish().end(), v1::ANSWER_END_TOOL_CALLS);
  EXPECT_EQ(event.finish().usage().prompt_tokens(), prompt.ids.size());
  EXPECT_EQ(event.finish().usage().completion_tokens(), ids.size());
  EXPECT_TRUE(TakeNativeMessage(&rest).empty() && rest.empty());
}

}  // namespace
}  // namespace weir::router
