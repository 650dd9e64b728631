// SPDX-License-Identifier: Apache-2.0
//
// ScriptModel: a stand-in that says what script.json tells it to, so that client tests see meaningful
// text, reasoning and tool calls. The prompt's token ids lie in the block store, and which entry was
// chosen in the carry, so an answer survives a hand-over and a second attempt only if those do. It
// computes on the thread that calls Launch; Collect waits out `step_delay_us`. The pages and the
// plan belong to the caller. script.json is written by tools/make_script, since it holds ids.
//
// script.json:
//   user_token, assistant_token   marks around the last user text, for `when` and for echoes
//   think_token, think_end_token  a prompt that ends with think_token gets the reasoning first
//   entries[]  name               for people
//              when[]             token runs; the entry is chosen when one occurs in the last user
//                                 text (in the whole prompt where the marks are absent)
//              reasoning          ids; written only where the prompt opened the reasoning
//              emit               ids
//              echo               1: the last user text follows `emit`
//              after              ids after the echo
//   The last entry is the default; its `when` is empty. Then a stop token.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/model/model.h"

namespace weir::engine {

struct ScriptEntry {
  std::string name;
  std::vector<std::vector<TokenId>> when;
  std::vector<TokenId> reasoning;
  std::vector<TokenId> emit;
  bool echo = false;
  std::vector<TokenId> after;
};

struct ScriptConfig {
  uint32_t vocab = 1024;
  uint32_t block_tokens = 64;
  uint32_t draft_max = 3;
  Position positions_max = 1 << 17;
  uint32_t step_delay_us = 0;
  TokenId filler = 0;  // said where a stop token may not come yet
  std::vector<TokenId> stop_tokens = {1};
  TokenId user_token = -1;  // -1: absent
  TokenId assistant_token = -1;
  TokenId think_token = -1;
  TokenId think_end_token = -1;
  std::vector<ScriptEntry> entries;
};

// At least one entry, the last without `when`; every id inside the vocabulary.
absl::Status ValidateScript(const ScriptConfig& config);
std::shared_ptr<const LoadedModel> MakeScriptModel(const ScriptConfig& config);

absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadScriptModel(const std::string& directory,
                                                                   const std::string& config_json,
                                                                   const LoadOptions& options);

}  // namespace weir::engine
