// SPDX-License-Identifier: Apache-2.0
#include "codec/prompt/prompt.h"

#include <gtest/gtest.h>

#include "base/stdx/status.h"

namespace weir::codec {
namespace {

std::shared_ptr<const Renderer> Script() {
  const auto tokenizer = *Tokenizer::FromFile("deploy/models/script/tokenizer.json");
  auto renderer = Renderer::Create(tokenizer, TemplateKind::kV41, 512);
  EXPECT_TRUE(renderer.ok()) << renderer.status();
  return *renderer;
}

ChatRequest Chat(std::string text) {
  ChatRequest request;
  Message message;
  message.parts.emplace_back(TextPart{std::move(text)});
  request.conversation.messages.push_back(std::move(message));
  request.conversation.thinking.enabled = false;
  return request;
}

ChatRequest Raw(RawPrompt raw) {
  ChatRequest request;
  request.api = Api::kCompletions;
  request.raw = std::move(raw);
  return request;
}

TEST(Renderer, ChatBecomesIds) {
  const auto renderer = Script();
  const auto prompt = renderer->Render(Chat("Hello <｜User｜>"), 100);
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  const Vocab& vocab = renderer->tokenizer()->vocab();
  EXPECT_EQ(prompt->ids.front(), *vocab.bos());
  EXPECT_EQ(prompt->ids.back(), *vocab.FindAdded(kThinkEndToken));
  int users = 0;
  for (const TokenId id : prompt->ids) users += id == *vocab.FindAdded(kUserToken);
  EXPECT_EQ(users, 1);
  EXPECT_EQ(renderer->tokenizer()->Decode(prompt->ids),
            "<｜begin▁of▁sentence｜><｜User｜>Hello <｜User｜><｜Assistant｜></think>");
  EXPECT_EQ(prompt->start, AnswerStart::kContent);
}

TEST(Renderer, AttributionLinesLeaveThePrompt) {
  const auto tokenizer = *Tokenizer::FromFile("deploy/models/script/tokenizer.json");
  const auto keeps = *Renderer::Create(tokenizer, TemplateKind::kV41, 512, {{}, true});
  const auto drops = Script();
  const auto ids = [](const auto& renderer, std::vector<std::string> system) {
    ChatRequest request = Chat("hi");
    Message message;
    message.author = Author::kSystem;
    for (std::string& text : system) message.parts.emplace_back(TextPart{std::move(text)});
    request.conversation.messages.insert(request.conversation.messages.begin(), message);
    return renderer->Render(request, 1000)->ids;
  };
  const std::string line = "x-anthropic-billing-header: cc_version=2.1; cch=";
  const auto plain = ids(drops, {"Be kind."});
  for (const char* hash : {"1a;", "2b;"}) {
    EXPECT_EQ(ids(drops, {line + hash + "\n\nBe kind."}), plain);
    EXPECT_EQ(ids(drops, {line + hash + "\r\nBe kind."}), plain);
    EXPECT_EQ(ids(drops, {line + hash, "Be kind."}), plain);
    EXPECT_EQ(ids(drops, {line + hash}), drops->Render(Chat("hi"), 1000)->ids);
    EXPECT_NE(ids(keeps, {line + hash + "\n\nBe kind."}), plain);
  }
  // Anywhere else it is what was said.
  EXPECT_NE(ids(drops, {"Be kind.", line}), plain);
  EXPECT_NE(drops->Render(Chat(line), 1000)->ids, drops->Render(Chat(""), 1000)->ids);
}

TEST(Renderer, TooLongNamesTheField) {
  const auto status = Script()->Render(Chat(std::string(1000, 'x')), 100).status();
  EXPECT_EQ(ReasonOf(status), Reason::kTooLong);
  EXPECT_EQ(ParamOf(status), "messages");
  EXPECT_NE(status.message().find("more than 100 tokens"), absl::string_view::npos) << status;
  // Exactly as many fit.
  const auto most = Script()->Render(Chat("some words"), 1000);
  ASSERT_TRUE(most.ok());
  EXPECT_TRUE(Script()->Render(Chat("some words"), most->ids.size()).ok());
  EXPECT_FALSE(Script()->Render(Chat("some words"), most->ids.size() - 1).ok());
}

TEST(Renderer, IdPromptsAreCheckedAgainstTheModel) {
  const auto renderer = Script();
  EXPECT_EQ(renderer->Render(Raw({std::vector<TokenId>{5, 511}, {}}), 10)->ids,
            (std::vector<TokenId>{5, 511}));
  const auto status = renderer->Render(Raw({std::vector<TokenId>{5, 512}, {}}), 10).status();
  EXPECT_EQ(ReasonOf(status), Reason::kBadField);
  EXPECT_EQ(ParamOf(status), "prompt[1]");
  ChatRequest biased = Chat("x");
  biased.sampling.logit_bias.emplace_back(512, 1.0f);
  EXPECT_EQ(ParamOf(renderer->Render(biased, 10).status()), "logit_bias");
}

TEST(Renderer, TextPromptsBeginWithTheBeginToken) {
  const auto prompt = Script()->Render(Raw({std::string("the water"), {}}), 10);
  ASSERT_TRUE(prompt.ok());
  EXPECT_EQ(prompt->ids.front(), 0);
  EXPECT_EQ(prompt->start, AnswerStart::kRaw);
  EXPECT_TRUE(Script()->Render(Raw({std::string(), {}}), 10).ok());  // the begin token alone
}

TEST(Renderer, WithoutTokenizerOnlyIdsWork) {
  const auto renderer = Renderer::WithoutChat(Tokenizer::IdsOnly(64, 0, 1), 64);
  EXPECT_TRUE(renderer->Render(Raw({std::vector<TokenId>{3}, {}}), 10).ok());
  EXPECT_EQ(ParamOf(renderer->Render(Raw({std::string("x"), {}}), 10).status()), "prompt");
  EXPECT_EQ(ParamOf(renderer->Render(Chat("x"), 10).status()), "messages");
  EXPECT_FALSE(Renderer::Create(Tokenizer::IdsOnly(64, 0, 1), TemplateKind::kV3, 64).ok());
}

}  // namespace
}  // namespace weir::codec
