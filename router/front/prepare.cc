// SPDX-License-Identifier: Apache-2.0
#include "router/front/prepare.h"

#include <utility>
#include <vector>

#include "base/stdx/bytes.h"
#include "base/stdx/status.h"
#include "codec/dialect/chat.h"
#include "codec/dialect/completions.h"
#include "codec/dialect/messages.h"
#include "codec/dialect/messages_writer.h"
#include "codec/dialect/responses.h"
#include "codec/dialect/tokenize.h"

namespace weir::router {
namespace {

using codec::Api;
using codec::ChatRequest;

absl::StatusOr<ChatRequest> Parse(Api api, std::string_view body,
                                  const codec::RequestLimits& limits) {
  switch (api) {
    case Api::kChat:
      return codec::ParseChat(body, limits);
    case Api::kCompletions:
      return codec::ParseCompletions(body, limits);
    case Api::kMessages:
      return codec::ParseMessages(body, limits);
    case Api::kResponses:
      return codec::ParseResponses(body, limits);
  }
  return Error(Reason::kBug, "a dialect without a parser");
}

// Clients of one model often send none, and those of Anthropic's name models of theirs.
absl::Status ChooseModel(Api api, const std::string& served, std::string* asked) {
  const bool foreign = api == Api::kMessages && asked->rfind("claude", 0) == 0;
  if (asked->empty() || foreign) *asked = served;
  return *asked == served ? absl::OkStatus() : UnknownModel(*asked, served);
}

absl::StatusOr<codec::Prompt> RenderFor(const Reading& with, ChatRequest* request) {
  request->tenant = with.tenant;
  WEIR_TRY(ChooseModel(request->api, with.model, &request->model));
  auto prompt = with.renderer->Render(*request, with.prompt_max, with.history.get());
  // A template knows a conversation, whatever its dialect calls it.
  if (ParamOf(prompt.status()) == "messages") {
    return Error(ReasonOf(prompt.status()), StdView(prompt.status().message()),
                 codec::PromptFieldOf(request->api));
  }
  return prompt;
}

absl::StatusOr<std::string> Tokenize(const Reading& with, std::string_view body) {
  WEIR_ASSIGN(codec::TokenizeRequest read, codec::ParseTokenize(body, with.limits));
  WEIR_ASSIGN(codec::Prompt prompt, RenderFor(with, &read.request));
  const codec::Vocab& vocab = with.renderer->tokenizer()->vocab();
  auto& ids = prompt.ids;
  const bool begun = !ids.empty() && vocab.bos() && ids.front() == *vocab.bos();
  if (!read.special && begun && read.request.raw) ids.erase(ids.begin());
  if (with.page == Page::kApplyTemplate) {
    return codec::TextBody(with.renderer->tokenizer()->Decode(ids));
  }
  std::vector<std::string> spellings;
  if (read.spellings) {
    for (const TokenId id : ids) spellings.emplace_back(vocab.BytesOf(id));
  }
  return codec::TokenizeBody(ids, spellings, with.prompt_max);
}

absl::StatusOr<std::string> Detokenize(const Reading& with, std::string_view body) {
  WEIR_ASSIGN(codec::DetokenizeRequest read, codec::ParseDetokenize(body, with.limits));
  WEIR_TRY(ChooseModel(Api::kCompletions, with.model, &read.model));
  return codec::TextBody(with.renderer->tokenizer()->Decode(read.tokens));
}

}  // namespace

absl::StatusOr<Prepared> Prepare(const Reading& with, std::string_view body) {
  Prepared prepared;
  if (with.page == Page::kTokenize || with.page == Page::kApplyTemplate) {
    WEIR_ASSIGN(prepared.reply, Tokenize(with, body));
    return prepared;
  }
  if (with.page == Page::kDetokenize) {
    WEIR_ASSIGN(prepared.reply, Detokenize(with, body));
    return prepared;
  }
  WEIR_ASSIGN(prepared.request, Parse(ApiOf(with.page), body, with.limits));
  WEIR_ASSIGN(prepared.prompt, RenderFor(with, &prepared.request));
  if (with.page == Page::kCountTokens) {
    prepared.reply = codec::TokenCountBody(prepared.prompt.ids.size());
  }
  return prepared;
}

absl::Status UnknownModel(std::string_view asked, std::string_view served) {
  return Error(Reason::kUnknownModel,
               "model '" + std::string(asked) + "' is not served here; this server has '" +
                   std::string(served) + "'",
               "model");
}

}  // namespace weir::router
