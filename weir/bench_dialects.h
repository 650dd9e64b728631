// SPDX-License-Identifier: Apache-2.0
//
// `weir bench dialects`: what requests and answers cost on their way between a client's bytes and
// token ids, in CPU time and memory: bodies of 4 MB to the segments of a prompt, and streamed ids to
// events of each dialect. Runs on the calling thread, bodies in a child process each; blocks until done.
#pragma once

#include <string>

namespace weir {

struct DialectsBenchArgs {
  std::string tokenizer;  // tokenizer.json with the control tokens of V4.1
  bool quick = false;
  bool json = false;
};

// 0 done, 1 the tokenizer is not usable.
int BenchDialects(const DialectsBenchArgs& args);

}  // namespace weir
