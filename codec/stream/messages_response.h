// SPDX-License-Identifier: Apache-2.0
//
// Responses of Anthropic's Messages dialect: events or one body, of the blocks that an answer is made
// of. Contract as response.h.
#pragma once

#include <memory>

#include "codec/stream/response.h"

namespace weir::codec {

std::unique_ptr<Response> MakeMessagesResponse(const ChatRequest& request, const Prompt& prompt,
                                               std::shared_ptr<const Tokenizer> tokenizer,
                                               ResponseHead head);

}  // namespace weir::codec
