// SPDX-License-Identifier: Apache-2.0
#include "codec/stream/response.h"

#include <utility>

#include "base/stdx/check.h"
#include "base/stdx/planted.h"
#include "codec/conversation/json_text.h"
#include "codec/stream/logprobs.h"
#include "codec/stream/messages_response.h"
#include "codec/stream/responses_response.h"

namespace weir::codec {
namespace {

constexpr std::string_view kDone = "data: [DONE]\n\n";

void AppendIds(std::span<const TokenId> ids, std::string* out) {
  for (const TokenId id : ids) {
    if (!out->empty()) out->push_back(',');
    AppendJsonNumber(int64_t{id}, out);
  }
}

struct Options {
  Api api;
  bool stream;
  bool include_usage;
  bool continuous_usage;
  bool logprobs;
  bool return_ids;
  bool thinking;
};

// One of the `n` answers.
struct Choice {
  StreamParser parser;
  ChatLogprobs chat_logprobs;
  TextLogprobs text_logprobs;
  std::string ids;  // not sent yet, comma-separated
  bool open = true;
  CollectedChoice collected;  // unless streaming
};

class OpenAiResponse final : public Response {
 public:
  OpenAiResponse(const ChatRequest& request, const Prompt& prompt,
                 std::shared_ptr<const Tokenizer> tokenizer, ResponseHead head)
      : options_{request.api,
                 request.stream.stream,
                 request.stream.include_usage,
                 request.stream.continuous_usage_stats,
                 request.logprobs.enabled,
                 request.return_token_ids,
                 prompt.thinking},
        tokenizer_(std::move(tokenizer)),
        head_(std::move(head)),
        chat_(head_, prompt.thinking),
        text_(head_) {
    usage_.prompt_tokens = prompt.ids.size();
    if (request.echo) {
      for (const TokenId id : prompt.ids) {
        if (!tokenizer_->vocab().IsSilent(id)) echo_ += tokenizer_->vocab().BytesOf(id);
      }
    }
    if (options_.return_ids) {
      AppendIds(prompt.ids, &prompt_ids_);
      prompt_ids_ = "[" + prompt_ids_ + "]";
    }
    const StreamParserOptions parser_options = ParserOptionsFor(request, prompt);
    choices_.reserve(static_cast<size_t>(request.n));
    for (int i = 0; i < request.n; ++i) {
      choices_.push_back(Choice{StreamParser(tokenizer_, parser_options), {}, TextLogprobs(), {},
                                true, {}});
      choices_.back().collected.content = echo_;
    }
    open_choices_ = request.n;
  }

  std::string_view content_type() const override {
    return options_.stream ? "text/event-stream" : "application/json";
  }

  void Start(std::string* out) override {
    if (!options_.stream) return;
    for (size_t i = 0; i < choices_.size(); ++i) {
      ChunkTail tail = TailOf(&choices_[i]);
      tail.prompt_token_ids = prompt_ids_;
      if (options_.api == Api::kChat) {
        chat_.Role(static_cast<int>(i), tail, out);
      } else if (!echo_.empty() || options_.return_ids) {
        text_.Text(static_cast<int>(i), echo_, tail, out);
      }
    }
  }

  bool Push(int index, std::span<const TokenId> ids, TokenLogprobs logprobs,
            std::string* out) override {
    Choice& choice = At(index);
    if (!choice.open || choice.parser.stopped()) return true;
    const uint64_t reasoning_before = choice.parser.reasoning_ids();
    events_.Clear();
    const size_t taken = Parse(&choice, ids, logprobs);
    usage_.completion_tokens += taken;
    usage_.reasoning_tokens += choice.parser.reasoning_ids() - reasoning_before;
    if (options_.return_ids) AppendIds(ids.first(taken), &choice.ids);
    Deliver(index, &choice, out);
    return choice.parser.stopped();
  }

  void Finish(int index, EngineFinish engine_reason, std::string* out) override {
    Choice& choice = At(index);
    if (!choice.open) return;
    choice.open = false;
    --open_choices_;
    events_.Clear();
    choice.parser.Finish(&events_);
    Deliver(index, &choice, out);
    const FinishReason reason = FinishReasonOf(engine_reason, choice.parser);
    if (options_.stream) {
      if (!IsPlanted(Planted::kDropFinish)) SendFinish(index, &choice, reason, out);
    } else {
      const ChunkTail tail = TailOf(&choice);
      choice.collected.finish = reason;
      choice.collected.logprobs = tail.logprobs;
      choice.collected.token_ids = tail.token_ids;
    }
    if (open_choices_ == 0) Complete(out);
  }

  void Fail(const absl::Status& status, std::string* out) override {
    if (done()) return;
    for (Choice& choice : choices_) choice.open = false;
    open_choices_ = 0;
    const std::string& request_id = head_.request_id.empty() ? head_.id : head_.request_id;
    if (options_.stream) {
      AppendErrorEvent(status, ErrorShape::kOpenAi, request_id, out);
    } else {
      AppendErrorBody(status, ErrorShape::kOpenAi, request_id, out);
    }
  }

 private:
  Choice& At(int index) {
    WEIR_CHECK(index >= 0 && static_cast<size_t>(index) < choices_.size());
    return choices_[static_cast<size_t>(index)];
  }

  // Runs the parser; with log-probabilities id by id, since each belongs to the part it is in.
  size_t Parse(Choice* choice, std::span<const TokenId> ids, TokenLogprobs logprobs) {
    if (!options_.logprobs || logprobs.empty()) return choice->parser.Push(ids, &events_);
    WEIR_CHECK(logprobs.size() == ids.size());
    size_t taken = 0;
    const Vocab& vocab = tokenizer_->vocab();
    for (; taken < ids.size() && !choice->parser.stopped(); ++taken) {
      const bool reasoning = choice->parser.reasoning();
      choice->parser.Push(ids.subspan(taken, 1), &events_);
      if (options_.api == Api::kChat) {
        choice->chat_logprobs.Add(vocab, ids[taken], logprobs[taken], reasoning);
      } else {
        choice->text_logprobs.Add(vocab, ids[taken], logprobs[taken]);
      }
    }
    return taken;
  }

  // Everything that waits to go out with the next chunk. The views hold until the next call.
  ChunkTail TailOf(Choice* choice) {
    ChunkTail tail;
    if (options_.logprobs) {
      if (options_.api == Api::kChat) {
        choice->chat_logprobs.TakeInto(&logprobs_json_);
      } else {
        choice->text_logprobs.TakeInto(&logprobs_json_);
      }
      tail.logprobs = logprobs_json_;
    }
    if (options_.return_ids) {
      ids_json_.assign("[");
      ids_json_ += choice->ids;
      ids_json_ += "]";
      choice->ids.clear();
      tail.token_ids = ids_json_;
    }
    if (options_.continuous_usage) {
      tail.usage_field = UsageField::kValue;
      tail.usage = &usage_;
    } else if (options_.include_usage) {
      tail.usage_field = UsageField::kNull;
    }
    return tail;
  }

  // Sends or collects the parser's events.
  void Deliver(int index, Choice* choice, std::string* out) {
    for (const StreamEvents::Event& event : events_.events) {
      const std::string_view text = events_.TextOf(event);
      if (options_.stream) {
        SendEvent(index, choice, event, text, out);
      } else {
        Collect(&choice->collected, event, text);
      }
    }
  }

  void SendEvent(int index, Choice* choice, const StreamEvents::Event& event,
                 std::string_view text, std::string* out) {
    if (text.empty() && event.kind != StreamEventKind::kToolBegin) return;
    const ChunkTail tail = TailOf(choice);
    if (options_.api == Api::kCompletions) return text_.Text(index, text, tail, out);
    switch (event.kind) {
      case StreamEventKind::kContent:
        return chat_.Content(index, text, tail, out);
      case StreamEventKind::kReasoning:
        return chat_.Reasoning(index, text, tail, out);
      case StreamEventKind::kToolBegin:
        return chat_.ToolBegin(index, event.call, text, tail, out);
      case StreamEventKind::kToolArguments:
        return chat_.ToolArguments(index, event.call, text, tail, out);
    }
  }

  static void Collect(CollectedChoice* collected, const StreamEvents::Event& event,
                      std::string_view text) {
    switch (event.kind) {
      case StreamEventKind::kContent:
        collected->content += text;
        return;
      case StreamEventKind::kReasoning:
        collected->reasoning += text;
        return;
      case StreamEventKind::kToolBegin:
        collected->calls.push_back({std::string(text), ""});
        return;
      case StreamEventKind::kToolArguments:
        collected->calls.back().arguments += text;
        return;
    }
  }

  // The chunk with the reason. Usage rides on the last one, unless the client asked for a chunk of
  // its own.
  void SendFinish(int index, Choice* choice, FinishReason reason, std::string* out) {
    ChunkTail tail = TailOf(choice);
    tail.finish = reason;
    if (open_choices_ == 0 && !options_.include_usage) {
      tail.usage_field = UsageField::kValue;
      tail.usage = &usage_;
    }
    if (options_.api == Api::kChat) {
      chat_.Content(index, "", tail, out);
    } else {
      text_.Text(index, "", tail, out);
    }
  }

  void Complete(std::string* out) {
    if (options_.stream) {
      if (options_.include_usage) {
        if (options_.api == Api::kChat) {
          chat_.UsageOnly(usage_, out);
        } else {
          text_.UsageOnly(usage_, out);
        }
      }
      *out += kDone;
      return;
    }
    std::vector<CollectedChoice> collected;
    for (Choice& choice : choices_) collected.push_back(std::move(choice.collected));
    if (options_.api == Api::kChat) {
      AppendChatBody(head_, options_.thinking, collected, prompt_ids_, usage_, out);
    } else {
      AppendTextBody(head_, collected, prompt_ids_, usage_, out);
    }
  }

  const Options options_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const ResponseHead head_;
  const ChatChunkWriter chat_;
  const TextChunkWriter text_;
  std::string echo_;        // constant after construction
  std::string prompt_ids_;  // ditto; a JSON array or empty
  std::vector<Choice> choices_;
  StreamEvents events_;  // scratch
  std::string logprobs_json_;
  std::string ids_json_;
};

}  // namespace

StreamParserOptions ParserOptionsFor(const ChatRequest& request, const Prompt& prompt) {
  const ConstraintKind kind = request.conversation.constraint.kind;
  return {prompt.start, prompt.tools, request.limits.stop,
          kind == ConstraintKind::kJsonObject || kind == ConstraintKind::kJsonSchema};
}

FinishReason FinishReasonOf(EngineFinish reason, const StreamParser& parser) {
  if (parser.stopped()) return FinishReason::kStop;
  switch (reason) {
    case EngineFinish::kStop:
      return parser.tool_calls() > 0 ? FinishReason::kToolCalls : FinishReason::kStop;
    case EngineFinish::kLength:
      return FinishReason::kLength;
    case EngineFinish::kContentFilter:
      return FinishReason::kContentFilter;
    case EngineFinish::kResource:
      return FinishReason::kResource;
  }
  return FinishReason::kStop;
}

std::unique_ptr<Response> Response::Create(const ChatRequest& request, const Prompt& prompt,
                                           std::shared_ptr<const Tokenizer> tokenizer,
                                           ResponseHead head) {
  if (request.api == Api::kMessages) {
    return MakeMessagesResponse(request, prompt, std::move(tokenizer), std::move(head));
  }
  if (request.api == Api::kResponses) {
    return MakeResponsesResponse(request, prompt, std::move(tokenizer), std::move(head));
  }
  return std::make_unique<OpenAiResponse>(request, prompt, std::move(tokenizer), std::move(head));
}

}  // namespace weir::codec
