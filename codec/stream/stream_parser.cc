// SPDX-License-Identifier: Apache-2.0
#include "codec/stream/stream_parser.h"

#include <algorithm>
#include <utility>

#include "base/stdx/check.h"
#include "base/stdx/planted.h"
#include "codec/conversation/json_text.h"
#include "codec/stream/stages.h"

namespace weir::codec {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// How far one marker of the current stage has matched.
struct Match {
  uint32_t size = 0;
  uint32_t newlines = 0;  // right before it, for markers that eat them
};

}  // namespace

struct StreamParser::State {
  State(std::shared_ptr<const Tokenizer> tokenizer_in, const StreamParserOptions& options)
      : tokenizer(std::move(tokenizer_in)), stages(BuildStages(options)) {
    Enter(FirstStage(options));
    keeping = options.start == AnswerStart::kToolCalls && stage != Stage::kContent;
    trimming = options.start == AnswerStart::kContent || options.start == AnswerStart::kReasoning;
  }

  const StageSpec& spec() const { return stages[static_cast<size_t>(stage)]; }

  void Enter(Stage next) {
    stage = next;
    matches.assign(spec().markers.size(), Match{});
    newlines = 0;
    idle = true;
    spaced = false;
  }

  void TakeBytes(std::string_view bytes, StreamEvents* out);
  void TakeText(std::string_view text, StreamEvents* out);
  void Advance(size_t marker, char c);
  const Marker* TakeByte(char c, size_t* size);
  size_t HeldBack() const;
  void Forget() {
    keeping = false;
    kept.clear();
  }
  void Apply(const Marker& marker, StreamEvents* out);
  void Claim(std::string_view text, StreamEvents* out);
  void Emit(StreamEventKind kind, std::string_view text, StreamEvents* out);
  void EmitArguments(std::string_view json, StreamEvents* out) {
    Emit(StreamEventKind::kToolArguments, json, out);
  }

  // Constant after construction.
  std::shared_ptr<const Tokenizer> tokenizer;
  StageTable stages;
  // Where the text is.
  Stage stage = Stage::kContent;
  std::vector<Match> matches;  // parallel to the stage's markers
  uint32_t newlines = 0;       // that end at the current byte
  bool idle = true;            // no marker under way and no newline pending
  bool trimming = false;       // leading newlines of the stage are dropped
  bool spaced = false;         // the stage's text has been shown as a space
  std::string pending;         // well-formed text not yet settled
  std::string character;       // the beginning of a character, at most 3 bytes
  std::string scratch;
  // An answer that had to be a call and is none yet: its text, in case it never comes to one.
  bool keeping = false;
  std::string kept;
  // What was found.
  std::string name;
  int calls = 0;
  bool first_parameter = true;
  std::string stopped_by;
  bool stopped = false;
  bool finished = false;
  uint64_t consumed = 0;
  uint64_t reasoning_ids = 0;
};

// Cuts bytes into well-formed text, holding back a character that is not complete.
void StreamParser::State::TakeBytes(std::string_view bytes, StreamEvents* out) {
  std::string joined;
  if (!character.empty()) {
    joined = character;
    joined += bytes;
    character.clear();
    bytes = joined;
  }
  size_t whole = 0;  // end of the well-formed stretch that starts at the front
  while (whole < bytes.size() && !stopped) {
    if (static_cast<uint8_t>(bytes[whole]) < 0x80) {
      ++whole;
      continue;
    }
    const Utf8Part part = Utf8PartAt(bytes.substr(whole));
    if (part.kind == Utf8Kind::kWhole) {
      whole += part.size;
      continue;
    }
    TakeText(bytes.substr(0, whole), out);
    if (part.kind == Utf8Kind::kCutOff) {
      character.assign(bytes.substr(whole));
      return;
    }
    TakeText(kReplacement, out);
    bytes.remove_prefix(whole + part.size);
    whole = 0;
  }
  if (!stopped) TakeText(bytes.substr(0, whole), out);
}

void StreamParser::State::TakeText(std::string_view text, StreamEvents* out) {
  if (text.empty() || stopped) return;
  if (keeping) kept += text;
  size_t at = pending.size();  // bytes before it were looked at
  pending += text;
  size_t settled = 0;
  while (at < pending.size()) {
    if (trimming) {
      if (pending[at] == '\n') {
        settled = ++at;
        continue;
      }
      trimming = false;
    }
    if (idle) {
      const auto& starts = spec().starts;
      while (at < pending.size() && !starts[static_cast<uint8_t>(pending[at])]) ++at;
      if (at == pending.size()) break;
    }
    size_t size = 0;
    const Marker* found = TakeByte(pending[at++], &size);
    if (found == nullptr) continue;
    Claim(std::string_view(pending).substr(settled, at - size - settled), out);
    settled = at;
    Apply(*found, out);
    if (stopped) {
      pending.clear();
      return;
    }
  }
  const size_t sure = pending.size() - HeldBack();
  Claim(std::string_view(pending).substr(settled, sure - settled), out);
  pending.erase(0, sure);
}

// One byte for one marker. Where the match falls back to a shorter one, that one starts inside the
// old and so has no newline before it, unless it starts at this very byte.
void StreamParser::State::Advance(size_t index, char c) {
  const Marker& marker = spec().markers[index];
  Match& match = matches[index];
  const uint32_t before = match.size;
  while (match.size > 0 && c != marker.literal[match.size]) {
    match.size = IsPlanted(Planted::kForgetBorder) ? 0 : marker.fallback[match.size - 1];
  }
  if (c == marker.literal[match.size]) ++match.size;
  if (match.size == before + 1 && before > 0) return;
  match.newlines = match.size == 1 && marker.eats_newlines ? newlines : 0;
}

// The marker that `c` completes, and how much text belongs to it; null if none.
const Marker* StreamParser::State::TakeByte(char c, size_t* size) {
  const StageSpec& stage_spec = spec();
  idle = true;
  for (size_t i = 0; i < matches.size(); ++i) {
    Advance(i, c);
    const Marker& marker = stage_spec.markers[i];
    if (matches[i].size == marker.literal.size()) {
      *size = matches[i].size + matches[i].newlines;
      return &marker;
    }
    if (matches[i].size > 0) idle = false;
  }
  newlines = c == '\n' && stage_spec.eats_newlines ? newlines + 1 : 0;
  if (newlines > 0) idle = false;
  return nullptr;
}

size_t StreamParser::State::HeldBack() const {
  if (idle) return 0;
  size_t held = newlines;
  for (const Match& match : matches) {
    if (match.size > 0) held = std::max<size_t>(held, match.size + match.newlines);
  }
  return held;
}

void StreamParser::State::Apply(const Marker& marker, StreamEvents* out) {
  switch (marker.step) {
    case Step::kNothing:
      break;
    case Step::kStop:
      stopped = true;
      stopped_by = marker.literal;
      break;
    case Step::kBeginCall:
      ++calls;
      Forget();
      first_parameter = true;
      out->events.push_back({StreamEventKind::kToolBegin, calls - 1,
                             static_cast<uint32_t>(out->text.size()),
                             static_cast<uint32_t>(name.size())});
      out->text += name;
      name.clear();
      break;
    case Step::kOpenKey:
      EmitArguments(first_parameter ? "{\"" : ", \"", out);
      first_parameter = false;
      break;
    case Step::kCloseKey:
      EmitArguments("\": ", out);
      break;
    case Step::kShow:
      Emit(StreamEventKind::kContent, marker.literal, out);
      break;
    case Step::kOpenText:
    case Step::kCloseText:
      EmitArguments("\"", out);
      break;
    case Step::kCloseCall:
      EmitArguments(first_parameter ? "{}" : "}", out);
      break;
  }
  trimming = marker.trims;
  Enter(marker.next);
  if (stage == Stage::kDone) Forget();
}

// Text that no marker took.
void StreamParser::State::Claim(std::string_view text, StreamEvents* out) {
  if (text.empty()) return;
  switch (spec().unclaimed) {
    case Unclaimed::kDrop:
      return;
    case Unclaimed::kReasoning:
      return Emit(StreamEventKind::kReasoning, text, out);
    case Unclaimed::kContent:
      return Emit(StreamEventKind::kContent, text, out);
    case Unclaimed::kSpace:
      if (!spaced) Emit(StreamEventKind::kContent, " ", out);
      spaced = true;
      return;
    case Unclaimed::kName:
      name += text;
      return;
    case Unclaimed::kArguments:
      return EmitArguments(text, out);
    case Unclaimed::kArgumentsEscaped:
      scratch.clear();
      AppendJsonEscaped(text, &scratch);
      return EmitArguments(scratch, out);
  }
}

void StreamParser::State::Emit(StreamEventKind kind, std::string_view text, StreamEvents* out) {
  const int call = kind == StreamEventKind::kToolArguments ? calls - 1 : -1;
  if (!out->events.empty() && out->events.back().kind == kind && out->events.back().call == call) {
    out->events.back().size += static_cast<uint32_t>(text.size());
  } else {
    out->events.push_back({kind, call, static_cast<uint32_t>(out->text.size()),
                           static_cast<uint32_t>(text.size())});
  }
  out->text += text;
}

StreamParser::StreamParser(std::shared_ptr<const Tokenizer> tokenizer, StreamParserOptions options)
    : state_(std::make_unique<State>(std::move(tokenizer), options)) {}
StreamParser::~StreamParser() = default;
StreamParser::StreamParser(StreamParser&&) noexcept = default;
StreamParser& StreamParser::operator=(StreamParser&&) noexcept = default;

size_t StreamParser::Push(std::span<const TokenId> ids, StreamEvents* out) {
  State& state = *state_;
  WEIR_CHECK(!state.finished);
  size_t taken = 0;
  const Vocab& vocab = state.tokenizer->vocab();
  while (taken < ids.size() && !state.stopped) {
    const TokenId id = ids[taken++];
    ++state.consumed;
    if (state.stage == Stage::kReasoning) ++state.reasoning_ids;
    if (!vocab.IsSilent(id)) state.TakeBytes(vocab.BytesOf(id), out);
  }
  return taken;
}

void StreamParser::Finish(StreamEvents* out) {
  State& state = *state_;
  WEIR_CHECK(!state.finished);
  state.finished = true;
  if (state.stopped) return;
  // A character that never was completed is dropped; an unfinished marker was text after all.
  if (!state.character.empty()) WEIR_REACHED("stream: the answer ends inside a character");
  if (state.keeping) {
    if (!state.kept.empty()) {
      WEIR_REACHED("stream: a forced call never came");
      state.Emit(StreamEventKind::kContent, state.kept, out);
    }
    state.Forget();
  } else {
    state.Claim(state.pending, out);
  }
  state.pending.clear();
}

bool StreamParser::stopped() const { return state_->stopped; }
std::string_view StreamParser::stop() const { return state_->stopped_by; }
int StreamParser::tool_calls() const { return state_->calls; }
bool StreamParser::reasoning() const { return state_->stage == Stage::kReasoning; }
uint64_t StreamParser::consumed() const { return state_->consumed; }
uint64_t StreamParser::reasoning_ids() const { return state_->reasoning_ids; }

}  // namespace weir::codec
