// SPDX-License-Identifier: Apache-2.0
#include "router/front/routes.h"

#include <gtest/gtest.h>

namespace weir::router {
namespace {

TEST(Routes, PathsUnderEveryPrefix) {
  const struct {
    const char* path;
    Page page;
    codec::ErrorShape shape;
  } kCases[] = {
      {"/v1/chat/completions", Page::kChat, codec::ErrorShape::kOpenAi},
      {"/chat/completions", Page::kChat, codec::ErrorShape::kOpenAi},
      {"/beta/chat/completions", Page::kChat, codec::ErrorShape::kOpenAi},
      {"/beta/completions", Page::kCompletions, codec::ErrorShape::kOpenAi},
      {"/v1/responses", Page::kResponses, codec::ErrorShape::kOpenAi},
      {"/v1/messages", Page::kMessages, codec::ErrorShape::kAnthropic},
      {"/anthropic/v1/messages", Page::kMessages, codec::ErrorShape::kAnthropic},
      {"/anthropic/v1/messages/count_tokens", Page::kCountTokens, codec::ErrorShape::kAnthropic},
      {"/anthropic/v1/nothing", Page::kNone, codec::ErrorShape::kAnthropic},
      {"/anthropic/v1/models", Page::kModels, codec::ErrorShape::kAnthropic},
      {"/v1/models", Page::kModels, codec::ErrorShape::kOpenAi},
      {"/tokenize", Page::kTokenize, codec::ErrorShape::kOpenAi},
      {"/v1/detokenize", Page::kDetokenize, codec::ErrorShape::kOpenAi},
      {"/apply-template", Page::kApplyTemplate, codec::ErrorShape::kOpenAi},
      {"/", Page::kNone, codec::ErrorShape::kOpenAi},
      {"", Page::kNone, codec::ErrorShape::kOpenAi},
      {"/v1", Page::kNone, codec::ErrorShape::kOpenAi},
      {"/v1/v1/models", Page::kNone, codec::ErrorShape::kOpenAi},
      {"/v1models", Page::kNone, codec::ErrorShape::kOpenAi},
      {"/v1/chat/completions/", Page::kNone, codec::ErrorShape::kOpenAi},
  };
  for (const auto& c : kCases) {
    const Target target = TargetOf(c.path);
    EXPECT_EQ(target.page, c.page) << c.path;
    EXPECT_EQ(target.shape, c.shape) << c.path;
  }
  EXPECT_EQ(TargetOf("/v1/models/deepseek-ai/V4.1").model, "deepseek-ai/V4.1");
}

}  // namespace
}  // namespace weir::router
