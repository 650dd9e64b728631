// SPDX-License-Identifier: Apache-2.0
//
// Answer: one client's answer from the first id to the last byte. It feeds ids through the codec's
// Response into the client's connection, and holds them back while the client takes nothing. Lives
// on the responder's loop, never blocks. It borrows its owner, which outlives it, and shares the
// responder. A client that goes away or stalls ends it; what was asked for is then withdrawn.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/net/http_server.h"
#include "base/obs/span.h"
#include "base/runtime/gate.h"
#include "codec/stream/response.h"
#include "router/session/router_io.h"

namespace weir::router {

class Answer;

class AnswerOwner {
 public:
  virtual ~AnswerOwner() = default;
  // This choice needs nothing more: `satisfied` when its stop string was found.
  virtual void Withdrawn(RequestId request, bool satisfied) = 0;
  // The first byte of the answer's content is about to be sent.
  virtual void FirstToken(const Answer& answer) = 0;
  // The last byte was handed over, or nobody is there to take it (kCancelled).
  virtual void Ended(Answer* answer, Reason reason) = 0;
};

class Answer : public std::enable_shared_from_this<Answer> {
 public:
  struct Options {
    std::shared_ptr<HttpResponder> responder;
    std::unique_ptr<codec::Response> response;
    std::string request_id;  // for error bodies
    bool stream = false;
    // Ends the call with a status where that is not a body's or an event's to tell; may be empty.
    std::function<void(const absl::Status&)> refuse;
    std::string_view prompt_field = "prompt";  // what the client's dialect calls it
    Instant begun;
    std::optional<Gate::Pass> pass;  // keeps a drain waiting
    Span span;  // of the request as far as it is known; recorded where its trace is sampled
    // What the prompt history knows the prompt as, which may forget it meanwhile; empty if it does
    // not. Emitted ids are kept only for it.
    std::weak_ptr<const codec::KnownText> known;
    uint64_t prompt_tokens = 0;
    AnswerOwner* owner = nullptr;
  };

  explicit Answer(Options options);

  // Choices are numbered in the order of the calls.
  void AddChoice(RequestId request);
  // Withdraws everything when the client goes away. Once, after the last AddChoice.
  void WatchClient();

  void OnDeliver(int choice, const RouterActions::Deliver& delivery);
  // The core's last word about a choice.
  void OnClose(int choice, const RouterActions::Close& close);

  // A streamed answer without a byte for `silence` gets a comment that keeps its connection.
  void KeepAlive(Instant now, Duration silence);

  const std::string& request_id() const { return options_.request_id; }
  const Span& span() const { return options_.span; }
  std::shared_ptr<const codec::KnownText> known() const { return options_.known.lock(); }
  uint64_t prompt_tokens() const { return options_.prompt_tokens; }
  size_t choices() const { return choices_.size(); }
  // The ids of one choice, as the client was shown them; taken away. Empty if nothing is known.
  std::vector<TokenId> TakeEmitted(size_t choice) { return std::move(choices_[choice].emitted); }
  // Answer tokens of all choices so far.
  uint64_t tokens() const { return tokens_; }
  Instant begun() const { return options_.begun; }
  // When the first token was there; Instant{} before that.
  Instant first_token() const { return first_token_; }
  bool over() const { return over_; }

 private:
  struct Choice {
    RequestId request;
    bool open = true;
    std::vector<TokenId> emitted;  // bounded by the answer's length
    // Held back while the client takes nothing; bounded by the answer's length.
    std::vector<TokenId> ids;
    std::vector<pb::TokenLogprob> logprobs;
    std::optional<RouterActions::Close> close;
  };

  void Push(int choice, std::span<const TokenId> ids, std::span<const pb::TokenLogprob> logprobs);
  void Finish(int choice, const RouterActions::Close& close);
  void Fail(absl::Status status);
  void Begin();
  void StartStream();
  void Flush();
  void Resume();
  void Abandon();
  void End(Reason reason);

  Options options_;
  const bool remembers_;  // emitted ids
  std::vector<Choice> choices_;
  std::string out_;
  std::vector<codec::TokenLogprob> scores_;  // reused
  Instant last_write_{};
  Instant first_token_{};
  uint64_t tokens_ = 0;
  bool begun_ = false;          // Response::Start was called
  bool head_sent_ = false;
  bool paused_ = false;         // the client takes nothing
  std::shared_ptr<Answer> self_;  // set while paused: the core may be through with it before
  bool over_ = false;
};

}  // namespace weir::router
