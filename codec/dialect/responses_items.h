// SPDX-License-Identifier: Apache-2.0
//
// The `input` and `tools` of a Responses body. Internal to the dialect; rules as in field_reader.h.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "codec/conversation/conversation.h"
#include "codec/dialect/field_reader.h"

namespace weir::codec {

// A text of the user's or a list of items; appends to `messages`.
absl::Status ReadInput(JsonValue value, const RequestLimits& limits,
                       std::vector<Message>* messages);

// Functions, namespaces of functions (`ns::name`) and the freeform tool apply_patch. Tools that
// only a server could run are left out.
absl::Status ReadResponsesTools(JsonValue value, const RequestLimits& limits,
                                std::vector<ToolDef>* tools);

}  // namespace weir::codec
