// SPDX-License-Identifier: Apache-2.0
//
// The fields that Chat Completions and Completions share: sampling, limits, streaming, identity.
// Internal to the dialects; same rules as field_reader.h.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codec/conversation/conversation.h"
#include "codec/dialect/field_reader.h"

namespace weir::codec {

// Reads one top-level field. True if the field is one of the shared ones.
absl::StatusOr<bool> ReadCommonField(std::string_view key, JsonValue value,
                                     const RequestLimits& limits, ChatRequest* request);

// The rules that join fields; after all were read.
absl::Status CheckCommonFields(bool stream_options_given, ChatRequest* request);

}  // namespace weir::codec
