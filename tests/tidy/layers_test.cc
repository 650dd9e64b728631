// SPDX-License-Identifier: Apache-2.0
//
// Arrows point one way: every #include of a project file must be allowed by layers.txt, between the
// parts and between the folders of one part.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "tests/tidy/source_tree.h"

namespace weir::tidy {
namespace {

struct Layers {
  std::map<std::string, std::set<std::string>> parts;    // part -> parts it may include
  std::map<std::string, std::set<std::string>> folders;  // "part/folder" -> folders it may include
  std::map<std::string, std::set<std::string>> allowed;  // file -> includes excepted
};

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> pieces(1);
  for (char c : text) {
    if (c == separator) {
      pieces.emplace_back();
    } else if (c != ' ') {
      pieces.back() += c;
    }
  }
  return pieces;
}

// "a < b, c; d; all < e": see layers.txt.
void ParseFolders(const std::string& part, const std::string& spec, Layers* layers) {
  std::set<std::string> named;
  for (const std::string& chain : Split(spec, ';')) {
    std::set<std::string> below;
    for (const std::string& level : Split(chain, '<')) {
      const std::vector<std::string> members = Split(level, ',');
      if (members.size() == 1 && members[0] == "all") {
        below = named;
        continue;
      }
      for (const std::string& folder : members) {
        layers->folders[part + "/" + folder].insert(below.begin(), below.end());
      }
      below.insert(members.begin(), members.end());
      named.insert(members.begin(), members.end());
    }
  }
}

Layers ReadLayers() {
  Layers layers;
  const SourceFile* file = FindFile("tests/tidy/layers.txt");
  EXPECT_NE(file, nullptr);
  if (file == nullptr) return layers;
  for (const std::string& line : file->lines) {
    const std::vector<std::string> words = SplitWords(line);
    if (words.empty() || words[0][0] == '#') continue;
    const size_t colon = line.find(':');
    if (words[0] == "part") {
      std::string name = words[1];
      name.pop_back();
      layers.parts[name] = {words.begin() + 2, words.end()};
    } else if (words[0] == "folders") {
      std::string name = words[1];
      name.pop_back();
      ParseFolders(name, line.substr(colon + 1), &layers);
    } else if (words[0] == "allow" && words.size() == 4) {
      layers.allowed[words[1]].insert(words[3]);
    } else {
      ADD_FAILURE() << "layers.txt: cannot read: " << line;
    }
  }
  return layers;
}

std::string FirstPiece(const std::string& path) { return path.substr(0, path.find('/')); }

std::string FirstTwoPieces(const std::string& path) {
  const size_t slash = path.find('/', path.find('/') + 1);
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

// Why `from` may not include `to`; empty if it may.
std::string Refusal(const Layers& layers, const std::string& from, const std::string& to) {
  const std::string part = FirstPiece(from);
  const std::string target = FirstPiece(to);
  if (layers.parts.count(target) == 0) return {};  // generated or a third party's
  if (part != target) {
    const auto it = layers.parts.find(part);
    if (it == layers.parts.end()) return part + " is in no part line of layers.txt";
    if (it->second.count(target) == 0) return part + " may not include " + target;
    if (target == "weir" && part != "tests") return "nothing includes weir/";
    return {};
  }
  const std::string folder = FirstTwoPieces(from);
  const std::string target_folder = FirstTwoPieces(to);
  if (folder == target_folder || folder.empty() || target_folder.empty()) return {};
  const auto it = layers.folders.find(folder);
  if (it == layers.folders.end()) {
    return part == "tests" || part == "weir" || part == "tools" ? std::string()
                                             : folder + " is in no folders line of layers.txt";
  }
  if (it->second.count(target_folder.substr(part.size() + 1)) == 0) {
    return folder + " may not include " + target_folder;
  }
  return {};
}

TEST(Layers, EveryIncludeFollowsTheArrows) {
  const Layers layers = ReadLayers();
  for (const SourceFile& file : SourceTree()) {
    if (!file.IsCpp()) continue;
    for (size_t i = 0; i < file.code.size(); ++i) {
      if (file.code[i].rfind("#include \"", 0) != 0) continue;
      const std::string rest = file.code[i].substr(10);
      const std::string target = rest.substr(0, rest.find('"'));
      const auto excepted = layers.allowed.find(file.path);
      if (excepted != layers.allowed.end() && excepted->second.count(target) != 0) continue;
      const std::string refusal = Refusal(layers, file.path, target);
      EXPECT_TRUE(refusal.empty()) << At(file, i, refusal + " (tests/tidy/layers.txt)");
    }
  }
}

TEST(Layers, TheTableItselfKeepsRouterAndEngineApart) {
  const Layers layers = ReadLayers();
  ASSERT_TRUE(layers.parts.count("router") && layers.parts.count("engine"));
  EXPECT_EQ(layers.parts.at("router").count("engine"), 0u);
  EXPECT_EQ(layers.parts.at("engine").count("router"), 0u);
  EXPECT_TRUE(layers.parts.at("base").empty());
}

TEST(Layers, ExceptionsAreStillNeeded) {
  for (const auto& [path, targets] : ReadLayers().allowed) {
    const SourceFile* file = FindFile(path);
    ASSERT_NE(file, nullptr) << "layers.txt: " << path << " is gone; remove its allow line";
    for (const std::string& target : targets) {
      EXPECT_NE(file->text.find("#include \"" + target + "\""), std::string::npos)
          << "layers.txt: " << path << " no longer includes " << target;
    }
  }
}

// The checks check: a made-up breach of each kind is refused.
TEST(Layers, BreachesWouldBeSeen) {
  const Layers layers = ReadLayers();
  EXPECT_NE(Refusal(layers, "router/match/matcher.cc", "engine/sched/sequence.h"), "");
  EXPECT_NE(Refusal(layers, "engine/run/step_loop.cc", "router/session/request_fsm.h"), "");
  EXPECT_NE(Refusal(layers, "base/stdx/hash.cc", "base/net/channel.h"), "");
  EXPECT_NE(Refusal(layers, "engine/prefill/prefill_core.cc", "engine/decode/decode_core.h"), "");
  EXPECT_NE(Refusal(layers, "base/obs/log.cc", "base/config/load.h"), "");
  EXPECT_EQ(Refusal(layers, "router/session/request_fsm.cc", "router/balance/route.h"), "");
  EXPECT_EQ(Refusal(layers, "codec/prompt/prompt.cc", "codec/token/vocab.h"), "");
}

}  // namespace
}  // namespace weir::tidy
