// SPDX-License-Identifier: Apache-2.0
//
// The events and bodies of OpenAI Responses, as JSON. One writer per response, owned by whoever owns
// the response, on one thread; it appends to the caller's buffer and numbers the events. It knows
// shapes, not order: stream/responses_response decides what is sent when.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "codec/conversation/conversation.h"
#include "codec/dialect/openai_writer.h"

namespace weir::codec {

enum class ItemKind : uint8_t { kReasoning, kMessage, kFunctionCall, kFreeformCall };
enum class ItemStatus : uint8_t { kInProgress, kCompleted, kIncomplete };

// A part of the answer. Its place in the answer is its index.
struct ResponseItem {
  ItemKind kind = ItemKind::kMessage;
  int index = 0;
  int call = -1;     // number of the call
  std::string name;  // of the tool, as the conversation knows it
  std::string text;  // so far; of a call its arguments
  std::string scores;  // of a message: log-probabilities of its tokens, as JSON with commas between
  ItemStatus status = ItemStatus::kInProgress;
  bool commentary = false;  // a message that a call follows
};

class ResponsesWriter {
 public:
  // Copies what answers repeat of `request`.
  ResponsesWriter(const ChatRequest& request, const ResponseHead& head);

  // response.created and response.in_progress.
  void Begin(std::string* out);
  // The item, and its one part where it has parts.
  void ItemAdded(const ResponseItem& item, std::string* out);
  // `scores` belong to the delta, as those of the item do to it.
  void ItemDelta(const ResponseItem& item, std::string_view delta, std::string_view scores,
                 std::string* out);
  // The whole of it, of its part and of the item.
  void ItemDone(const ResponseItem& item, std::string* out);
  // response.completed or response.incomplete.
  void End(FinishReason reason, std::span<const ResponseItem> items, const Usage& usage,
           std::string* out);
  // response.failed.
  void Failed(const absl::Status& status, std::string_view request_id,
              std::span<const ResponseItem> items, const Usage& usage, std::string* out);

  // The answer as one body.
  void Body(FinishReason reason, std::span<const ResponseItem> items, const Usage& usage,
            std::string* out) const;

 private:
  void Open(std::string_view type, std::string* out);
  void OpenOfItem(std::string_view type, const ResponseItem& item, std::string* out);
  // From `{"id":` to the comma after `"status"` and what belongs to it.
  void AppendObject(std::string_view status, std::string_view details,
                    std::span<const ResponseItem> items, const Usage* usage,
                    std::string* out) const;
  void AppendItem(const ResponseItem& item, std::string_view text, std::string* out) const;
  void AppendItemId(const ResponseItem& item, std::string* out) const;

  const ResponseHead head_;
  std::string echo_;  // fields of the request, as JSON members
  uint64_t events_ = 0;
};

// The text of a freeform call, whose arguments are {"input": TEXT}; empty while they are cut.
std::string FreeformInput(std::string_view arguments);

}  // namespace weir::codec
