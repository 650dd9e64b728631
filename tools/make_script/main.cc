// SPDX-License-Identifier: Apache-2.0
//
// weir_make_script --lines FILE --tokenizer FILE --out FILE [--check]: turns what the script model
// shall say (text, deploy/models/script/lines.json) into the token ids that it reads (script.json).
// With --check nothing is written and FILE must be what would be. Exit 0 when done, 2 with one line
// of reason otherwise.
//
// lines.json: a list of entries {name, when, reasoning, emit, echo, after}. `when` lists phrases, each
// also meant with a space before it; the other texts may spell control tokens.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <fstream>
#include <sstream>
#include <string>

#include "base/stdx/status.h"
#include "codec/token/tokenizer.h"
#include "nlohmann/json.hpp"

namespace weir {
namespace {

using Json = nlohmann::ordered_json;

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return Error(Reason::kBadField, "cannot read " + path);
  return text.str();
}

absl::StatusOr<TokenId> ControlToken(const codec::Tokenizer& tokenizer, const std::string& text) {
  const std::vector<TokenId> ids = tokenizer.EncodeTrusted(text);
  if (ids.size() != 1) return Error(Reason::kBadField, "the tokenizer lacks " + text);
  return ids[0];
}

absl::StatusOr<Json> EntryOf(const codec::Tokenizer& tokenizer, const Json& line) {
  Json entry;
  entry["name"] = line.at("name");
  entry["when"] = Json::array();
  for (const Json& phrase : line.value("when", Json::array())) {
    for (const char* before : {"", " "}) {
      std::vector<TokenId> ids;
      tokenizer.Encode(before + phrase.get<std::string>(), &ids);
      entry["when"].push_back(ids);
    }
  }
  for (const char* field : {"reasoning", "emit", "after"}) {
    const std::vector<TokenId> ids = tokenizer.EncodeTrusted(line.value(field, std::string()));
    if (!ids.empty()) entry[field] = ids;
  }
  if (line.value("echo", false)) entry["echo"] = 1;
  return entry;
}

absl::StatusOr<std::string> ScriptOf(const codec::Tokenizer& tokenizer, const std::string& lines) {
  const Json entries = Json::parse(lines, nullptr, /*allow_exceptions=*/false);
  if (!entries.is_array()) return Error(Reason::kBadField, "the lines are not a JSON list");
  Json script;
  script["comment"] = "written by tools/make_script from lines.json";
  const std::pair<const char*, const char*> kMarks[] = {{"user_token", "<｜User｜>"},
                                                        {"assistant_token", "<｜Assistant｜>"},
                                                        {"think_token", "<think>"},
                                                        {"think_end_token", "</think>"},
                                                        {"filler", "<｜▁pad▁｜>"}};
  for (const auto& [field, text] : kMarks) {
    WEIR_ASSIGN(script[field], ControlToken(tokenizer, text));
  }
  WEIR_ASSIGN(const TokenId stop, ControlToken(tokenizer, "<｜end▁of▁sentence｜>"));
  script["stop_tokens"] = {stop};
  script["entries"] = Json::array();
  for (const Json& line : entries) {
    WEIR_ASSIGN(Json entry, EntryOf(tokenizer, line));
    script["entries"].push_back(std::move(entry));
  }
  return script.dump() + "\n";
}

absl::Status Run(const std::string& lines, const std::string& tokenizer_path,
                 const std::string& out, bool check) {
  WEIR_ASSIGN(const auto tokenizer, codec::Tokenizer::FromFile(tokenizer_path));
  WEIR_ASSIGN(const std::string text, ReadFile(lines));
  WEIR_ASSIGN(const std::string script, ScriptOf(*tokenizer, text));
  if (check) {
    WEIR_ASSIGN(const std::string committed, ReadFile(out));
    if (committed == script) return absl::OkStatus();
    return Error(Reason::kBadField, out + " is not what its lines give; run without --check");
  }
  std::ofstream file(out, std::ios::binary);
  file << script;
  return file.flush() ? absl::OkStatus() : Error(Reason::kBadField, "cannot write " + out);
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  std::string lines;
  std::string tokenizer;
  std::string out;
  bool check = false;
  CLI::App app("Turns what the script model shall say into token ids.");
  app.add_option("--lines", lines, "what to say, as text")->required();
  app.add_option("--tokenizer", tokenizer, "tokenizer.json")->required();
  app.add_option("--out", out, "script.json")->required();
  app.add_flag("--check", check, "only compare with what is there");
  CLI11_PARSE(app, argc, argv);
  try {  // nlohmann throws where a line lacks its name or has a wrong type
    const absl::Status status = weir::Run(lines, tokenizer, out, check);
    if (status.ok()) return 0;
    std::fprintf(stderr, "weir_make_script: %s\n", std::string(status.message()).c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "weir_make_script: %s: %s\n", lines.c_str(), error.what());
  }
  return 2;
}
