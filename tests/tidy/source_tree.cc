// SPDX-License-Identifier: Apache-2.0
#include "tests/tidy/source_tree.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace weir::tidy {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 12> kRoots = {"base",   "codec", "engine", "kernels",
                                                     "kvstore", "proto", "replay", "router",
                                                     "weir",    "tests", "cmake",  "docs"};
constexpr std::array<std::string_view, 3> kMoreRoots = {"deploy", "tools", ".ci"};

std::vector<std::string> SplitLines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Removes comments and the contents of string and character literals, keeping line breaks. Raw
// strings end where ordinary ones would not, so they are followed by their delimiter.
class Stripper {
 public:
  std::string Strip(const std::string& text) {
    text_ = &text;
    for (at_ = 0; at_ < text.size();) Step();
    return std::move(out_);
  }

 private:
  bool Starts(std::string_view what) const { return text_->compare(at_, what.size(), what) == 0; }

  void Step() {
    if (Starts("//")) return SkipTo("\n", 0);
    if (Starts("/*")) return SkipTo("*/", 2);
    if (Starts("R\"")) return SkipRawString();
    const char c = (*text_)[at_];
    const bool digit_separator = c == '\'' && at_ > 0 && std::isxdigit((*text_)[at_ - 1]) &&
                                 at_ + 1 < text_->size() && std::isxdigit((*text_)[at_ + 1]);
    if ((c == '"' || c == '\'') && !digit_separator) return SkipLiteral(c);
    out_ += c;
    ++at_;
  }

  void SkipTo(std::string_view end, size_t extra) {
    size_t stop = text_->find(end, at_);
    stop = stop == std::string::npos ? text_->size() : stop + extra;
    KeepLineBreaks(stop);
  }

  void SkipRawString() {
    const size_t open = text_->find('(', at_);
    if (open == std::string::npos) return SkipTo("\n", 0);
    const std::string end = ")" + text_->substr(at_ + 2, open - at_ - 2) + "\"";
    out_ += "\"\"";
    SkipTo(end, end.size());
  }

  void SkipLiteral(char quote) {
    out_ += quote;
    for (++at_; at_ < text_->size() && (*text_)[at_] != quote && (*text_)[at_] != '\n'; ++at_) {
      if ((*text_)[at_] == '\\') ++at_;
    }
    out_ += quote;
    if (at_ < text_->size() && (*text_)[at_] == quote) ++at_;
  }

  void KeepLineBreaks(size_t stop) {
    for (; at_ < stop; ++at_) {
      if ((*text_)[at_] == '\n') out_ += '\n';
    }
  }

  const std::string* text_ = nullptr;
  size_t at_ = 0;
  std::string out_;
};

SourceFile Read(const fs::path& path) {
  SourceFile file;
  file.path = path.generic_string();
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  file.text = text.str();
  if (!file.IsCpp() && path.extension() != ".md" && path.extension() != ".txt") return file;
  file.lines = SplitLines(file.text);
  if (!file.IsCpp()) return file;
  file.code = SplitLines(Stripper().Strip(file.text));
  file.code.resize(file.lines.size());
  for (size_t i = 0; i < file.lines.size(); ++i) {
    if (!file.code[i].empty() && file.code[i][0] == '#') file.code[i] = file.lines[i];
  }
  return file;
}

bool IsSource(const fs::path& path) {
  static constexpr std::array<std::string_view, 8> kEndings = {".h",     ".cc", ".md",  ".txt",
                                                               ".proto", ".cu", ".cuh", ".yaml"};
  return std::find(kEndings.begin(), kEndings.end(), path.extension().string()) != kEndings.end();
}

void ReadBelow(const fs::path& root, std::vector<SourceFile>* files) {
  std::error_code error;
  for (fs::recursive_directory_iterator it(root, error), end; !error && it != end;
       it.increment(error)) {
    if (it->is_directory() && it->path().filename() == "node_modules") {
      it.disable_recursion_pending();
    } else if (it->is_regular_file() && IsSource(it->path())) {
      files->push_back(Read(it->path()));
    }
  }
}

std::vector<SourceFile> ReadTree() {
  std::vector<SourceFile> files;
  for (std::string_view root : kRoots) ReadBelow(fs::path(root), &files);
  for (std::string_view root : kMoreRoots) ReadBelow(fs::path(root), &files);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(".", error)) {
    if (entry.is_regular_file() && IsSource(entry.path())) {
      files.push_back(Read(entry.path().filename()));
    }
  }
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

bool SourceFile::IsCpp() const { return EndsWith(path, ".h") || EndsWith(path, ".cc"); }
bool SourceFile::IsHeader() const { return EndsWith(path, ".h"); }
bool SourceFile::IsTest() const {
  return EndsWith(path, "_test.cc") || EndsWith(path, "_test.h") || path.rfind("tests/", 0) == 0;
}
std::string SourceFile::Dir() const { return fs::path(path).parent_path().generic_string(); }
std::string SourceFile::Stem() const { return fs::path(path).stem().string(); }

const std::vector<SourceFile>& SourceTree() {
  static const std::vector<SourceFile>* const tree = new std::vector<SourceFile>(ReadTree());
  return *tree;
}

const SourceFile* FindFile(std::string_view path) {
  for (const SourceFile& file : SourceTree()) {
    if (file.path == path) return &file;
  }
  return nullptr;
}

bool GlobMatches(std::string_view glob, std::string_view text) {
  if (glob.empty()) return text.empty();
  if (glob.front() != '*') {
    return !text.empty() && glob.front() == text.front() &&
           GlobMatches(glob.substr(1), text.substr(1));
  }
  for (size_t skip = 0; skip <= text.size(); ++skip) {
    if (GlobMatches(glob.substr(1), text.substr(skip))) return true;
  }
  return false;
}

std::vector<std::string> SplitWords(std::string_view line) {
  std::istringstream in{std::string(line)};
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::string At(const SourceFile& file, size_t line_index, std::string_view message) {
  return file.path + ":" + std::to_string(line_index + 1) + ": " + std::string(message);
}

}  // namespace weir::tidy
