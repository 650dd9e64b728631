// SPDX-License-Identifier: Apache-2.0
//
// House rules that a search can keep: what may stand where (rules.txt), how files start, what they
// may be called.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "tests/tidy/source_tree.h"

namespace weir::tidy {
namespace {

struct Rule {
  bool only = false;  // else never
  std::string pattern;
  bool whole_word = false;
  std::vector<std::string> globs;
  std::vector<std::string> excepted;  // files
};

std::vector<Rule> ReadRules() {
  std::vector<Rule> rules;
  const SourceFile* file = FindFile("tests/tidy/rules.txt");
  EXPECT_NE(file, nullptr);
  if (file == nullptr) return rules;
  for (const std::string& line : file->lines) {
    std::vector<std::string> words = SplitWords(line);
    if (words.empty() || words[0] == "#" || words[0][0] == '#') continue;
    const auto in = std::find(words.begin(), words.end(), "in");
    if (in == words.end() || (words[0] != "only" && words[0] != "never")) {
      ADD_FAILURE() << "rules.txt: cannot read: " << line;
      continue;
    }
    Rule rule;
    rule.only = words[0] == "only";
    for (auto it = words.begin() + 1; it != in; ++it) {
      if (it != words.begin() + 1) rule.pattern += ' ';
      rule.pattern += *it;
    }
    if (rule.pattern[0] == '^') {
      rule.whole_word = true;
      rule.pattern.erase(0, 1);
    }
    const auto but = std::find(in, words.end(), "but");
    rule.globs.assign(in + 1, but);
    if (but != words.end()) rule.excepted.assign(but + 1, words.end());
    rules.push_back(rule);
  }
  return rules;
}

bool IsWordChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool Contains(const std::string& line, const Rule& rule) {
  for (size_t at = line.find(rule.pattern); at != std::string::npos;
       at = line.find(rule.pattern, at + 1)) {
    const size_t end = at + rule.pattern.size();
    const bool starts_word = at == 0 || !IsWordChar(line[at - 1]);
    const bool ends_word = end == line.size() || !IsWordChar(line[end]) ||
                           !IsWordChar(rule.pattern.back());
    if (!rule.whole_word || (starts_word && ends_word)) return true;
  }
  return false;
}

bool Forbids(const Rule& rule, const SourceFile& file) {
  if (rule.only && file.IsTest()) return false;
  for (const std::string& path : rule.excepted) {
    if (path == file.path) return false;
  }
  const bool matches = std::any_of(rule.globs.begin(), rule.globs.end(), [&](const auto& glob) {
    return GlobMatches(glob, file.path);
  });
  return rule.only ? !matches : matches;
}

TEST(Rules, NothingStandsWhereItMayNot) {
  for (const Rule& rule : ReadRules()) {
    for (const SourceFile& file : SourceTree()) {
      if (!file.IsCpp() || !Forbids(rule, file)) continue;
      for (size_t i = 0; i < file.code.size(); ++i) {
        if (file.code[i].empty()) continue;
        EXPECT_FALSE(Contains(file.code[i], rule))
            << At(file, i, "'" + rule.pattern + "' may not stand here (tests/tidy/rules.txt)");
      }
    }
  }
}

TEST(Rules, EveryFileStartsWithItsLicence) {
  for (const SourceFile& file : SourceTree()) {
    const bool checked = file.IsCpp() || GlobMatches("*.proto", file.path);
    if (!checked) continue;
    EXPECT_EQ(file.text.rfind("// SPDX-License-Identifier: Apache-2.0\n", 0), 0u) << file.path;
  }
}

// The contract: a comment of some substance after the licence, before anything else.
TEST(Rules, EveryHeaderStartsWithItsContract) {
  for (const SourceFile& file : SourceTree()) {
    if (!file.IsHeader()) continue;
    size_t contract = 0;  // characters
    bool once = false;
    for (size_t i = 1; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      if (line.rfind("//", 0) == 0) {
        contract += line.size() - 2;
      } else if (!line.empty()) {
        once = line == "#pragma once";
        break;
      }
    }
    EXPECT_GE(contract, 60u) << file.path << ": say what it is, which thread owns it, who owns "
                                 << "what it points to, what can go wrong";
    EXPECT_TRUE(once) << file.path << ": #pragma once must follow the contract";
  }
}

// A name that ends in one of these words says that nobody decided where the thing belongs.
bool IsNamedForNothing(const std::string& name) {
  const std::string last = name.substr(name.rfind('_') + 1);
  return last == "util" || last == "utils" || last == "common" || last == "helper" ||
         last == "helpers" || last == "misc";
}

TEST(Rules, NothingIsNamedForNothing) {
  for (const SourceFile& file : SourceTree()) {
    if (file.path == "proto/common.proto") continue;  // the ids that every contract shares
    EXPECT_FALSE(IsNamedForNothing(file.Stem())) << file.path << ": name it for what it holds";
    if (file.Stem() != "CMakeLists") continue;
    for (const std::string& word : SplitWords(file.text)) {
      if (word.rfind("weir_library(", 0) != 0) continue;
      EXPECT_FALSE(IsNamedForNothing(word.substr(13))) << file.path << ": " << word;
    }
  }
}

TEST(Rules, EveryTodoNamesItsIssue) {
  for (const SourceFile& file : SourceTree()) {
    if (!file.IsCpp() || file.path.rfind("tests/tidy/", 0) == 0) continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const size_t at = file.lines[i].find("TODO");
      if (at == std::string::npos) continue;
      const std::string rest = file.lines[i].substr(at + 4);
      EXPECT_TRUE(rest.size() > 2 && rest[0] == '(' && std::isdigit(rest[1]))
          << At(file, i, "write TODO(issue-number): or do it");
    }
  }
}

TEST(Rules, BreachesWouldBeSeen) {
  Rule rule;
  rule.only = true;
  rule.pattern = "getenv";
  rule.globs = {"base/config/*"};
  SourceFile file;
  file.path = "router/front/auth.cc";
  EXPECT_TRUE(Forbids(rule, file));
  file.path = "base/config/load.cc";
  EXPECT_FALSE(Forbids(rule, file));
  EXPECT_TRUE(Contains("  const char* key = std::getenv(\"KEY\");", rule));
  rule.pattern = "throw";
  rule.whole_word = true;
  EXPECT_TRUE(Contains("  throw x;", rule));
  EXPECT_FALSE(Contains("  rethrow();", rule));
  EXPECT_FALSE(Contains("  throws();", rule));
}

}  // namespace
}  // namespace weir::tidy
