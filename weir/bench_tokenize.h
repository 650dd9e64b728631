// SPDX-License-Identifier: Apache-2.0
//
// `weir bench tokenize`: what text costs to become ids, in CPU time, on texts of the caller's. Runs
// on the calling thread and, where it says so, on a second one; blocks until done.
#pragma once

#include <string>
#include <vector>

namespace weir {

struct TokenizeBenchArgs {
  std::string tokenizer;           // tokenizer.json
  std::vector<std::string> texts;  // files
  bool quick = false;
  bool json = false;
};

// 0 done, 1 a file is not readable or parts give other ids than the whole.
int BenchTokenize(const TokenizeBenchArgs& args);

}  // namespace weir
