// SPDX-License-Identifier: Apache-2.0
//
// A prompt template: conversation to segments, which are control tokens by id and runs of text.
// Immutable after Create and shared by const pointer; Render is pure and may run on any thread.
// A vocabulary without begin, end, user or assistant token is refused at Create; any other missing
// control token is written as plain text and listed by spelt_out(), so that small test models
// work (for those spellings a client could forge the marker). Without think tokens there is no
// thinking.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/stdx/ids.h"
#include "codec/conversation/conversation.h"
#include "codec/token/vocab.h"

namespace weir::codec {

enum class TemplateKind : uint8_t { kV3, kV31, kV32, kV4, kV41 };

// The template for a checkpoint, from the `model_type` of its config.json. A V3 architecture whose
// vocabulary has think tokens is V3.1; a V3.2 one whose vocabulary lacks the DSML mark (V3.2-Exp)
// was trained on V3.1's.
absl::StatusOr<TemplateKind> ChooseTemplate(std::string_view model_type, const Vocab& vocab);
std::string_view NameOf(TemplateKind kind);  // "v41"
absl::StatusOr<TemplateKind> TemplateByName(std::string_view name);

// What becomes of the reasoning in turns before the last user's. kOwn is what the model was released
// with: V4 and V4.1 keep it, so that a prompt only ever grows; V3.2 drops it. V3 and V3.1 have no
// place for it, whatever is asked.
enum class EarlierReasoning : uint8_t { kOwn, kKept, kDropped };
absl::StatusOr<EarlierReasoning> EarlierReasoningByName(std::string_view name);  // keep, drop, ""

// Control tokens and text in order. Neighbouring texts are one run, since a run is what is
// tokenized together: cutting between template words and content would change ids.
class Segments {
 public:
  struct Piece {
    TokenId token = -1;  // -1: text
    uint32_t offset = 0;
    uint32_t size = 0;
  };

  // Room for so much text: growing on the way would hold it twice.
  void Reserve(size_t bytes) { text_.reserve(bytes); }
  void Token(TokenId id) { pieces_.push_back({id, 0, 0}); }
  void Text(std::string_view text);
  void Add(const Segments& other);

  const std::vector<Piece>& pieces() const { return pieces_; }
  std::string_view TextOf(const Piece& piece) const {
    return std::string_view(text_).substr(piece.offset, piece.size);
  }

 private:
  std::string text_;
  std::vector<Piece> pieces_;
};

// TextOf, without a copy between.
void AppendTextOf(const Message& message, Segments* out);

// What the answer's first token is part of.
enum class AnswerStart : uint8_t {
  kContent,            // leading newlines are dropped
  kReasoning,          // ditto
  kContentContinued,   // a prefix is being continued: keep everything
  kReasoningContinued,
  kToolCalls,          // the prompt already opened the block
  kRaw,                // no markup at all: text completion
};

// How the model writes tool calls.
enum class ToolSyntax : uint8_t { kNone, kDsml, kV31Tokens, kV3Tokens };

struct Rendered {
  Segments segments;
  AnswerStart start = AnswerStart::kContent;
  ToolSyntax tools = ToolSyntax::kNone;  // kNone where no tool may be called
  bool thinking = false;                 // the answer may have a reasoning part
};

// A message as a template shows it: perhaps as if another had said it.
struct Turn {
  Author author;
  const Message* message;  // borrowed
};

class Template {
 public:
  static absl::StatusOr<std::shared_ptr<const Template>> Create(
      TemplateKind kind, const Vocab& vocab, EarlierReasoning earlier = EarlierReasoning::kOwn);
  virtual ~Template() = default;

  absl::StatusOr<Rendered> Render(const Conversation& conversation) const;
  // With another message instead of the first, of which there must be one.
  absl::StatusOr<Rendered> Render(const Conversation& conversation, const Message& first) const;
  virtual bool can_think() const = 0;

  TemplateKind kind() const { return kind_; }
  const std::vector<std::string>& spelt_out() const { return spelt_out_; }

 protected:
  explicit Template(TemplateKind kind) : kind_(kind) {}

  // `turns` are the conversation's messages, none with an image.
  virtual void RenderTurns(const Conversation& conversation, std::vector<Turn> turns,
                           Rendered* out) const = 0;

  TemplateKind kind_;
  std::vector<std::string> spelt_out_;
};

}  // namespace weir::codec
