// SPDX-License-Identifier: Apache-2.0
//
// Responses of the dialect that is called so, OpenAI's: events or one body, of the items that an
// answer is made of. Contract as response.h.
#pragma once

#include <memory>

#include "codec/stream/response.h"

namespace weir::codec {

std::unique_ptr<Response> MakeResponsesResponse(const ChatRequest& request, const Prompt& prompt,
                                                std::shared_ptr<const Tokenizer> tokenizer,
                                                ResponseHead head);

}  // namespace weir::codec
