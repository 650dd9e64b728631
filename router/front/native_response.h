// SPDX-License-Identifier: Apache-2.0
//
// Answers of the native API: GenerateEvent messages, each behind its length in four bytes, so that
// they pass through an HttpResponder. Contract as codec/stream/response.h. A failure writes nothing:
// whoever owns the call ends it with the status.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "codec/stream/response.h"

namespace weir::router {

std::unique_ptr<codec::Response> MakeNativeResponse(
    const codec::ChatRequest& request, const codec::Prompt& prompt,
    std::shared_ptr<const codec::Tokenizer> tokenizer, codec::ResponseHead head);

// Takes the first message off `bytes`; empty with nothing taken where there is none.
std::string_view TakeNativeMessage(std::string_view* bytes);

}  // namespace weir::router
