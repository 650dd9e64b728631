// SPDX-License-Identifier: Apache-2.0
#include "codec/dialect/field_reader.h"

#include <cmath>
#include <cstdio>

#include "base/stdx/planted.h"
#include "base/stdx/status.h"

namespace weir::codec {
namespace {

std::string Shown(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%g", value);
  return buffer;
}

}  // namespace

absl::StatusOr<JsonObject> ParseBody(std::string_view body, const RequestLimits& limits,
                                     simdjson::dom::parser* parser) {
  if (body.size() > limits.body_bytes_max) {
    return Error(Reason::kTooLarge, "the body is larger than " +
                                        std::to_string(limits.body_bytes_max) + " bytes");
  }
  const auto depth = static_cast<size_t>(limits.depth_max);
  JsonValue root;
  // A padded copy of simdjson's own would live as long as the parser. What is written most comes
  // first, so that what is allocated later finds pages in use.
  const simdjson::padded_string padded(body);
  auto problem = parser->doc.allocate(body.size());
  if (problem == simdjson::SUCCESS) problem = parser->allocate(body.size(), depth);
  if (problem == simdjson::SUCCESS) problem = parser->parse(padded).get(root);
  if (problem == simdjson::DEPTH_ERROR) {
    return Error(Reason::kBadField, "the body's JSON is nested deeper than " +
                                        std::to_string(limits.depth_max) + " levels");
  }
  if (problem != simdjson::SUCCESS) {
    return Error(Reason::kBadField, std::string("the body is not valid JSON: ") +
                                        simdjson::error_message(problem));
  }
  JsonObject object;
  if (root.get(object) != simdjson::SUCCESS) {
    return Error(Reason::kBadField, "the body must be a JSON object");
  }
  return object;
}

absl::Status BadField(std::string_view path, std::string_view what) {
  // Paths hold client text (keys), so they are cut to a length fit for a message and a log.
  constexpr size_t kPathMax = 200;
  const std::string_view shown = path.substr(0, kPathMax);
  return Error(Reason::kBadField, "`" + std::string(shown) + "` " + std::string(what), shown);
}

std::string Member(std::string_view path, std::string_view key) {
  std::string joined(path);
  if (!joined.empty()) joined.push_back('.');
  joined += key;
  return joined;
}

std::string Item(std::string_view path, size_t index) {
  std::string joined(path);
  joined.push_back('[');
  joined += std::to_string(index);
  joined.push_back(']');
  return joined;
}

absl::Status ReadBool(JsonValue value, std::string_view path, bool* out) {
  if (value.get(*out) == simdjson::SUCCESS) return absl::OkStatus();
  return BadField(path, "must be true or false");
}

absl::Status ReadInteger(JsonValue value, std::string_view path, int64_t low, int64_t high,
                         int64_t* out) {
  int64_t number = 0;
  const auto problem = value.get(number);
  if (problem != simdjson::SUCCESS && !value.is_uint64()) {
    return BadField(path, "must be an integer");
  }
  if (problem != simdjson::SUCCESS || number < low || number > high) {
    if (IsPlanted(Planted::kAcceptBadField)) {
      *out = low;
      return absl::OkStatus();
    }
    return BadField(path, "must be between " + std::to_string(low) + " and " +
                              std::to_string(high));
  }
  *out = number;
  return absl::OkStatus();
}

absl::Status ReadNumber(JsonValue value, std::string_view path, double low, double high,
                        float* out) {
  double number = 0;
  if (value.get(number) != simdjson::SUCCESS) return BadField(path, "must be a number");
  if (!(number >= low && number <= high)) {
    return BadField(path, "must be between " + Shown(low) + " and " + Shown(high));
  }
  *out = static_cast<float>(number);
  return absl::OkStatus();
}

absl::Status ReadText(JsonValue value, std::string_view path, std::string* out) {
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) return BadField(path, "must be a string");
  out->assign(text);
  return absl::OkStatus();
}

absl::Status ReadName(JsonValue value, std::string_view path, size_t bytes_max, std::string* out) {
  WEIR_TRY(ReadText(value, path, out));
  if (out->size() > bytes_max) {
    return BadField(path, "must have at most " + std::to_string(bytes_max) + " bytes");
  }
  return absl::OkStatus();
}

absl::StatusOr<JsonObject> ReadObject(JsonValue value, std::string_view path) {
  JsonObject object;
  if (value.get(object) != simdjson::SUCCESS) return BadField(path, "must be an object");
  return object;
}

absl::StatusOr<JsonArray> ReadArray(JsonValue value, std::string_view path, size_t size_max) {
  JsonArray array;
  if (value.get(array) != simdjson::SUCCESS) return BadField(path, "must be an array");
  // size() saturates at 2^24 - 1, which is above every limit here.
  if (array.size() > size_max) {
    return BadField(path, "must have at most " + std::to_string(size_max) + " entries");
  }
  return array;
}

}  // namespace weir::codec
