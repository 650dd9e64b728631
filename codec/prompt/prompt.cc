// SPDX-License-Identifier: Apache-2.0
#include "codec/prompt/prompt.h"

#include <optional>
#include <utility>

#include "base/stdx/status.h"
#include "codec/prompt/attribution.h"

namespace weir::codec {
namespace {

absl::Status CheckBiases(const Sampling& sampling, TokenId vocab_size) {
  for (const auto& [id, bias] : sampling.logit_bias) {
    if (id >= vocab_size) {
      return Error(Reason::kBadField,
                   "`logit_bias` names token " + std::to_string(id) +
                       ", but the vocabulary ends at " + std::to_string(vocab_size),
                   "logit_bias");
    }
  }
  return absl::OkStatus();
}

absl::Status NoText(std::string_view param) {
  return Error(Reason::kBadField,
               "this model has no tokenizer; send a prompt of token ids to /v1/completions", param);
}

// Appends the control token with this spelling where the vocabulary has it.
void AddControl(const Vocab& vocab, std::string_view spelling, Segments* segments) {
  if (const auto id = vocab.FindAdded(spelling)) segments->Token(*id);
}

// Who may share tokenized text with whom: what isolates caches.
std::string DomainOf(const ChatRequest& request) {
  std::string domain;
  for (const std::string* part : {&request.tenant, &request.user, &request.cache_salt}) {
    domain += std::to_string(part->size());
    domain += ':';
    domain += *part;
  }
  return domain;
}

}  // namespace

Renderer::Renderer(std::shared_ptr<const Tokenizer> tokenizer,
                   std::shared_ptr<const Template> tmpl, TokenId model_vocab_size,
                   bool keep_attribution)
    : tokenizer_(std::move(tokenizer)),
      template_(std::move(tmpl)),
      model_vocab_size_(model_vocab_size),
      keep_attribution_(keep_attribution) {}

absl::StatusOr<std::shared_ptr<const Renderer>> Renderer::Create(
    std::shared_ptr<const Tokenizer> tokenizer, TemplateKind kind, TokenId model_vocab_size,
    const RenderOptions& options) {
  if (!tokenizer->can_encode()) return NoText("tokenizer");
  if (tokenizer->vocab().size() > model_vocab_size) {
    return Error(Reason::kBadField,
                 "the tokenizer has ids up to " + std::to_string(tokenizer->vocab().size() - 1) +
                     ", but the model's vocab_size is " + std::to_string(model_vocab_size));
  }
  WEIR_ASSIGN(auto tmpl, Template::Create(kind, tokenizer->vocab(), options.earlier));
  return std::shared_ptr<const Renderer>(
      new Renderer(std::move(tokenizer), std::move(tmpl), model_vocab_size,
                   options.keep_attribution));
}

std::shared_ptr<const Renderer> Renderer::WithoutChat(std::shared_ptr<const Tokenizer> tokenizer,
                                                      TokenId model_vocab_size) {
  return std::shared_ptr<const Renderer>(
      new Renderer(std::move(tokenizer), nullptr, model_vocab_size, /*keep_attribution=*/true));
}

absl::StatusOr<Prompt> Renderer::Render(const ChatRequest& request, size_t ids_max,
                                        PromptHistory* history) const {
  WEIR_TRY(CheckBiases(request.sampling, model_vocab_size_));
  auto prompt = request.api == Api::kCompletions ? RenderRaw(request, ids_max, history)
                                                 : RenderChat(request, ids_max, history);
  if (!prompt.ok()) return prompt.status();
  if (prompt->ids.size() > ids_max) {
    return Error(Reason::kTooLong,
                 "the prompt has more than " + std::to_string(ids_max) +
                     " tokens, the most that fit",
                 PromptFieldOf(request.api));
  }
  return prompt;
}

absl::StatusOr<Prompt> Renderer::RenderChat(const ChatRequest& request, size_t ids_max,
                                            PromptHistory* history) const {
  if (template_ == nullptr) return NoText("messages");
  std::optional<Message> first;
  if (!keep_attribution_) first = WithoutAttribution(request.conversation);
  WEIR_ASSIGN(Rendered rendered, first ? template_->Render(request.conversation, *first)
                                       : template_->Render(request.conversation));
  Prompt prompt;
  prompt.start = rendered.start;
  prompt.tools = rendered.tools;
  prompt.thinking = rendered.thinking;
  Tokenize(rendered.segments, request, ids_max, history, &prompt);
  return prompt;
}

void Renderer::Tokenize(const Segments& segments, const ChatRequest& request, size_t ids_max,
                        PromptHistory* history, Prompt* prompt) const {
  if (history != nullptr) {
    prompt->known = history->Encode(*tokenizer_, segments, DomainOf(request), &prompt->ids, ids_max);
  } else {
    EncodeSegments(*tokenizer_, segments, &prompt->ids, ids_max);
  }
}

absl::StatusOr<Prompt> Renderer::RenderRaw(const ChatRequest& request, size_t ids_max,
                                           PromptHistory* history) const {
  if (!request.raw) return Error(Reason::kBadField, "`prompt` is required", "prompt");
  Prompt prompt;
  prompt.start = AnswerStart::kRaw;
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&request.raw->prompt)) {
    for (size_t i = 0; i < ids->size(); ++i) {
      const TokenId id = (*ids)[i];
      if (id < 0 || id >= model_vocab_size_) {
        const std::string path = "prompt[" + std::to_string(i) + "]";
        return Error(Reason::kBadField,
                     "`" + path + "` is token " + std::to_string(id) +
                         ", but the vocabulary ends at " + std::to_string(model_vocab_size_),
                     path);
      }
    }
    if (ids->empty()) return Error(Reason::kBadField, "`prompt` must not be empty", "prompt");
    prompt.ids = *ids;
    return prompt;
  }
  if (!tokenizer_->can_encode()) return NoText("prompt");
  const auto& text = std::get<std::string>(request.raw->prompt);
  const Vocab& vocab = tokenizer_->vocab();
  Segments segments;
  AddControl(vocab, kBosToken, &segments);
  if (request.raw->suffix) {
    // Prefix, suffix, then the middle, as the models were trained.
    if (!vocab.FindAdded(kFimBeginToken) || !vocab.FindAdded(kFimHoleToken) ||
        !vocab.FindAdded(kFimEndToken)) {
      return Error(Reason::kBadField, "`suffix` is not supported by this model", "suffix");
    }
    AddControl(vocab, kFimBeginToken, &segments);
    segments.Text(text);
    AddControl(vocab, kFimHoleToken, &segments);
    segments.Text(*request.raw->suffix);
    AddControl(vocab, kFimEndToken, &segments);
  } else {
    segments.Text(text);
  }
  Tokenize(segments, request, ids_max, history, &prompt);
  if (prompt.ids.empty()) return Error(Reason::kBadField, "`prompt` must not be empty", "prompt");
  return prompt;
}

}  // namespace weir::codec
