// SPDX-License-Identifier: Apache-2.0
//
// Some agents put a line about themselves before the system prompt, which differs from one
// conversation to the next: `x-anthropic-billing-header: cc_version=…; cch=…`. It means nothing to a
// model, and every prompt that begins with another one has no prefix in common with any other. Pure
// functions, any thread.
#pragma once

#include <optional>

#include "codec/conversation/conversation.h"

namespace weir::codec {

// The first message without that line and the blank lines after it; nothing if it has none.
std::optional<Message> WithoutAttribution(const Conversation& conversation);

}  // namespace weir::codec
