// SPDX-License-Identifier: Apache-2.0
#include "codec/stream/single_response.h"

#include <utility>

#include "base/stdx/check.h"
#include "base/stdx/planted.h"
#include "codec/dialect/error_body.h"

namespace weir::codec {

SingleResponse::SingleResponse(const ChatRequest& request, const Prompt& prompt,
                               std::shared_ptr<const Tokenizer> tokenizer, ResponseHead head)
    : stream_(request.stream.stream),
      head_(std::move(head)),
      parser_(std::move(tokenizer), ParserOptionsFor(request, prompt)) {
  usage_.prompt_tokens = prompt.ids.size();
  open_choices_ = 1;
}

bool SingleResponse::Push(int choice, std::span<const TokenId> ids, TokenLogprobs logprobs,
                          std::string* out) {
  if (done() || parser_.stopped()) return true;
  events_.Clear();
  const size_t taken = logprobs.empty() ? parser_.Push(ids, &events_) : PushEach(ids, logprobs);
  usage_.completion_tokens += taken;
  usage_.reasoning_tokens = parser_.reasoning_ids();
  OnTokens(ids.first(taken), logprobs.empty() ? logprobs : logprobs.first(taken));
  Deliver(out);
  OnPushed(out);
  return parser_.stopped();
}

// Id by id, since each belongs to the part it is in.
size_t SingleResponse::PushEach(std::span<const TokenId> ids, TokenLogprobs logprobs) {
  WEIR_CHECK(logprobs.size() == ids.size());
  size_t taken = 0;
  while (taken < ids.size() && !parser_.stopped()) {
    const bool content = !parser_.reasoning() && parser_.tool_calls() == 0;
    parser_.Push(ids.subspan(taken, 1), &events_);
    if (content) OnContentScore(ids[taken], logprobs[taken]);
    ++taken;
  }
  return taken;
}

void SingleResponse::Finish(int choice, EngineFinish reason, std::string* out) {
  if (done()) return;
  open_choices_ = 0;
  events_.Clear();
  parser_.Finish(&events_);
  Deliver(out);
  if (stream_ && IsPlanted(Planted::kDropFinish)) return;
  OnFinish(FinishReasonOf(reason, parser_), parser_.stop(), out);
}

void SingleResponse::Fail(const absl::Status& status, std::string* out) {
  if (done()) return;
  open_choices_ = 0;
  if (stream_) {
    OnFail(status, out);
  } else {
    AppendErrorBody(status, error_shape(), request_id(), out);
  }
}

void SingleResponse::Deliver(std::string* out) {
  for (const StreamEvents::Event& event : events_.events) {
    const std::string_view text = events_.TextOf(event);
    if (!text.empty() || event.kind == StreamEventKind::kToolBegin) OnEvent(event, text, out);
  }
}

}  // namespace weir::codec
