// SPDX-License-Identifier: Apache-2.0
#include "codec/template/template.h"

#include <optional>
#include <utility>

#include "base/stdx/planted.h"
#include "base/stdx/status.h"
#include "codec/template/control_tokens.h"
#include "codec/template/v3.h"
#include "codec/template/v32.h"
#include "codec/template/v41.h"

namespace weir::codec {
namespace {

struct Name {
  TemplateKind kind;
  std::string_view name;
};
constexpr Name kNames[] = {{TemplateKind::kV3, "v3"},
                           {TemplateKind::kV31, "v31"},
                           {TemplateKind::kV32, "v32"},
                           {TemplateKind::kV4, "v4"},
                           {TemplateKind::kV41, "v41"}};

absl::Status RefuseImages(const std::vector<Turn>& turns) {
  for (const Turn& turn : turns) {
    for (const Part& part : turn.message->parts) {
      if (std::holds_alternative<ImagePart>(part)) {
        return Error(Reason::kBadField, "this model does not take images here", "messages");
      }
    }
  }
  return absl::OkStatus();
}

// About as much text as they make.
size_t TextBytesOf(const Conversation& conversation, const std::vector<Turn>& turns) {
  constexpr size_t kPreambleBytes = 4096;
  constexpr size_t kWordsBytes = 64;  // around a turn, a call or a tool
  size_t bytes = kPreambleBytes + conversation.constraint.text.size();
  for (const ToolDef& tool : conversation.tools) {
    bytes += kWordsBytes + tool.name.size() + tool.description.size() + tool.parameters.size();
  }
  for (const Turn& turn : turns) {
    const Message& message = *turn.message;
    bytes += kWordsBytes + (message.reasoning ? message.reasoning->size() : 0);
    for (const Part& part : message.parts) bytes += std::get<TextPart>(part).text.size();
    for (const ToolCall& call : message.calls) {
      bytes += kWordsBytes + call.name.size() + call.arguments.size();
    }
  }
  return bytes;
}

}  // namespace

absl::StatusOr<TemplateKind> ChooseTemplate(std::string_view model_type, const Vocab& vocab) {
  if (model_type.rfind("deepseek_v41", 0) == 0) return TemplateKind::kV41;
  if (model_type == "weir_script") return TemplateKind::kV41;  // the stand-in writes its markup
  if (model_type.rfind("deepseek_v4", 0) == 0) return TemplateKind::kV4;
  if (model_type == "deepseek_v32") {
    return vocab.FindAdded(kDsmlToken) ? TemplateKind::kV32 : TemplateKind::kV31;
  }
  if (model_type == "deepseek_v3" || model_type == "deepseek_v2") {
    return vocab.FindAdded(kThinkToken) ? TemplateKind::kV31 : TemplateKind::kV3;
  }
  return Error(Reason::kBadField,
               "no prompt template is known for model_type \"" + std::string(model_type) + "\"",
               "model_type");
}

std::string_view NameOf(TemplateKind kind) {
  for (const Name& name : kNames) {
    if (name.kind == kind) return name.name;
  }
  return "unknown";
}

absl::StatusOr<TemplateKind> TemplateByName(std::string_view text) {
  for (const Name& name : kNames) {
    if (name.name == text) return name.kind;
  }
  return Error(Reason::kBadField, "a prompt template is one of v3, v31, v32, v4, v41, not \"" +
                                      std::string(text) + "\"");
}

absl::StatusOr<EarlierReasoning> EarlierReasoningByName(std::string_view text) {
  if (text.empty()) return EarlierReasoning::kOwn;
  if (text == "keep") return EarlierReasoning::kKept;
  if (text == "drop") return EarlierReasoning::kDropped;
  return Error(Reason::kBadField,
               "earlier reasoning is keep or drop, not \"" + std::string(text) + "\"");
}

void Segments::Text(std::string_view text) {
  if (text.empty()) return;
  if (pieces_.empty() || pieces_.back().token >= 0) {
    pieces_.push_back({-1, static_cast<uint32_t>(text_.size()), 0});
  }
  pieces_.back().size += static_cast<uint32_t>(text.size());
  text_ += text;
}

void Segments::Add(const Segments& other) {
  for (const Piece& piece : other.pieces()) {
    if (piece.token >= 0) {
      Token(piece.token);
    } else {
      Text(other.TextOf(piece));
    }
  }
}

void AppendTextOf(const Message& message, Segments* out) {
  bool first = true;
  for (const Part& part : message.parts) {
    const auto* piece = std::get_if<TextPart>(&part);
    if (piece == nullptr) continue;
    if (!first) out->Text("\n\n");
    first = false;
    out->Text(piece->text);
  }
}

absl::StatusOr<Rendered> Template::Render(const Conversation& conversation) const {
  if (!conversation.messages.empty()) return Render(conversation, conversation.messages.front());
  Rendered out;
  RenderTurns(conversation, {}, &out);
  return out;
}

absl::StatusOr<Rendered> Template::Render(const Conversation& conversation,
                                          const Message& first) const {
  std::vector<Turn> turns;
  turns.reserve(conversation.messages.size());
  for (const Message& message : conversation.messages) {
    const Message& shown = turns.empty() ? first : message;
    turns.push_back({shown.author, &shown});
  }
  WEIR_TRY(RefuseImages(turns));
  std::optional<Conversation> copy;  // a planted bug
  if (IsPlanted(Planted::kLeakMemory)) copy = conversation;
  Rendered out;
  out.segments.Reserve(TextBytesOf(conversation, turns));
  RenderTurns(conversation, std::move(turns), &out);
  return out;
}

absl::StatusOr<std::shared_ptr<const Template>> Template::Create(TemplateKind kind,
                                                                 const Vocab& vocab,
                                                                 EarlierReasoning earlier) {
  for (const std::string_view needed : {kBosToken, kEosToken, kUserToken, kAssistantToken}) {
    if (!vocab.FindAdded(needed)) {
      return Error(Reason::kBadField, "the tokenizer lacks the control token " +
                                          std::string(needed) + ", without which template " +
                                          std::string(NameOf(kind)) + " cannot work");
    }
  }
  switch (kind) {
    case TemplateKind::kV3:
    case TemplateKind::kV31:
      return MakeV3Template(kind, vocab);
    case TemplateKind::kV32:
      return MakeV32Template(vocab, earlier);
    case TemplateKind::kV4:
    case TemplateKind::kV41:
      return MakeV4Template(kind, vocab, earlier);
  }
  return Error(Reason::kBug, "unknown template");
}

}  // namespace weir::codec
