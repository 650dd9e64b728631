// SPDX-License-Identifier: Apache-2.0
#include "codec/dialect/format_fields.h"

#include <string>

#include "base/stdx/status.h"
#include "codec/conversation/json_text.h"
#include "codec/dialect/tool_fields.h"

namespace weir::codec {

absl::Status ReadFormat(JsonValue value, std::string_view path, Constraint* constraint) {
  WEIR_ASSIGN(const JsonObject object, ReadObject(value, path));
  std::string type;
  WEIR_TRY(ReadRequiredText(object, "type", path, &type));
  *constraint = {};
  if (type == "text") return absl::OkStatus();
  if (type == "json_object") {
    constraint->kind = ConstraintKind::kJsonObject;
    return absl::OkStatus();
  }
  if (type != "json_schema") {
    return BadField(Member(path, "type"), "must be \"text\", \"json_object\" or \"json_schema\"");
  }
  // Chat Completions keeps the schema one level deeper than Responses.
  JsonObject holder = object;
  std::string at(path);
  JsonValue schema;
  if (object["json_schema"].get(schema) == simdjson::SUCCESS) {
    at = Member(path, "json_schema");
    WEIR_ASSIGN(holder, ReadObject(schema, at));
  }
  constraint->kind = ConstraintKind::kJsonSchema;
  at = Member(at, "schema");
  if (holder["schema"].get(schema) != simdjson::SUCCESS || schema.is_null()) {
    constraint->kind = ConstraintKind::kJsonObject;  // any object will do
    return absl::OkStatus();
  }
  WEIR_TRY(ReadObject(schema, at).status());
  WEIR_ASSIGN(constraint->text, NormalJson(std::string(simdjson::minify(schema))));
  return absl::OkStatus();
}

}  // namespace weir::codec
