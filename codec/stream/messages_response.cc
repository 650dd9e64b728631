// SPDX-License-Identifier: Apache-2.0
#include "codec/stream/messages_response.h"

#include <utility>
#include <vector>

#include "codec/dialect/error_body.h"
#include "codec/dialect/messages_writer.h"
#include "codec/stream/single_response.h"

namespace weir::codec {
namespace {

BlockKind KindOf(StreamEventKind kind) {
  switch (kind) {
    case StreamEventKind::kReasoning:
      return BlockKind::kThinking;
    case StreamEventKind::kContent:
      return BlockKind::kText;
    default:
      return BlockKind::kToolUse;
  }
}

// Blocks come one after another; one of another kind, or a further call, ends the one before it.
class MessagesResponse final : public SingleResponse {
 public:
  MessagesResponse(const ChatRequest& request, const Prompt& prompt,
                   std::shared_ptr<const Tokenizer> tokenizer, ResponseHead head)
      : SingleResponse(request, prompt, std::move(tokenizer), std::move(head)),
        writer_(this->head()),
        thinks_(prompt.start == AnswerStart::kReasoning ||
                prompt.start == AnswerStart::kReasoningContinued) {}

  ErrorShape error_shape() const override { return ErrorShape::kAnthropic; }

  void Start(std::string* out) override {
    if (stream()) writer_.MessageStart(usage_, out);
    // Clients are told at once that the model thinks.
    if (thinks_) Open(BlockKind::kThinking, 0, "", out);
  }

 private:
  void OnEvent(const StreamEvents::Event& event, std::string_view text,
               std::string* out) override {
    const BlockKind kind = KindOf(event.kind);
    if (event.kind == StreamEventKind::kToolBegin) return Open(kind, event.call, text, out);
    if (!open_ || kind_ != kind) Open(kind, event.call, "", out);
    if (stream()) {
      writer_.BlockDelta(index_, kind, text, out);
    } else {
      collected_.back().text += text;
    }
  }

  void OnFinish(FinishReason reason, std::string_view stop, std::string* out) override {
    const MessagesEnd end{reason, stop};
    if (!stream()) return writer_.Body(collected_, end, usage_, out);
    Close(out);
    writer_.MessageEnd(end, usage_, out);
  }

  void OnFail(const absl::Status& status, std::string* out) override {
    AppendErrorEvent(status, ErrorShape::kAnthropic, request_id(), out);
  }

  void Open(BlockKind kind, int call, std::string_view name, std::string* out) {
    Close(out);
    open_ = true;
    kind_ = kind;
    if (!stream()) {
      collected_.push_back({kind, std::string(name), ""});
      return;
    }
    writer_.BlockStart(++index_, kind, call, name, out);
    if (index_ == 0) writer_.Ping(out);
  }

  void Close(std::string* out) {
    if (std::exchange(open_, false) && stream()) writer_.BlockStop(index_, kind_, out);
  }

  const MessagesWriter writer_;
  const bool thinks_;
  bool open_ = false;
  BlockKind kind_ = BlockKind::kText;
  int index_ = -1;
  std::vector<CollectedBlock> collected_;  // unless streaming
};

}  // namespace

std::unique_ptr<Response> MakeMessagesResponse(const ChatRequest& request, const Prompt& prompt,
                                               std::shared_ptr<const Tokenizer> tokenizer,
                                               ResponseHead head) {
  return std::make_unique<MessagesResponse>(request, prompt, std::move(tokenizer),
                                            std::move(head));
}

}  // namespace weir::codec
