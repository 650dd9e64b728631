// SPDX-License-Identifier: Apache-2.0
//
// Answers and the events that they must give, whole, cut at every place, token by token and byte by
// byte. With --tokenizer=FILE tokens are those of that vocabulary (its control tokens count where it
// has them), else of the script model's.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/stdx/planted.h"
#include "codec/stream/stream_parser.h"

namespace weir::codec {
namespace {

std::string g_tokenizer = "deploy/models/script/tokenizer.json";  // set once by main

std::shared_ptr<const Tokenizer> Loaded() {
  static const auto tokenizer = *Tokenizer::FromFile(g_tokenizer);
  return tokenizer;
}

using Ids = std::vector<TokenId>;

#define D "｜DSML｜"

struct Vector {
  const char* name;
  StreamParserOptions options;
  std::string text;
  // One line an event: c content, r reasoning, b a call begins, a its arguments; s a stop string.
  std::string events;
};

constexpr AnswerStart kAnswer = AnswerStart::kContent;
constexpr AnswerStart kThink = AnswerStart::kReasoning;
constexpr ToolSyntax kNone = ToolSyntax::kNone;
constexpr ToolSyntax kDsml = ToolSyntax::kDsml;

// One call f(a string, n json) in the tags of a version.
std::string Block(const std::string& calls, const std::string& space) {
  return "<" D + calls + ">\n<" D + space + "invoke name=\"f\">\n<" D + space +
         "parameter name=\"a\" string=\"true\">x\"y\n</" D + space + "parameter>\n<" D + space +
         "parameter name=\"n\" string=\"false\">3</" D + space + "parameter>\n</" D + space +
         "invoke>\n</" D + calls + ">";
}

std::vector<Vector> Vectors() {
  const std::string f = "b f\na {\"a\": \"x\\\"y\\n\", \"n\": 3}\n";
  const std::string open = "<" D " calls>\n<" D " invoke name=\"f\">\n";
  const auto text_parameter = [](const std::string& key, const std::string& value) {
    return "<" D " parameter name=\"" + key + "\" string=\"true\">" + value + "</" D " parameter>\n";
  };
  const std::string close = "</" D " invoke>\n</" D " calls>";
  return {
      {"reasoning", {kThink, kNone, {}}, "\nabc\n</think>\n\nans", "r abc\nc ans\n"},
      {"no reasoning", {kThink, kNone, {}}, "</think>ans", "c ans\n"},
      {"stray end", {kAnswer, kNone, {}}, "a</think>b", "c ab\n"},
      {"almost an end", {kThink, kNone, {}}, "a </thin b</think>x", "r a </thin b\nc x\n"},
      {"doubled bracket", {kThink, kNone, {}}, "a<</think>x", "r a<\nc x\n"},
      {"V4 call", {kAnswer, kDsml, {}}, "Sure.\n\n" + Block("tool_calls", ""), "c Sure.\n" + f},
      {"V4.1 call", {kAnswer, kDsml, {}}, "Sure.\n\n" + Block(" calls", " "), "c Sure.\n" + f},
      {"V3.2 call", {kAnswer, kDsml, {}}, "Sure.\n\n" + Block("function_calls", ""), "c Sure.\n" + f},
      {"two calls", {kAnswer, kDsml, {}},
       open + "\n</" D " invoke>\n<" D " invoke name=\"g\">\n<" D
              " parameter name=\"k\" string=\"false\">[1, 2]</" D " parameter>\n" + close,
       "b f\na {}\nb g\na {\"k\": [1, 2]}\n"},
      {"call in reasoning", {kThink, kDsml, {}}, "hm\n\n" + Block(" calls", " "), "r hm\n" + f},
      {"odd keys", {kAnswer, kDsml, {}},
       open + text_parameter("shipping address", "Paris\n日本") + text_parameter(" string= mode ", "m") +
           "<" D " parameter name=\"count\" string=\"false\">2</" D " parameter>\n" +
           text_parameter("", "e") + close,
       "b f\na {\"shipping address\": \"Paris\\n日本\", \" string= mode \": \"m\", \"count\": 2, "
       "\"\": \"e\"}\n"},
      {"after the block", {kAnswer, kDsml, {}}, Block(" calls", " ") + "\n\nmore", f},
      {"cut off value", {kAnswer, kDsml, {}},
       open + "<" D " parameter name=\"a\" string=\"true\">Par", "b f\na {\"a\": \"Par\n"},
      {"cut off marker", {kAnswer, kDsml, {}}, "Hi <｜DS", "c Hi <｜DS\n"},
      {"tools off", {kAnswer, kNone, {}}, "x <" D " calls>", "c x <" D " calls>\n"},
      {"forced call", {AnswerStart::kToolCalls, kDsml, {}},
       "<" D " invoke name=\"f\">\n\n</" D " invoke>\n</" D " calls>", "b f\na {}\n"},
      {"stop", {kAnswer, kDsml, {"END"}}, "Answer END more", "c Answer \ns END\n"},
      {"stop in reasoning", {kThink, kDsml, {"END"}}, "an END</think>bENDc", "r an END\nc b\ns END\n"},
      {"almost a stop", {kAnswer, kDsml, {"END"}}, "E EN ENx", "c E EN ENx\n"},
      {"overlapping stops", {kAnswer, kNone, {"abcd", "bc"}}, "abcd", "c a\ns bc\n"},
      {"stop within itself", {kAnswer, kNone, {"aab"}}, "xaaab", "c xa\ns aab\n"},
      {"fenced JSON", {kAnswer, kNone, {}, true}, "Here:\n```json\n{\"a\": 1}\n```\ndone",
       "c  {\"a\": 1} \n"},
      {"bare JSON", {kAnswer, kNone, {}, true}, "Here: {\"a\": 1} post", "c  {\"a\": 1} post\n"},
      {"JSON after thought", {kThink, kNone, {}, true}, "hm\n</think>\n\n[1]", "r hm\nc [1]\n"},
      {"markup in a value", {kAnswer, kDsml, {}},
       open + text_parameter("a", "1 < 2 && </b>") + close, "b f\na {\"a\": \"1 < 2 && </b>\"}\n"},
      {"marker in a value", {kAnswer, kDsml, {}},
       open + "<" D " parameter name=\"a\" string=\"true\">u</" D " v" + close,
       "b f\na {\"a\": \"u\"}\n"},
      {"newlines kept", {kAnswer, kDsml, {}}, "a\n\n<b>\n\n", "c a\n\n<b>\n\n\n"},
      {"newline before a marker", {kAnswer, kDsml, {}}, "a\n<\n" + Block(" calls", " "), "c a\n<\n" + f},
      {"crab", {kAnswer, kNone, {}}, "🦀 é 中", "c 🦀 é 中\n"},
  };
}

// What the parser says for `ids` fed in groups that end at `cuts`.
std::string EventsOf(const Vector& vector, const Ids& ids, const std::vector<size_t>& cuts) {
  StreamParser parser(Loaded(), vector.options);
  StreamEvents all;
  std::string lines;
  StreamEventKind last{};
  int last_call = -2;
  const auto add = [&](const StreamEvents& events) {
    constexpr char kLetters[] = "crba";
    for (const auto& event : events.events) {
      const bool joins = last_call != -2 && event.kind == last && event.call == last_call &&
                         event.kind != StreamEventKind::kToolBegin;
      if (joins) {
        lines.pop_back();
      } else {
        lines += {kLetters[static_cast<int>(event.kind)], ' '};
      }
      lines += events.TextOf(event);
      lines += '\n';
      last = event.kind;
      last_call = event.call;
    }
  };
  size_t from = 0;
  for (size_t i = 0; i <= cuts.size() && !parser.stopped(); ++i) {
    const size_t to = i < cuts.size() ? cuts[i] : ids.size();
    all.Clear();
    parser.Push(std::span(ids).subspan(from, to - from), &all);
    add(all);
    from = to;
  }
  all.Clear();
  parser.Finish(&all);
  add(all);
  if (parser.stopped()) lines += "s " + std::string(parser.stop()) + "\n";
  return lines;
}

TEST(ParserVectors, EventForEventAtEverySplit) {
  const auto tokenizer = Loaded();
  for (const Vector& vector : Vectors()) {
    Ids bytes;
    for (const char& c : vector.text) tokenizer->Encode(std::string_view(&c, 1), &bytes);
    ASSERT_EQ(bytes.size(), vector.text.size());
    Ids plain;
    tokenizer->Encode(vector.text, &plain);
    for (const Ids& ids : {tokenizer->EncodeTrusted(vector.text), plain, bytes}) {
      EXPECT_EQ(EventsOf(vector, ids, {}), vector.events) << vector.name;
      std::vector<size_t> each;
      for (size_t i = 1; i < ids.size(); ++i) {
        each.push_back(i);
        EXPECT_EQ(EventsOf(vector, ids, {i}), vector.events) << vector.name << ", cut at " << i;
      }
      EXPECT_EQ(EventsOf(vector, ids, each), vector.events) << vector.name << ", one by one";
    }
  }
}

TEST(ParserVectors, UnknownIdsAndTheEndSayNothing) {
  const Vector vector = {"", {kAnswer, kNone, {}}, "", ""};
  EXPECT_EQ(EventsOf(vector, {1 << 20, -1}, {1}), "");
  EXPECT_EQ(EventsOf(vector, {}, {}), "");
}

}  // namespace
}  // namespace weir::codec

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--tokenizer=", 0) == 0) weir::codec::g_tokenizer = argument.substr(12);
  }
  if (const char* planted = std::getenv("WEIR_PLANTED")) weir::g_planted = std::atoi(planted);
  return RUN_ALL_TESTS();
}
