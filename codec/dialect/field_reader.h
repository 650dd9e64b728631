// SPDX-License-Identifier: Apache-2.0
//
// Typed reading of JSON fields with errors that name the field by its path. Internal to the
// dialects: simdjson stays out of every other header. Values point into the parser's document and
// must not outlive it; one thread.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codec/dialect/request_limits.h"

namespace weir::codec {

using JsonValue = simdjson::dom::element;
using JsonObject = simdjson::dom::object;
using JsonArray = simdjson::dom::array;

// Parses a body, which must be one object, within the limits.
absl::StatusOr<JsonObject> ParseBody(std::string_view body, const RequestLimits& limits,
                                     simdjson::dom::parser* parser);

// kBadField: "`path` what".
absl::Status BadField(std::string_view path, std::string_view what);

std::string Member(std::string_view path, std::string_view key);  // a.b; b at the top
std::string Item(std::string_view path, size_t index);            // a[3]

absl::Status ReadBool(JsonValue value, std::string_view path, bool* out);
absl::Status ReadInteger(JsonValue value, std::string_view path, int64_t low, int64_t high,
                         int64_t* out);
absl::Status ReadNumber(JsonValue value, std::string_view path, double low, double high,
                        float* out);
absl::Status ReadText(JsonValue value, std::string_view path, std::string* out);
// A text of at most `bytes_max`.
absl::Status ReadName(JsonValue value, std::string_view path, size_t bytes_max, std::string* out);
absl::StatusOr<JsonObject> ReadObject(JsonValue value, std::string_view path);
absl::StatusOr<JsonArray> ReadArray(JsonValue value, std::string_view path, size_t size_max);

}  // namespace weir::codec
