// SPDX-License-Identifier: Apache-2.0
//
// The project's own files as the style tests see them: read once, from the current directory, which
// CTest sets to the source root. Single-threaded; file contents live as long as the program. A file
// that cannot be read counts as empty, which fails the first check that looks at it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weir::tidy {

struct SourceFile {
  std::string path;                // relative to the root: "router/session/request_fsm.cc"
  std::string text;                // as on disk
  std::vector<std::string> lines;  // of `text`
  std::vector<std::string> code;   // the same lines without comments and without what strings hold;
                                   // lines that start with # keep their strings

  bool IsCpp() const;      // .h or .cc
  bool IsHeader() const;   // .h
  bool IsTest() const;     // *_test.cc, *_test.h or below tests/
  std::string Dir() const;   // "router/session"
  std::string Stem() const;  // "request_fsm"
};

// Every file below the parts, tests, cmake, docs and deploy, and those of the root; build trees and
// node_modules are left out.
const std::vector<SourceFile>& SourceTree();
const SourceFile* FindFile(std::string_view path);

// Whether `text` matches `glob`, in which * stands for any characters, / included.
bool GlobMatches(std::string_view glob, std::string_view text);

std::vector<std::string> SplitWords(std::string_view line);

// "path:line: message", the form that editors jump to.
std::string At(const SourceFile& file, size_t line_index, std::string_view message);

}  // namespace weir::tidy
