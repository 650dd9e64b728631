// SPDX-License-Identifier: Apache-2.0
#include "router/front/answer.h"

#include <utility>

#include "base/obs/log.h"
#include "base/runtime/clock.h"
#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/planted.h"
#include "base/stdx/random.h"
#include "codec/dialect/error_body.h"

namespace weir::router {
namespace {

codec::EngineFinish FinishOf(pb::FinishReason finish) {
  return finish == pb::FINISH_REASON_STOP ? codec::EngineFinish::kStop
                                          : codec::EngineFinish::kLength;
}

void ScoresOf(std::span<const pb::TokenLogprob> from, std::vector<codec::TokenLogprob>* to) {
  to->resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    codec::TokenLogprob& score = (*to)[i];
    score.logprob = from[i].logprob();
    score.top.clear();
    const int count = std::min(from[i].top_ids_size(), from[i].top_logprobs_size());
    for (int k = 0; k < count; ++k) {
      score.top.emplace_back(from[i].top_ids(k), from[i].top_logprobs(k));
    }
  }
}

// A planted bug: memory that answers leave behind.
void LeakSome(size_t tokens) {
  static thread_local std::vector<std::string> leaked;
  leaked.emplace_back(1024 * tokens, 'x');
}

}  // namespace

Answer::Answer(Options options)
    : options_(std::move(options)), remembers_(!options_.known.expired()) {}

void Answer::AddChoice(RequestId request) { choices_.emplace_back().request = request; }

void Answer::WatchClient() {
  options_.responder->OnGone([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Abandon();
  });
}

void Answer::OnDeliver(int choice, const RouterActions::Deliver& delivery) {
  Choice& to = choices_[static_cast<size_t>(choice)];
  if (over_ || !to.open) return;
  // Some dialects tell it before the first token.
  if (!begun_) options_.response->SetCachedTokens(delivery.cached_tokens);
  if (paused_) {
    WEIR_REACHED("answer: held back for a slow client");
    to.ids.insert(to.ids.end(), delivery.ids.begin(), delivery.ids.end());
    to.logprobs.insert(to.logprobs.end(), delivery.logprobs.begin(), delivery.logprobs.end());
    return;
  }
  Push(choice, delivery.ids, delivery.logprobs);
  Flush();
}

void Answer::OnClose(int choice, const RouterActions::Close& close) {
  Choice& of = choices_[static_cast<size_t>(choice)];
  if (over_ || !of.open) return;
  if (paused_) {
    of.close = close;
    return;
  }
  Finish(choice, close);
  Flush();
}

void Answer::Push(int choice, std::span<const TokenId> ids,
                  std::span<const pb::TokenLogprob> logprobs) {
  Begin();
  Choice& to = choices_[static_cast<size_t>(choice)];
  std::vector<TokenId> spoilt;
  if (IsPlanted(Planted::kLeakMemory)) LeakSome(ids.size());
  if (IsPlanted(Planted::kWrongToken) && Mix64(to.request.value) % 4 == 0) {
    spoilt.assign(ids.begin(), ids.end());
    if (!spoilt.empty()) spoilt[0] ^= 1;
    ids = spoilt;
  }
  tokens_ += ids.size();
  if (remembers_) to.emitted.insert(to.emitted.end(), ids.begin(), ids.end());
  ScoresOf(logprobs, &scores_);
  if (!options_.response->Push(choice, ids, scores_, &out_)) return;
  to.open = false;
  options_.response->Finish(choice, codec::EngineFinish::kStop, &out_);
  options_.owner->Withdrawn(to.request, /*satisfied=*/true);
}

void Answer::Finish(int choice, const RouterActions::Close& close) {
  choices_[static_cast<size_t>(choice)].open = false;
  if (!close.status.ok()) {
    Fail(close.status);
    return;
  }
  Begin();
  options_.response->SetCachedTokens(close.cached_tokens);
  if (IsPlanted(Planted::kDropFinish) && options_.stream) {
    End(Reason::kOk);
    StartStream();
    options_.responder->End();
    return;
  }
  options_.response->Finish(choice, FinishOf(close.finish), &out_);
}

void Answer::Fail(absl::Status status) {
  // The core knows a prompt whatever the dialect calls it.
  if (ParamOf(status) == "prompt") {
    status = Error(ReasonOf(status), StdView(status.message()), options_.prompt_field);
  }
  for (Choice& choice : choices_) {
    if (std::exchange(choice.open, false)) {
      options_.owner->Withdrawn(choice.request, /*satisfied=*/false);
    }
  }
  End(ReasonOf(status));
  // The client is told only that it was our fault.
  if (const Reason reason = ReasonOf(status); reason == Reason::kBug || reason == Reason::kCorrupt) {
    Log(LogLevel::kError, "request failed", {{"request_id", options_.request_id}, {"status", status}});
  }
  if (options_.refuse) {
    if (!out_.empty()) options_.responder->Write(out_);
    return options_.refuse(status);
  }
  if (head_sent_) {
    WEIR_REACHED("answer: failed after its head was sent");
    options_.response->Fail(status, &out_);
    options_.responder->Write(out_);
    options_.responder->End();
    return;
  }
  codec::ErrorReply reply =
      codec::MakeErrorReply(status, options_.response->error_shape(), options_.request_id);
  HttpHeaders headers;
  for (auto& [name, value] : reply.headers) headers.push_back({std::move(name), std::move(value)});
  options_.responder->Respond(reply.http, std::move(headers), std::move(reply.body));
}

void Answer::Begin() {
  if (std::exchange(begun_, true)) return;
  first_token_ = Now();
  options_.owner->FirstToken(*this);
  options_.response->Start(&out_);
}

void Answer::StartStream() {
  if (std::exchange(head_sent_, true)) return;
  options_.responder->StartStream(
      200, {{"content-type", std::string(options_.response->content_type())},
            {"cache-control", "no-cache"},
            {"x-accel-buffering", "no"}});
}

void Answer::Flush() {
  if (over_) return;
  const bool done = options_.response->done();
  if (!options_.stream) {
    if (!done) return;
    End(Reason::kOk);
    options_.responder->Respond(
        200, {{"content-type", std::string(options_.response->content_type())}}, std::move(out_));
    return;
  }
  if (!out_.empty()) {
    StartStream();
    last_write_ = Now();
    const bool more = options_.responder->Write(out_);
    out_.clear();
    if (!more && !done) {
      WEIR_REACHED("answer: client is slow");
      paused_ = true;
      self_ = shared_from_this();
      options_.responder->OnDrained([weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->Resume();
      });
    }
  }
  if (!done) return;
  End(Reason::kOk);
  options_.responder->End();
}

void Answer::Resume() {
  const std::shared_ptr<Answer> self = std::move(self_);
  if (over_) return;
  paused_ = false;
  for (size_t i = 0; i < choices_.size() && !over_; ++i) {
    Choice& choice = choices_[i];
    const std::vector<TokenId> ids = std::move(choice.ids);
    const std::vector<pb::TokenLogprob> logprobs = std::move(choice.logprobs);
    choice.ids.clear();
    choice.logprobs.clear();
    if (!ids.empty()) Push(static_cast<int>(i), ids, logprobs);
    if (choice.open && choice.close) Finish(static_cast<int>(i), *choice.close);
  }
  Flush();
}

void Answer::KeepAlive(Instant now, Duration silence) {
  // Where a failure is a status, silence needs no words: the transport has pings of its own.
  if (over_ || paused_ || !options_.stream || options_.refuse) return;
  if (now - std::max(last_write_, options_.begun) < silence) return;
  out_.append(codec::kSseKeepAlive);
  Flush();
}

void Answer::Abandon() {
  const std::shared_ptr<Answer> self = std::move(self_);
  if (over_) return;
  WEIR_REACHED("answer: client went away");
  End(Reason::kCancelled);
  for (Choice& choice : choices_) {
    if (std::exchange(choice.open, false)) {
      options_.owner->Withdrawn(choice.request, /*satisfied=*/false);
    }
  }
}

void Answer::End(Reason reason) {
  over_ = true;
  options_.owner->Ended(this, reason);
}

}  // namespace weir::router
