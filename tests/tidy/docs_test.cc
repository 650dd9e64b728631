// SPDX-License-Identifier: Apache-2.0
//
// Documentation that a program can check: links lead somewhere, files named in prose exist, and the
// table of errors is the table in the code.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "base/stdx/status.h"
#include "tests/tidy/source_tree.h"

namespace weir::tidy {
namespace {

namespace fs = std::filesystem;

bool IsOurDocument(const SourceFile& file) { return GlobMatches("*.md", file.path); }

TEST(Docs, LinksLeadSomewhere) {
  for (const SourceFile& file : SourceTree()) {
    if (!IsOurDocument(file)) continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      for (size_t at = line.find("]("); at != std::string::npos; at = line.find("](", at + 1)) {
        const size_t end = line.find(')', at);
        std::string target = line.substr(at + 2, end - at - 2);
        target = target.substr(0, target.find('#'));
        if (target.empty() || target.find("://") != std::string::npos) continue;
        const fs::path path = fs::path(file.Dir()) / target;
        EXPECT_TRUE(fs::exists(path)) << At(file, i, "no such file: " + target);
      }
    }
  }
}

// `router/session/request_fsm` in backquotes must be a file (any ending), a folder or a target.
TEST(Docs, NamedFilesExist) {
  static const std::set<std::string> kParts = {"base",   "codec",  "engine", "kernels", "kvstore",
                                               "proto",  "replay", "router", "tests",   "deploy",
                                               "docs"};
  std::set<std::string> known;
  for (const SourceFile& file : SourceTree()) {
    known.insert(file.path);
    known.insert(fs::path(file.path).replace_extension().generic_string());
  }
  for (const SourceFile& file : SourceTree()) {
    const bool kept_as_written = file.path.rfind("docs/design/", 0) == 0;
    if (!IsOurDocument(file) || kept_as_written) continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      for (size_t at = line.find('`'); at != std::string::npos;) {
        const size_t end = line.find('`', at + 1);
        if (end == std::string::npos) break;
        std::string name = line.substr(at + 1, end - at - 1);
        at = line.find('`', end + 1);
        const size_t slash = name.find('/');
        if (slash == std::string::npos || kParts.count(name.substr(0, slash)) == 0) continue;
        if (name.find_first_of("*<>{} $…") != std::string::npos) continue;
        while (!name.empty() && name.back() == '/') name.pop_back();
        EXPECT_TRUE(known.count(name) != 0 || fs::exists(name))
            << At(file, i, "names a file that is not there: " + name);
      }
    }
  }
}

TEST(Docs, TheTableOfErrorsIsTheOneInTheCode) {
  const SourceFile* file = FindFile("docs/errors.md");
  ASSERT_NE(file, nullptr);
  for (const ReasonInfo& info : AllReasons()) {
    if (info.reason == Reason::kOk) continue;
    const std::string row = "| `" + std::string(info.name) + "` | " +
                            std::string(absl::StatusCodeToString(info.code)) + " (" +
                            std::to_string(info.grpc) + ") | " + std::to_string(info.http) + " | `" +
                            std::string(info.openai_type) + "` | `" +
                            std::string(info.anthropic_type) + "` | " +
                            (info.retry_by_us ? "yes" : "no") + " | " +
                            (info.retry_by_client ? "yes" : "no") + " |";
    EXPECT_NE(file->text.find(row), std::string::npos) << "docs/errors.md lacks the row\n" << row;
  }
}

}  // namespace
}  // namespace weir::tidy
