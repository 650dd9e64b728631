// SPDX-License-Identifier: Apache-2.0
#include "codec/stream/responses_response.h"

#include <unordered_set>
#include <utility>
#include <vector>

#include "codec/dialect/responses_writer.h"
#include "codec/stream/logprobs.h"
#include "codec/stream/single_response.h"

namespace weir::codec {
namespace {

// Items come one after another; one of another kind, or a further call, ends the one before it. All
// are kept to the end, since the last event repeats the whole answer.
class ResponsesResponse final : public SingleResponse {
 public:
  ResponsesResponse(const ChatRequest& request, const Prompt& prompt,
                    std::shared_ptr<const Tokenizer> tokenizer, ResponseHead head)
      : SingleResponse(request, prompt, tokenizer, std::move(head)),
        tokenizer_(std::move(tokenizer)),
        writer_(request, this->head()) {
    for (const ToolDef& tool : request.conversation.tools) {
      if (tool.freeform) freeform_.insert(tool.name);
    }
  }

  void Start(std::string* out) override {
    if (stream()) writer_.Begin(out);
  }

 private:
  void OnEvent(const StreamEvents::Event& event, std::string_view text,
               std::string* out) override {
    if (event.kind == StreamEventKind::kToolBegin) return OpenCall(event.call, text, out);
    if (event.kind != StreamEventKind::kToolArguments) {
      const ItemKind kind = event.kind == StreamEventKind::kReasoning ? ItemKind::kReasoning
                                                                      : ItemKind::kMessage;
      if (!open_ || items_.back().kind != kind) Open({kind}, out);
    }
    ResponseItem& item = items_.back();
    item.text += text;
    // Freeform text can only be told once its JSON string is whole.
    if (stream() && item.kind != ItemKind::kFreeformCall) {
      const bool scored = item.kind == ItemKind::kMessage;
      writer_.ItemDelta(item, text, scored ? std::string_view(scores_) : "", out);
    }
    if (item.kind == ItemKind::kMessage) TakeScores(&item);
  }

  void OnContentScore(TokenId id, const TokenLogprob& score) override {
    AppendScore(tokenizer_->vocab(), id, score, &scores_);
  }

  void TakeScores(ResponseItem* item) {
    if (!item->scores.empty() && !scores_.empty()) item->scores.push_back(',');
    item->scores += scores_;
    scores_.clear();
  }

  void OnFinish(FinishReason reason, std::string_view stop, std::string* out) override {
    const bool cut = reason == FinishReason::kLength || reason == FinishReason::kContentFilter;
    Close(cut ? ItemStatus::kIncomplete : ItemStatus::kCompleted, out);
    if (stream()) {
      writer_.End(reason, items_, usage_, out);
    } else {
      writer_.Body(reason, items_, usage_, out);
    }
  }

  void OnFail(const absl::Status& status, std::string* out) override {
    if (open_) items_.back().status = ItemStatus::kIncomplete;
    writer_.Failed(status, request_id(), items_, usage_, out);
  }

  void OpenCall(int call, std::string_view name, std::string* out) {
    if (open_ && items_.back().kind == ItemKind::kMessage) items_.back().commentary = true;
    ResponseItem item;
    item.name = name;
    item.call = call;
    item.kind =
        freeform_.count(item.name) > 0 ? ItemKind::kFreeformCall : ItemKind::kFunctionCall;
    Open(std::move(item), out);
  }

  void Open(ResponseItem item, std::string* out) {
    Close(ItemStatus::kCompleted, out);
    open_ = true;
    item.index = static_cast<int>(items_.size());
    items_.push_back(std::move(item));
    if (stream()) writer_.ItemAdded(items_.back(), out);
  }

  void Close(ItemStatus status, std::string* out) {
    if (!std::exchange(open_, false)) return;
    ResponseItem& item = items_.back();
    item.status = status;
    if (item.kind == ItemKind::kMessage) TakeScores(&item);
    if (item.kind == ItemKind::kFreeformCall) {
      item.text = FreeformInput(item.text);
      if (stream() && !item.text.empty()) writer_.ItemDelta(item, item.text, "", out);
    }
    if (stream()) writer_.ItemDone(item, out);
  }

  const std::shared_ptr<const Tokenizer> tokenizer_;
  ResponsesWriter writer_;
  std::unordered_set<std::string> freeform_;  // names of tools; constant after construction
  std::vector<ResponseItem> items_;
  std::string scores_;  // of tokens whose text has not come yet
  bool open_ = false;  // the last one
};

}  // namespace

std::unique_ptr<Response> MakeResponsesResponse(const ChatRequest& request, const Prompt& prompt,
                                                std::shared_ptr<const Tokenizer> tokenizer,
                                                ResponseHead head) {
  return std::make_unique<ResponsesResponse>(request, prompt, std::move(tokenizer),
                                             std::move(head));
}

}  // namespace weir::codec
