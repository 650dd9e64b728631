// SPDX-License-Identifier: Apache-2.0
//
// The `system` and `messages` of a Messages body. Internal to the dialect; rules as in
// field_reader.h.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "codec/conversation/conversation.h"
#include "codec/dialect/field_reader.h"

namespace weir::codec {

// One message of the system's, or none where there is no text.
absl::Status ReadSystem(JsonValue value, std::vector<Message>* messages);

// Every turn, and that the results of each tool_use come first in the turn after it. A last turn of
// the assistant's is what the answer goes on from.
absl::Status ReadTurns(JsonValue value, const RequestLimits& limits,
                       std::vector<Message>* messages);

}  // namespace weir::codec
