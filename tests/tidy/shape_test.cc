// SPDX-License-Identifier: Apache-2.0
//
// The ratchet on size: functions of 70 lines, headers of 250, sources of 600 are what we aim at.
// long.txt lists what is longer today and by how much; an entry may shrink or go, not grow, and a
// new one needs a line there, which a reviewer sees. WEIR_TIDY_WRITE=1 in front of this program
// prints the list as it would be.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <set>
#include <string>

#include "tests/tidy/source_tree.h"

namespace weir::tidy {
namespace {

constexpr size_t kFunctionLines = 70;
constexpr size_t kHeaderLines = 250;
constexpr size_t kSourceLines = 600;
constexpr size_t kNamesWithoutReadme = 4;  // a name is a header, its source and its test

struct Function {
  std::string name;
  size_t first = 0;
  size_t lines = 0;
};

// Finds function bodies by braces: one that opens inside namespaces and classes only, after a
// parenthesis, is a function. Good enough for code that clang-format has laid out.
class FunctionFinder {
 public:
  std::vector<Function> Find(const SourceFile& file) {
    for (size_t i = 0; i < file.code.size(); ++i) {
      if (!file.code[i].empty() && file.code[i][0] == '#') continue;
      for (char c : file.code[i]) Take(c, i);
      head_ += ' ';
    }
    return std::move(found_);
  }

 private:
  enum class Scope { kOuter, kFunction, kInner };

  void Take(char c, size_t line) {
    if (c == '{') {
      Open(line);
    } else if (c == '}') {
      Close(line);
    } else if (c == ';') {
      head_.clear();
    } else {
      if (head_.find_first_not_of(' ') == std::string::npos && c != ' ') head_line_ = line;
      head_ += c;
    }
  }

  void Open(size_t line) {
    const bool outer = scopes_.empty() || scopes_.back() == Scope::kOuter;
    if (!outer) {
      scopes_.push_back(Scope::kInner);
    } else if (head_.find('(') != std::string::npos && head_.find(") = ") == std::string::npos) {
      scopes_.push_back(Scope::kFunction);
      current_ = {NameOf(head_), head_line_, 0};
    } else {
      scopes_.push_back(Scope::kOuter);
    }
    head_.clear();
  }

  void Close(size_t line) {
    if (!scopes_.empty()) {
      if (scopes_.back() == Scope::kFunction) {
        current_.lines = line - current_.first + 1;
        found_.push_back(current_);
      }
      scopes_.pop_back();
    }
    head_.clear();
  }

  static std::string NameOf(const std::string& head) {
    const size_t end = head.find('(');
    size_t start = end;
    while (start > 0 && (std::isalnum(static_cast<unsigned char>(head[start - 1])) != 0 ||
                         head[start - 1] == '_' || head[start - 1] == ':' ||
                         head[start - 1] == '~')) {
      --start;
    }
    std::string name = head.substr(start, end - start);
    if (name == "TEST" || name == "TEST_F" || name == "TEST_P" || name == "TYPED_TEST") {
      name = head.substr(end + 1, head.find(')', end) - end - 1);
      for (char& c : name) c = c == ',' ? '.' : c;
      name.erase(std::remove(name.begin(), name.end(), ' '), name.end());
    }
    return name;
  }

  std::vector<Scope> scopes_;
  std::string head_;
  size_t head_line_ = 0;
  Function current_;
  std::vector<Function> found_;
};

// What is longer than we aim at: "path" or "path:function" -> lines.
std::map<std::string, size_t> LongOnes() {
  std::map<std::string, size_t> longs;
  for (const SourceFile& file : SourceTree()) {
    if (!file.IsCpp()) continue;
    const size_t limit = file.IsHeader() ? kHeaderLines : kSourceLines;
    if (file.lines.size() > limit) longs[file.path] = file.lines.size();
    for (const Function& function : FunctionFinder().Find(file)) {
      if (function.lines <= kFunctionLines) continue;
      size_t& lines = longs[file.path + ":" + function.name];
      lines = std::max(lines, function.lines);
    }
  }
  return longs;
}

std::map<std::string, size_t> ListedOnes() {
  std::map<std::string, size_t> listed;
  const SourceFile* file = FindFile("tests/tidy/long.txt");
  EXPECT_NE(file, nullptr);
  if (file == nullptr) return listed;
  for (const std::string& line : file->lines) {
    const std::vector<std::string> words = SplitWords(line);
    if (words.empty() || words[0][0] == '#') continue;
    if (words.size() != 2) {
      ADD_FAILURE() << "long.txt: cannot read: " << line;
      continue;
    }
    listed[words[1]] = std::stoul(words[0]);
  }
  return listed;
}

TEST(Shape, TheListOfLongOnesOnlyShrinks) {
  const std::map<std::string, size_t> longs = LongOnes();
  const std::map<std::string, size_t> listed = ListedOnes();
  if (std::getenv("WEIR_TIDY_WRITE") != nullptr) {
    for (const auto& [name, lines] : longs) std::cout << lines << " " << name << "\n";
    return;
  }
  for (const auto& [name, lines] : longs) {
    const auto it = listed.find(name);
    if (it == listed.end()) {
      ADD_FAILURE() << name << " has " << lines << " lines; split it, or list it in long.txt";
    } else {
      EXPECT_LE(lines, it->second) << name << " grew; tests/tidy/long.txt only shrinks";
    }
  }
  for (const auto& [name, lines] : listed) {
    if (longs.count(name) == 0) std::cout << "long.txt: " << name << " may be removed\n";
  }
}

TEST(Shape, FoldersOfManyFilesSayHowToReadThem) {
  std::map<std::string, std::set<std::string>> names;
  for (const SourceFile& file : SourceTree()) {
    if (file.IsCpp() && !file.IsTest()) names[file.Dir()].insert(file.Stem());
  }
  for (const auto& [dir, stems] : names) {
    if (stems.size() <= kNamesWithoutReadme) continue;
    const std::string part = dir.substr(0, dir.find('/'));
    EXPECT_TRUE(FindFile(dir + "/README.md") != nullptr || FindFile(part + "/README.md") != nullptr)
        << dir << " has many files, and no README.md here or above says in which order to read them";
  }
}

TEST(Shape, FunctionsAreFound) {
  SourceFile file;
  file.path = "a.cc";
  file.code = {"namespace a {", "class B {", "  int Get() const {", "    if (x) {", "    }",
               "  }",          "};",        "int Other(int a,",    "          int b) {", "}",
               "}"};
  const std::vector<Function> found = FunctionFinder().Find(file);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name, "Get");
  EXPECT_EQ(found[0].lines, 4u);
  EXPECT_EQ(found[1].name, "Other");
  EXPECT_EQ(found[1].lines, 3u);
}

}  // namespace
}  // namespace weir::tidy
