// SPDX-License-Identifier: Apache-2.0
#include "codec/template/template.h"

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
