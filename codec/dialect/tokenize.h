// SPDX-License-Identifier: Apache-2.0
//
// /tokenize, /detokenize and /apply-template: the fields of the two servers that had them first, and
// the bodies of the answers, which hold what clients of both look for. Pure functions, any thread;
// rules as in chat.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/stdx/ids.h"
#include "codec/conversation/conversation.h"
#include "codec/dialect/request_limits.h"

namespace weir::codec {

struct TokenizeRequest {
  ChatRequest request;     // a conversation (`messages`) or a text (`prompt` or `content`)
  bool special = true;     // with the token that begins a text
  bool spellings = false;  // the text of each token as well
};
absl::StatusOr<TokenizeRequest> ParseTokenize(std::string_view body, const RequestLimits& limits);

struct DetokenizeRequest {
  std::string model;
  std::vector<TokenId> tokens;
};
absl::StatusOr<DetokenizeRequest> ParseDetokenize(std::string_view body,
                                                  const RequestLimits& limits);

// `spellings` is empty or has one for each id. `tokens_max` 0: not told.
std::string TokenizeBody(std::span<const TokenId> ids, std::span<const std::string> spellings,
                         uint64_t tokens_max);
// The same text under both names that clients know.
std::string TextBody(std::string_view text);

}  // namespace weir::codec
