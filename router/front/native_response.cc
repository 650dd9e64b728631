// SPDX-License-Identifier: Apache-2.0
#include "router/front/native_response.h"

#include <cstring>
#include <utility>

#include "base/stdx/check.h"
#include "codec/stream/single_response.h"
#include "proto/front.pb.h"

namespace weir::router {
namespace {

constexpr size_t kLengthBytes = 4;

v1::AnswerEnd EndOf(codec::FinishReason reason, std::string_view stop) {
  if (!stop.empty()) return v1::ANSWER_END_STOP_STRING;
  switch (reason) {
    case codec::FinishReason::kLength:
      return v1::ANSWER_END_LENGTH;
    case codec::FinishReason::kToolCalls:
      return v1::ANSWER_END_TOOL_CALLS;
    default:
      return v1::ANSWER_END_STOP;
  }
}

class NativeResponse final : public codec::SingleResponse {
 public:
  NativeResponse(const codec::ChatRequest& request, const codec::Prompt& prompt,
                 std::shared_ptr<const codec::Tokenizer> tokenizer, codec::ResponseHead head)
      : SingleResponse(request, prompt, std::move(tokenizer), std::move(head)),
        logprobs_(request.logprobs.enabled) {}

  void Start(std::string* out) override {}

 private:
  void OnTokens(std::span<const TokenId> ids, codec::TokenLogprobs logprobs) override {
    event_.mutable_ids()->Add(ids.begin(), ids.end());
    for (size_t i = 0; logprobs_ && i < ids.size() && i < logprobs.size(); ++i) {
      v1::TokenLogprob* score = event_.add_logprobs();
      score->set_logprob(logprobs[i].logprob);
      for (const auto& [id, logprob] : logprobs[i].top) {
        score->add_top_ids(id);
        score->add_top_logprobs(logprob);
      }
    }
  }

  void OnEvent(const codec::StreamEvents::Event& event, std::string_view text,
               std::string* out) override {
    switch (event.kind) {
      case codec::StreamEventKind::kContent:
        event_.mutable_text()->append(text);
        return;
      case codec::StreamEventKind::kReasoning:
        event_.mutable_reasoning()->append(text);
        return;
      case codec::StreamEventKind::kToolBegin: {
        v1::ToolDelta* call = CallOf(event.call);
        call->mutable_name()->assign(text);
        codec::AppendCallId(head().id, 0, event.call, call->mutable_id());
        return;
      }
      case codec::StreamEventKind::kToolArguments:
        CallOf(event.call)->mutable_arguments()->append(text);
        return;
    }
  }

  void OnPushed(std::string* out) override { Send(out); }

  void OnFinish(codec::FinishReason reason, std::string_view stop, std::string* out) override {
    v1::AnswerFinish* finish = event_.mutable_finish();
    finish->set_end(EndOf(reason, stop));
    finish->mutable_stop()->assign(stop);
    v1::AnswerUsage* usage = finish->mutable_usage();
    usage->set_prompt_tokens(usage_.prompt_tokens);
    usage->set_cached_tokens(usage_.cached_tokens);
    usage->set_completion_tokens(usage_.completion_tokens);
    usage->set_reasoning_tokens(usage_.reasoning_tokens);
    Send(out);
  }

  void OnFail(const absl::Status& status, std::string* out) override {}

  v1::ToolDelta* CallOf(int index) {
    const int last = event_.calls_size() - 1;
    if (last >= 0 && event_.calls(last).index() == static_cast<uint32_t>(index)) {
      return event_.mutable_calls(last);
    }
    v1::ToolDelta* call = event_.add_calls();
    call->set_index(static_cast<uint32_t>(index));
    return call;
  }

  void Send(std::string* out) {
    const size_t at = out->size();
    out->append(kLengthBytes, '\0');
    event_.AppendToString(out);
    const auto size = static_cast<uint32_t>(out->size() - at - kLengthBytes);
    std::memcpy(out->data() + at, &size, kLengthBytes);
    event_.Clear();
  }

  const bool logprobs_;
  v1::GenerateEvent event_;  // not sent yet
};

}  // namespace

std::unique_ptr<codec::Response> MakeNativeResponse(
    const codec::ChatRequest& request, const codec::Prompt& prompt,
    std::shared_ptr<const codec::Tokenizer> tokenizer, codec::ResponseHead head) {
  return std::make_unique<NativeResponse>(request, prompt, std::move(tokenizer), std::move(head));
}

std::string_view TakeNativeMessage(std::string_view* bytes) {
  if (bytes->size() < kLengthBytes) return {};
  uint32_t size = 0;
  std::memcpy(&size, bytes->data(), kLengthBytes);
  WEIR_CHECK(bytes->size() >= kLengthBytes + size);
  const std::string_view message = bytes->substr(kLengthBytes, size);
  bytes->remove_prefix(kLengthBytes + size);
  return message;
}

}  // namespace weir::router
