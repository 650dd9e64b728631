// SPDX-License-Identifier: Apache-2.0
#include "codec/stream/stream_parser.h"

#include <gtest/gtest.h>

#include "base/stdx/random.h"

namespace weir::codec {
namespace {

std::shared_ptr<const Tokenizer> Script() {
  static const auto tokenizer = *Tokenizer::FromFile("deploy/models/script/tokenizer.json");
  return tokenizer;
}

// Events joined: neighbours of one kind are one, since cuts may fall anywhere.
struct Parsed {
  std::string content;
  std::string reasoning;
  std::vector<std::pair<std::string, std::string>> calls;
  std::string stop;
  size_t consumed = 0;

  void Add(const StreamEvents& out) {
    for (const auto& event : out.events) {
      const std::string text(out.TextOf(event));
      switch (event.kind) {
        case StreamEventKind::kContent:
          content += text;
          break;
        case StreamEventKind::kReasoning:
          reasoning += text;
          break;
        case StreamEventKind::kToolBegin:
          EXPECT_EQ(event.call, static_cast<int>(calls.size()));
          calls.emplace_back(text, "");
          break;
        case StreamEventKind::kToolArguments:
          ASSERT_LT(event.call, static_cast<int>(calls.size()));
          calls[static_cast<size_t>(event.call)].second += text;
          break;
      }
    }
  }
  bool operator==(const Parsed&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Parsed& parsed) {
  out << "content \"" << parsed.content << "\" reasoning \"" << parsed.reasoning << "\"";
  for (const auto& [name, arguments] : parsed.calls) out << " call " << name << " " << arguments;
  return out << " stop \"" << parsed.stop << "\" consumed " << parsed.consumed;
}

using Ids = std::vector<TokenId>;

// Feeds `ids` in groups that end at `cuts`.
Parsed Parse(const StreamParserOptions& options, const Ids& ids, const std::vector<size_t>& cuts) {
  StreamParser parser(Script(), options);
  Parsed parsed;
  size_t from = 0;
  StreamEvents events;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const size_t to = i < cuts.size() ? cuts[i] : ids.size();
    events.Clear();
    parsed.consumed += parser.Push(std::span(ids).subspan(from, to - from), &events);
    parsed.Add(events);
    from = to;
  }
  events.Clear();
  parser.Finish(&events);
  parsed.Add(events);
  parsed.stop = parser.stop();
  return parsed;
}

Ids ByteIds(std::string_view text) {
  Ids ids;
  for (const char c : text) Script()->Encode(std::string_view(&c, 1), &ids);
  return ids;
}

StreamParserOptions Options(AnswerStart start, ToolSyntax tools = ToolSyntax::kNone,
                            std::vector<std::string> stops = {}) {
  return {start, tools, std::move(stops)};
}

// Parses at once, token by token, and at every single cut, from model tokens and from bytes.
Parsed ParseEveryWay(const StreamParserOptions& options, std::string_view text) {
  Parsed first;
  bool have_first = false;
  for (const Ids& ids : {Script()->EncodeTrusted(text), ByteIds(text)}) {
    const Parsed whole = Parse(options, ids, {});
    std::vector<size_t> each;
    for (size_t i = 1; i < ids.size(); ++i) {
      each.push_back(i);
      EXPECT_EQ(Parse(options, ids, {i}), whole) << text << " cut at " << i;
    }
    EXPECT_EQ(Parse(options, ids, each), whole) << text << " token by token";
    Parsed comparable = whole;
    comparable.consumed = 0;
    if (have_first) {
      EXPECT_EQ(comparable, first) << text;
    }
    first = comparable;
    have_first = true;
  }
  return first;
}

Parsed Content(std::string text, std::string stop = "") {
  Parsed parsed;
  parsed.content = std::move(text);
  parsed.stop = std::move(stop);
  return parsed;
}
Parsed Thought(std::string reasoning, std::string content) {
  Parsed parsed = Content(std::move(content));
  parsed.reasoning = std::move(reasoning);
  return parsed;
}
Parsed Called(Parsed parsed, std::vector<std::pair<std::string, std::string>> calls) {
  parsed.calls = std::move(calls);
  return parsed;
}

constexpr AnswerStart kAnswer = AnswerStart::kContent;
constexpr AnswerStart kThinking = AnswerStart::kReasoning;
constexpr ToolSyntax kDsml = ToolSyntax::kDsml;

TEST(StreamParser, ReasoningThenContent) {
  const auto options = Options(kThinking);
  EXPECT_EQ(ParseEveryWay(options, "\nabc\n</think>\n\nans"), Thought("abc", "ans"));
  EXPECT_EQ(ParseEveryWay(options, "</think>ans"), Thought("", "ans"));
  EXPECT_EQ(ParseEveryWay(options, "a </thin b</think>x"), Thought("a </thin b", "x"));
  EXPECT_EQ(ParseEveryWay(options, "a<</think>x"), Thought("a<", "x"));
  EXPECT_EQ(ParseEveryWay(options, "a\n\n</thi"), Thought("a\n\n</thi", ""));
  EXPECT_EQ(ParseEveryWay(options, "\n\n\nx\n\ny"), Thought("x\n\ny", ""));
  EXPECT_EQ(ParseEveryWay(options, "never ends"), Thought("never ends", ""));
  EXPECT_EQ(ParseEveryWay(Options(kAnswer), "a</think>b"), Content("ab"));
  EXPECT_EQ(ParseEveryWay(Options(AnswerStart::kReasoningContinued), "\nab</think>c"),
            Thought("\nab", "c"));
  EXPECT_EQ(ParseEveryWay(Options(AnswerStart::kContentContinued), "\nab"), Content("\nab"));
}

constexpr char kBlock41[] =
    "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n"
    "<｜DSML｜ parameter name=\"a\" string=\"true\">x\"y\n</｜DSML｜ parameter>\n"
    "<｜DSML｜ parameter name=\"n\" string=\"false\">3</｜DSML｜ parameter>\n"
    "</｜DSML｜ invoke>\n</｜DSML｜ calls>";
constexpr char kBlock4[] =
    "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n"
    "<｜DSML｜parameter name=\"a\" string=\"true\">x\"y\n</｜DSML｜parameter>\n"
    "<｜DSML｜parameter name=\"n\" string=\"false\">3</｜DSML｜parameter>\n"
    "</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
constexpr char kBlock32[] =
    "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n"
    "<｜DSML｜parameter name=\"a\" string=\"true\">x\"y\n</｜DSML｜parameter>\n"
    "<｜DSML｜parameter name=\"n\" string=\"false\">3</｜DSML｜parameter>\n"
    "</｜DSML｜invoke>\n</｜DSML｜function_calls>";

TEST(StreamParser, ToolCallsOfEveryVersion) {
  const auto options = Options(kAnswer, kDsml);
  for (const char* block : {kBlock41, kBlock4, kBlock32}) {
    EXPECT_EQ(ParseEveryWay(options, std::string("Sure.\n\n") + block),
              Called(Content("Sure."), {{"f", R"({"a": "x\"y\n", "n": 3})"}}));
  }
  EXPECT_EQ(ParseEveryWay(options, std::string(kBlock41) + "\n\ntrailing text"),
            Called(Content(""), {{"f", R"({"a": "x\"y\n", "n": 3})"}}));
  EXPECT_EQ(ParseEveryWay(Options(kThinking, kDsml), std::string("hm\n\n") + kBlock41),
            Called(Thought("hm", ""), {{"f", R"({"a": "x\"y\n", "n": 3})"}}));
}

TEST(StreamParser, SeveralCallsAndOddOnes) {
  const auto options = Options(kAnswer, kDsml);
  EXPECT_EQ(ParseEveryWay(options,
                          "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n\n</｜DSML｜ invoke>\n"
                          "<｜DSML｜ invoke name=\"g\">\n"
                          "<｜DSML｜ parameter name=\"k\" string=\"false\">[1, 2]</｜DSML｜ parameter>"
                          "\n</｜DSML｜ invoke>\n</｜DSML｜ calls>"),
            Called(Content(""), {{"f", "{}"}, {"g", R"({"k": [1, 2]})"}}));
  EXPECT_EQ(ParseEveryWay(options,
                          "<｜DSML｜ calls><｜DSML｜ invoke name=\"f\">"
                          "<｜DSML｜ parameter name=\"shipping address\" string=\"true\">"
                          "Paris\n日本</｜DSML｜ parameter>"
                          "<｜DSML｜ parameter name=\"\" string=\"true\">1 < 2 && </b>"
                          "</｜DSML｜ parameter></｜DSML｜ invoke></｜DSML｜ calls>"),
            Called(Content(""),
                   {{"f", "{\"shipping address\": \"Paris\\n日本\", \"\": \"1 < 2 && </b>\"}"}}));
  EXPECT_EQ(ParseEveryWay(options, "<｜DSML｜ calls><｜DSML｜ invoke name=\"f\">"
                                   "<｜DSML｜ parameter name=\"a\" string=\"true\">Par"),
            Called(Content(""), {{"f", "{\"a\": \"Par"}}));
  // Without the attribute a value is a string.
  EXPECT_EQ(ParseEveryWay(options, "<｜DSML｜ calls><｜DSML｜ invoke name=\"f\">"
                                   "<｜DSML｜ parameter name=\"a\">v</｜DSML｜ parameter>"
                                   "</｜DSML｜ invoke></｜DSML｜ calls>"),
            Called(Content(""), {{"f", "{\"a\": \"v\"}"}}));
}

TEST(StreamParser, MarkersThatAreNone) {
  const auto options = Options(kAnswer, kDsml);
  EXPECT_EQ(ParseEveryWay(options, "Hi <｜DS"), Content("Hi <｜DS"));
  EXPECT_EQ(ParseEveryWay(options, "a\n\n<b>\n\n"), Content("a\n\n<b>\n\n"));
  EXPECT_EQ(ParseEveryWay(options, "a\n<\n<｜DSML｜ calls></｜DSML｜ calls>"), Content("a\n<"));
  EXPECT_EQ(ParseEveryWay(Options(kAnswer), kBlock41), Content(kBlock41));
}

TEST(StreamParser, ForcedCallStartsInside) {
  EXPECT_EQ(ParseEveryWay(Options(AnswerStart::kToolCalls, kDsml),
                          "<｜DSML｜ invoke name=\"f\">\n\n</｜DSML｜ invoke>\n</｜DSML｜ calls>"),
            Called(Content(""), {{"f", "{}"}}));
}

TEST(StreamParser, ForcedCallThatNeverComesIsContent) {
  const auto forced = Options(AnswerStart::kToolCalls, kDsml);
  for (const char* text :
       {"I would rather not.", "<｜DSML｜ invoke name=\"get_wea", "<｜DSML", "é <"}) {
    EXPECT_EQ(ParseEveryWay(forced, text), Content(text));
  }
  EXPECT_EQ(ParseEveryWay(Options(AnswerStart::kToolCalls, ToolSyntax::kV31Tokens),
                          "<｜tool▁call▁begin｜>f"),
            Content("<｜tool▁call▁begin｜>f"));
  // With a name it is a call, whatever is missing of it; a closed block without one is an answer.
  EXPECT_EQ(ParseEveryWay(forced, "well <｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a"),
            Called(Content(""), {{"f", "{\"a"}}));
  EXPECT_EQ(ParseEveryWay(forced, "</｜DSML｜ calls>"), Content(""));
}

TEST(StreamParser, ToolTokensOfV31AndV3) {
  EXPECT_EQ(
      ParseEveryWay(Options(kThinking, ToolSyntax::kV31Tokens),
                    "plan</think>Sure.\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>"
                    "{\"a\": 1}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}"
                    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
      Called(Thought("plan", "Sure."), {{"f", "{\"a\": 1}"}, {"g", "{}"}}));
  EXPECT_EQ(
      ParseEveryWay(Options(kAnswer, ToolSyntax::kV3Tokens),
                    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
                    "{\"a\":\n1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n"
                    "```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
      Called(Content(""), {{"f", "{\"a\":\n1}"}, {"g", "{}"}}));
}

TEST(StreamParser, StopStrings) {
  EXPECT_EQ(ParseEveryWay(Options(kAnswer, kDsml, {"END"}), "Answer END more"),
            Content("Answer ", "END"));
  EXPECT_EQ(ParseEveryWay(Options(kAnswer, kDsml, {"END"}), "E EN ENx"), Content("E EN ENx"));
  EXPECT_EQ(ParseEveryWay(Options(kAnswer, kDsml, {"END"}), "EEENEND."), Content("EEEN", "END"));
  EXPECT_EQ(ParseEveryWay(Options(kAnswer, kDsml, {"abcd", "bc"}), "abcd"), Content("a", "bc"));
  EXPECT_EQ(ParseEveryWay(Options(kAnswer, kDsml, {"\n\n"}), "a\n\nb"), Content("a", "\n\n"));
  EXPECT_EQ(ParseEveryWay(Options(AnswerStart::kRaw, ToolSyntax::kNone, {"é!"}), "\ncaféé!x"),
            Content("\ncafé", "é!"));
  Parsed expected = Thought("an END", "b");
  expected.stop = "END";
  EXPECT_EQ(ParseEveryWay(Options(kThinking, kDsml, {"END"}), "an END</think>bENDc"), expected);
}

TEST(StreamParser, ConsumesUpToTheTokenThatCompletesTheStop) {
  const Ids ids = ByteIds("abENDcd");
  StreamParser parser(Script(), Options(kAnswer, kDsml, {"END"}));
  StreamEvents events;
  EXPECT_EQ(parser.Push(ids, &events), 5u);
  EXPECT_TRUE(parser.stopped());
  EXPECT_EQ(parser.consumed(), 5u);
  EXPECT_EQ(parser.Push(ids, &events), 0u);
}

TEST(StreamParser, CharactersAreNeverSplit) {
  const std::string text = "한글 🦀👩‍👩‍👧 ไทย العربية é";
  EXPECT_EQ(ParseEveryWay(Options(kAnswer), text), Content(text));
  StreamParser parser(Script(), Options(kAnswer));
  StreamEvents events;
  for (const TokenId id : ByteIds("🦀")) parser.Push(std::span(&id, 1), &events);
  ASSERT_EQ(events.events.size(), 1u);
  EXPECT_EQ(events.TextOf(events.events[0]), "🦀");
}

TEST(StreamParser, IllFormedBytesBecomeReplacements) {
  const auto options = Options(kAnswer);
  const Ids bad = ByteIds("a\xE2\x82y\xFFz");
  std::vector<size_t> each;
  for (size_t i = 1; i < bad.size(); ++i) each.push_back(i);
  EXPECT_EQ(Parse(options, bad, {}).content, "a\uFFFDy\uFFFDz");
  EXPECT_EQ(Parse(options, bad, each).content, "a\uFFFDy\uFFFDz");
  EXPECT_EQ(Parse(options, ByteIds("a\xF0\x9F"), {}).content, "a");  // cut off by the end
}

TEST(StreamParser, EndTokensAndStrangeIdsHaveNoText) {
  const Vocab& vocab = Script()->vocab();
  const Ids ids = {*vocab.bos(), ByteIds("a")[0], *vocab.eos(), 100000, -1, *vocab.pad()};
  EXPECT_EQ(Parse(Options(kAnswer), ids, {}).content, "a");
  EXPECT_EQ(Parse(Options(kAnswer), ids, {}).consumed, ids.size());
}

TEST(StreamParser, CountsReasoning) {
  StreamParser parser(Script(), Options(kThinking));
  StreamEvents events;
  const Ids ids = Script()->EncodeTrusted("<think>");  // one id, text here
  Ids all = ByteIds("Plan");
  all.push_back(*Script()->vocab().FindAdded(kThinkEndToken));
  for (const TokenId id : ByteIds("ok")) all.push_back(id);
  parser.Push(all, &events);
  EXPECT_EQ(parser.reasoning_ids(), 5u);
  EXPECT_FALSE(parser.reasoning());
  EXPECT_EQ(ids.size(), 1u);
}

// Random walks over the alphabet of markers: every cutting gives what the whole gives.
TEST(StreamParser, AnyCuttingGivesTheSame) {
  const char* const pieces[] = {"<",       "</",      "<｜DSML｜", "</｜DSML｜", "｜DSML｜", " calls>",
                                "\n",      "\n\n",    "invoke name=\"", "f",    "\"",      ">",
                                " parameter name=\"", " string=\"true\">", " string=\"false\">",
                                "</think>", "<think>", "S",    "ST",        "STOP",    "é",
                                "🦀",      "\xE2",    "\xFF",  "</｜DSML｜ calls>"};
  Random random(5);
  for (int round = 0; round < 3000; ++round) {
    Ids ids;
    for (uint64_t n = 1 + random.Below(14); n > 0; --n) {
      const std::string piece = pieces[random.Below(std::size(pieces))];
      const Ids more = random.Chance(0.5) ? ByteIds(piece) : Script()->EncodeTrusted(piece);
      ids.insert(ids.end(), more.begin(), more.end());
    }
    const auto options = Options(random.Chance(0.5) ? kThinking : kAnswer,
                                 random.Chance(0.8) ? kDsml : ToolSyntax::kNone, {"STOP", "TO"});
    const Parsed whole = Parse(options, ids, {});
    std::vector<size_t> each;
    std::vector<size_t> some;
    for (size_t i = 1; i < ids.size(); ++i) {
      each.push_back(i);
      if (random.Chance(0.3)) some.push_back(i);
    }
    ASSERT_EQ(Parse(options, ids, each), whole) << Script()->Decode(ids);
    ASSERT_EQ(Parse(options, ids, some), whole) << Script()->Decode(ids);
    ASSERT_EQ(whole.content.find("<｜DSML｜") == std::string::npos ||
                  options.tools == ToolSyntax::kNone,
              true);
  }
}

}  // namespace
}  // namespace weir::codec
