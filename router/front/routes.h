// SPDX-License-Identifier: Apache-2.0
//
// Which page of the public API a path names, under all the prefixes that clients put before it, and
// whose shape its errors have. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "codec/conversation/conversation.h"
#include "codec/dialect/error_body.h"

namespace weir::router {

enum class Page : uint8_t {
  kNone,
  kChat,
  kCompletions,
  kMessages,
  kCountTokens,
  kResponses,
  kTokenize,
  kDetokenize,
  kApplyTemplate,
  kModels,
  kModel,
};

struct Target {
  Page page = Page::kNone;
  std::string_view model;  // kModel: which one
  codec::ErrorShape shape = codec::ErrorShape::kOpenAi;
};

// `path` without a query. "/v1", "/beta" and "/anthropic" may lead it.
Target TargetOf(std::string_view path);

// The page takes POST; else GET.
bool TakesBody(Page page);
// The page has an answer by the model.
bool IsAnswered(Page page);
// Whose fields the body has.
codec::Api ApiOf(Page page);
// "POST /v1/chat/completions": what spans call it.
const char* NameOf(Page page);

}  // namespace weir::router
