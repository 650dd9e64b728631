// SPDX-License-Identifier: Apache-2.0
//
// What responses of dialects with one choice share: the parser, the counting and the one end. The
// dialect writes what the parser found. Contract as response.h.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "codec/stream/response.h"
#include "codec/stream/stream_parser.h"

namespace weir::codec {

class SingleResponse : public Response {
 public:
  std::string_view content_type() const final {
    return stream_ ? "text/event-stream" : "application/json";
  }
  bool Push(int choice, std::span<const TokenId> ids, TokenLogprobs logprobs,
            std::string* out) final;
  void Finish(int choice, EngineFinish reason, std::string* out) final;
  void Fail(const absl::Status& status, std::string* out) final;

 protected:
  SingleResponse(const ChatRequest& request, const Prompt& prompt,
                 std::shared_ptr<const Tokenizer> tokenizer, ResponseHead head);

  // The ids that were taken, before what they meant.
  virtual void OnTokens(std::span<const TokenId> ids, TokenLogprobs logprobs) {}
  // A token of the content, before what it meant; only where log-probabilities were asked for.
  virtual void OnContentScore(TokenId id, const TokenLogprob& score) {}
  // Never with an empty text, but for the beginning of a call.
  virtual void OnEvent(const StreamEvents::Event& event, std::string_view text,
                       std::string* out) = 0;
  // After the events of one group of ids.
  virtual void OnPushed(std::string* out) {}
  // `stop` is the stop string that ended the answer; empty if none did.
  virtual void OnFinish(FinishReason reason, std::string_view stop, std::string* out) = 0;
  // A stream only.
  virtual void OnFail(const absl::Status& status, std::string* out) = 0;

  bool stream() const { return stream_; }
  const ResponseHead& head() const { return head_; }
  std::string_view request_id() const {
    return head_.request_id.empty() ? head_.id : head_.request_id;
  }

 private:
  size_t PushEach(std::span<const TokenId> ids, TokenLogprobs logprobs);
  void Deliver(std::string* out);

  const bool stream_;
  const ResponseHead head_;
  StreamParser parser_;
  StreamEvents events_;  // scratch
};

}  // namespace weir::codec
