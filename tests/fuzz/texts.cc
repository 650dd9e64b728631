// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/texts.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/stdx/check.h"
#include "codec/conversation/json_text.h"
#include "codec/prompt/history.h"
#include "codec/stream/stream_parser.h"
#include "codec/token/parallel.h"
#include "codec/token/tokenizer.h"

namespace weir {
namespace {

using codec::AnswerStart;
using codec::StreamEvents;
using codec::StreamParser;
using codec::StreamParserOptions;
using codec::ToolSyntax;
using Ids = std::vector<TokenId>;

const std::shared_ptr<const codec::Tokenizer>& Script() {
  static const auto tokenizer = *codec::Tokenizer::FromFile("deploy/models/script/tokenizer.json");
  return tokenizer;
}

void Encode(std::string_view text) {
  const codec::Tokenizer& tokenizer = *Script();
  Ids whole;
  tokenizer.Encode(text, &whole);
  WEIR_CHECK(tokenizer.Decode(whole) == text);
  for (const TokenId id : whole) WEIR_CHECK(!tokenizer.vocab().IsAdded(id));

  const size_t cut = tokenizer.SafeCut(text, std::max<size_t>(text.size() / 2, 1));
  Ids cut_apart;
  tokenizer.Encode(text.substr(0, cut), &cut_apart);
  tokenizer.Encode(text.substr(cut), &cut_apart);
  WEIR_CHECK(cut_apart == whole);

  const auto backwards = [](size_t count, absl::FunctionRef<void(size_t)> job) {
    for (size_t i = count; i-- > 0;) job(i);
  };
  Ids in_parts;
  codec::EncodeInParallel(tokenizer, text, backwards, &in_parts, 8);
  WEIR_CHECK(in_parts == whole);

  Ids bounded;
  tokenizer.Encode(text, &bounded, 3);
  WEIR_CHECK(bounded.size() > 3 || whole.size() <= 3);
  WEIR_CHECK(tokenizer.Decode(tokenizer.EncodeTrusted(text)) == text);
}

// A line is a turn; each answer is asked for with all that went before it.
void Converse(std::string_view text) {
  static codec::PromptHistory history(1 << 20);
  const codec::Tokenizer& tokenizer = *Script();
  const TokenId user = *tokenizer.vocab().FindAdded(codec::kUserToken);
  codec::Segments segments;
  for (int turn = 0; turn < 8 && !text.empty(); ++turn) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    segments.Token(user);
    segments.Text(text.substr(0, end));
    text.remove_prefix(end);
    Ids known;
    Ids plain;
    history.Encode(tokenizer, segments, "", &known);
    codec::EncodeSegments(tokenizer, segments, &plain);
    WEIR_CHECK(known == plain);
  }
}

// What was said: neighbouring events of one kind are one, since calls may be cut anywhere.
class Said {
 public:
  void Add(const StreamEvents& events) {
    for (const auto& event : events.events) {
      const std::string head = std::string(1, static_cast<char>('0' + static_cast<int>(event.kind))) +
                               std::to_string(event.call) + ":";
      const bool begins = event.kind == codec::StreamEventKind::kToolBegin;
      if (begins || head != last_) all_ += "\n" + head;
      last_ = head;
      const std::string_view text = events.TextOf(event);
      for (size_t at = 0; at < text.size();) {
        const auto part = codec::Utf8PartAt(text.substr(at));
        WEIR_CHECK(part.kind == codec::Utf8Kind::kWhole);
        at += part.size;
      }
      all_ += text;
    }
  }
  const std::string& all() const { return all_; }

 private:
  std::string all_;
  std::string last_;
};

std::string Parse(const StreamParserOptions& options, const Ids& ids, size_t step) {
  StreamParser parser(Script(), options);
  StreamEvents events;
  Said said;
  for (size_t at = 0; at < ids.size() && !parser.stopped(); at += step) {
    events.Clear();
    parser.Push(std::span(ids).subspan(at, std::min(step, ids.size() - at)), &events);
    said.Add(events);
  }
  events.Clear();
  parser.Finish(&events);
  said.Add(events);
  return said.all() + "\n" + std::string(parser.stop()) + " " + std::to_string(parser.consumed());
}

void Answer(uint8_t how, uint8_t what, std::string_view text) {
  StreamParserOptions options;
  options.start = static_cast<AnswerStart>(how % 6);
  options.tools = static_cast<ToolSyntax>(how / 6 % 4);
  options.json = (what & 1) != 0;
  if ((what & 2) != 0) options.stops = {"END", "NDx", "\n\n"};
  Ids ids;
  if ((what & 4) != 0) {
    for (size_t i = 0; i < text.size(); ++i) Script()->Encode(text.substr(i, 1), &ids);
  } else {
    ids = Script()->EncodeTrusted(text);
  }
  const std::string whole = Parse(options, ids, std::max<size_t>(ids.size(), 1));
  WEIR_CHECK(Parse(options, ids, 1) == whole);
  WEIR_CHECK(Parse(options, ids, 2 + what / 8) == whole);
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (data[0] == 'e') weir::Encode(text.substr(1));
  if (data[0] == 'h') weir::Converse(text.substr(1));
  if (data[0] == 'p' && size >= 3) weir::Answer(data[1], data[2], text.substr(3));
  return 0;
}
