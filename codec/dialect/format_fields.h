// SPDX-License-Identifier: Apache-2.0
//
// The form that an answer is asked to have, which two dialects name alike. Internal to the dialects;
// rules as in field_reader.h.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "codec/conversation/conversation.h"
#include "codec/dialect/field_reader.h"

namespace weir::codec {

// text, json_object or json_schema. The model is told of it; answers are not held to it.
absl::Status ReadFormat(JsonValue value, std::string_view path, Constraint* constraint);

}  // namespace weir::codec
