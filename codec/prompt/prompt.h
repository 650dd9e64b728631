// SPDX-License-Identifier: Apache-2.0
//
// Text is over; from here on ids. A Renderer joins a checkpoint's tokenizer and template and turns
// a request into a prompt. Immutable and shared by const pointer; Render is a pure function of the
// request, never blocks and may take milliseconds for a long text, so it belongs on a pool.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/stdx/ids.h"
#include "codec/conversation/conversation.h"
#include "codec/prompt/history.h"
#include "codec/template/template.h"
#include "codec/token/tokenizer.h"

namespace weir::codec {

struct Prompt {
  std::vector<TokenId> ids;  // at least one
  AnswerStart start = AnswerStart::kContent;
  ToolSyntax tools = ToolSyntax::kNone;
  bool thinking = false;  // the answer may have a reasoning part
  std::shared_ptr<const KnownText> known;  // for PromptHistory::AddAnswer; may be null
};

struct RenderOptions {
  EarlierReasoning earlier = EarlierReasoning::kOwn;
  // The line by which some clients say who asks stays in the prompt; see attribution.h.
  bool keep_attribution = false;
};

class Renderer {
 public:
  // `model_vocab_size` is the width of the logits; ids given by clients must lie below it.
  static absl::StatusOr<std::shared_ptr<const Renderer>> Create(
      std::shared_ptr<const Tokenizer> tokenizer, TemplateKind kind, TokenId model_vocab_size,
      const RenderOptions& options = {});
  // Without a template: completions only, for checkpoints without a tokenizer.
  static std::shared_ptr<const Renderer> WithoutChat(std::shared_ptr<const Tokenizer> tokenizer,
                                                     TokenId model_vocab_size);

  // Fails with kBadField (naming the field) or kTooLong when the ids exceed `ids_max`; text beyond
  // that is not encoded.
  // With a history, which may be null, only text that it does not know is tokenized.
  absl::StatusOr<Prompt> Render(const ChatRequest& request, size_t ids_max,
                                PromptHistory* history = nullptr) const;

  const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }
  const Template* chat_template() const { return template_.get(); }
  TokenId model_vocab_size() const { return model_vocab_size_; }

 private:
  Renderer(std::shared_ptr<const Tokenizer> tokenizer, std::shared_ptr<const Template> tmpl,
           TokenId model_vocab_size, bool keep_attribution);

  absl::StatusOr<Prompt> RenderChat(const ChatRequest& request, size_t ids_max,
                                    PromptHistory* history) const;
  absl::StatusOr<Prompt> RenderRaw(const ChatRequest& request, size_t ids_max,
                                   PromptHistory* history) const;
  void Tokenize(const Segments& segments, const ChatRequest& request, size_t ids_max,
                PromptHistory* history, Prompt* prompt) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const Template> template_;  // null: no chat
  TokenId model_vocab_size_;
  bool keep_attribution_;
};

}  // namespace weir::codec
