// SPDX-License-Identifier: Apache-2.0
//
// Reads the oracle's cases for tests: text in hex, then ids. Test code only.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/stdx/ids.h"

namespace weir::codec {

struct TokenizerCase {
  std::string text;
  std::vector<TokenId> ids;
};

inline std::vector<TokenizerCase> ReadTokenizerCases(const std::string& path) {
  std::vector<TokenizerCase> cases;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string hex;
    fields >> hex;
    TokenizerCase one;
    for (size_t i = 0; hex != "-" && i + 1 < hex.size(); i += 2) {
      one.text.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    }
    for (TokenId id; fields >> id;) one.ids.push_back(id);
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace weir::codec
