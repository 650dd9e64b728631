// SPDX-License-Identifier: Apache-2.0
//
// One response to one request: token ids in, bytes to send out. Composes the stream parsers (one per
// choice) with the writer of the request's dialect, streaming and not. Used
// by one thread, never blocking, no I/O: the caller sends what was appended to `out`. Calls come as
// Start, then Push and Finish per choice in any interleaving; after the last choice's Finish the
// answer is complete. Fail replaces what is missing by an error event.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/stdx/ids.h"
#include "codec/conversation/conversation.h"
#include "codec/dialect/error_body.h"
#include "codec/dialect/openai_writer.h"
#include "codec/prompt/prompt.h"
#include "codec/stream/stream_parser.h"
#include "codec/token/tokenizer.h"

namespace weir::codec {

// How the engine ended a sequence. Tool calls and stop strings are the response's own findings.
enum class EngineFinish : uint8_t { kStop, kLength, kContentFilter, kResource };

struct TokenLogprob {
  float logprob = 0;                            // of the token itself
  std::vector<std::pair<TokenId, float>> top;  // best first
};

// What must be said about each token id, parallel to the ids; empty when not asked for.
using TokenLogprobs = std::span<const TokenLogprob>;

// What a parser must know to read the answer to `request`.
StreamParserOptions ParserOptionsFor(const ChatRequest& request, const Prompt& prompt);
// How an answer ended, of what the engine says and the parser found.
FinishReason FinishReasonOf(EngineFinish reason, const StreamParser& parser);

// SSE comment and JSON blank to keep an idle connection open.
inline constexpr std::string_view kSseKeepAlive = ": keep-alive\n\n";
inline constexpr std::string_view kBodyKeepAlive = "\n";

class Response {
 public:
  // Copies what it needs of `request` and `prompt`.
  static std::unique_ptr<Response> Create(const ChatRequest& request, const Prompt& prompt,
                                          std::shared_ptr<const Tokenizer> tokenizer,
                                          ResponseHead head);
  virtual ~Response() = default;

  // For streams "text/event-stream", else "application/json".
  virtual std::string_view content_type() const = 0;

  // Of errors instead of this response.
  virtual ErrorShape error_shape() const { return ErrorShape::kOpenAi; }

  // Prompt tokens that were not computed again; before the last Finish.
  void SetCachedTokens(uint64_t cached) { usage_.cached_tokens = cached; }

  // Whatever precedes the first token (role chunks, echo). Once.
  virtual void Start(std::string* out) = 0;

  // Tokens of one choice in order. True: a stop string ended the answer, so the caller cancels the
  // sequence and calls Finish (any further Push of this choice is ignored).
  virtual bool Push(int choice, std::span<const TokenId> ids, TokenLogprobs logprobs,
                    std::string* out) = 0;

  // Ends one choice, once. With the last choice the usage, [DONE] or the whole body are appended.
  virtual void Finish(int choice, EngineFinish reason, std::string* out) = 0;

  // The answer cannot be completed. A stream gets an error event and must be closed; a collected
  // answer gets the error body, whose HTTP status the caller takes from MakeErrorReply.
  virtual void Fail(const absl::Status& status, std::string* out) = 0;

  bool done() const { return open_choices_ == 0; }
  const Usage& usage() const { return usage_; }

 protected:
  Usage usage_;
  int open_choices_ = 0;
};

}  // namespace weir::codec
